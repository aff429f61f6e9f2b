// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows by class, most of which is 0: a page that changes its class has one near by then, and few classes have pages.
//!
//! Each program has five, which whole are half a megabyte, and most of a pass of many small programs goes over their zeros (`cargo bench -p
//! terrace-policy --bench programs`). So a row is there when something was counted in it, and beyond its first and its last column that
//! is not 0 nothing is looked at.

use std::ops::Range;

use super::classes::CLASSES;

/// The columns from the first that is not 0 to the last one.
pub(super) fn filled(row: &[f64; CLASSES]) -> Range<usize> {
    // By their bits, without the sign: a zero is not to be told by arithmetics, which is what costs.
    within(row, |x| x.to_bits() << 1 != 0)
}

/// The same of counts.
pub(super) fn counted(row: &[u32; CLASSES]) -> Range<usize> {
    within(row, |n| *n != 0)
}

fn within<T>(row: &[T; CLASSES], is_filled: impl Fn(&T) -> bool) -> Range<usize> {
    match row.iter().position(&is_filled) {
        Some(first) => first..row.iter().rposition(is_filled).unwrap_or(first) + 1,
        None => 0..0,
    }
}

/// The columns of both and those between.
pub(super) fn across(one: Range<usize>, other: Range<usize>) -> Range<usize> {
    if one.is_empty() {
        other
    } else if other.is_empty() {
        one
    } else {
        one.start.min(other.start)..one.end.max(other.end)
    }
}

/// Counts from class to class: a row is there once something was counted in it.
#[derive(Debug, Clone)]
pub(super) struct Counts<T>(Vec<Option<Box<[T; CLASSES]>>>);

impl<T: Copy + Default> Counts<T> {
    /// None.
    pub(super) fn new() -> Self {
        Self(vec![None; CLASSES])
    }

    /// A row, if it is there.
    pub(super) fn row(&self, row: usize) -> Option<&[T; CLASSES]> {
        self.0[row].as_deref()
    }

    /// All rows, in their order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Option<&[T; CLASSES]>> {
        self.0.iter().map(Option::as_deref)
    }

    /// A row to count in.
    #[inline]
    pub(super) fn of(&mut self, row: usize) -> &mut [T; CLASSES] {
        self.0[row].get_or_insert_with(|| Box::new([T::default(); CLASSES]))
    }

    /// A row, which is none from now on.
    pub(super) fn take(&mut self, row: usize) -> Option<Box<[T; CLASSES]>> {
        self.0[row].take()
    }

    /// Bytes that this takes.
    pub(super) fn bytes(&self) -> usize {
        let there = self.0.iter().flatten().count();
        self.0.capacity() * size_of::<usize>() + there * size_of::<[T; CLASSES]>()
    }
}

impl Counts<f64> {
    /// What was counted keeps so much of its weight.
    pub(super) fn fade(&mut self, keep: f64) {
        for row in self.0.iter_mut().flatten() {
            let filled = filled(row);
            row[filled].iter_mut().for_each(|n| *n *= keep);
        }
    }
}

/// Shares from class to class: of each row what lies within the columns that are filled.
#[derive(Debug, Clone, Default)]
pub(super) struct Matrix {
    shares: Vec<f64>,
    /// Of each row the columns, and where they begin among the shares.
    rows: Vec<(Range<usize>, usize)>,
}

/// A row of a matrix.
#[derive(Debug, Clone)]
pub(super) struct Row<'a> {
    /// The columns from the first that is not 0 to the last one.
    pub(super) filled: Range<usize>,
    shares: &'a [f64],
}

impl Row<'_> {
    /// One of them; 0 beyond.
    pub(super) fn of(&self, column: usize) -> f64 {
        let at = column.checked_sub(self.filled.start);
        at.and_then(|at| self.shares.get(at))
            .copied()
            .unwrap_or(0.0)
    }

    /// Those that are filled, with their columns.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, f64)> {
        self.filled.clone().zip(self.shares.iter().copied())
    }

    /// The sum of all times those.
    pub(super) fn times(&self, x: &[f64; CLASSES]) -> f64 {
        let both = self.shares.iter().zip(&x[self.filled.clone()]);
        both.map(|(share, x)| share * x).sum()
    }
}

impl Matrix {
    /// A row.
    pub(super) fn row(&self, row: usize) -> Row<'_> {
        let (filled, begin) = self.rows[row].clone();
        let shares = &self.shares[begin..begin + filled.len()];
        Row { filled, shares }
    }

    /// All rows, in their order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.rows.len()).map(|row| self.row(row))
    }

    /// Bytes that this takes.
    pub(super) const fn bytes(&self) -> usize {
        self.shares.capacity() * size_of::<f64>()
            + self.rows.capacity() * size_of::<(Range<usize>, usize)>()
    }
}

impl FromIterator<[f64; CLASSES]> for Matrix {
    fn from_iter<I: IntoIterator<Item = [f64; CLASSES]>>(all: I) -> Self {
        let (mut shares, mut rows) = (Vec::new(), Vec::with_capacity(CLASSES));
        for row in all {
            let filled = filled(&row);
            rows.push((filled.clone(), shares.len()));
            shares.extend_from_slice(&row[filled]);
        }
        shares.shrink_to_fit();
        Self { shares, rows }
    }
}

/// Equations `sum over j of a[i][j] x[j] = b[i]`, as many as unknowns.
#[derive(Debug)]
pub(super) struct Equations {
    /// Row by row, with the column behind the last that is filled of each.
    a: Vec<f64>,
    ends: Vec<usize>,
    b: Vec<f64>,
    of: usize,
}

impl Equations {
    /// For so many unknowns.
    pub(super) fn of(unknowns: usize) -> Self {
        Self {
            a: Vec::with_capacity(unknowns * unknowns),
            ends: Vec::with_capacity(unknowns),
            b: Vec::with_capacity(unknowns),
            of: unknowns,
        }
    }

    /// The next one, `x[i] = b + sum of shares`, with i its number.
    pub(super) fn add(&mut self, b: f64, shares: impl Iterator<Item = (usize, f64)>) {
        let (number, begin) = (self.b.len(), self.a.len());
        self.a.resize(begin + self.of, 0.0);
        let row = &mut self.a[begin..];
        let mut end = number + 1;
        for (column, share) in shares {
            row[column] = -share;
            end = end.max(column + 1);
        }
        row[number] += 1.0;
        self.ends.push(end);
        self.b.push(b);
    }

    /// x by Gauss. Without pivots: where the shares of each come to less than 1 the diagonal outweighs the rest of its row, and keeps doing
    /// so.
    pub(super) fn solve(self) -> Vec<f64> {
        let Self {
            mut a,
            mut ends,
            b: mut x,
            of,
        } = self;
        for done in 0..of {
            let (above, below) = a.split_at_mut((done + 1) * of);
            let end = ends[done];
            let pivot = &above[done * of..][done..end];
            let known = x[done];
            for (next, row) in below.chunks_mut(of).enumerate() {
                // Rows are near their diagonal: most have nothing here.
                if row[done].to_bits() << 1 == 0 {
                    continue;
                }
                let (next, factor) = (done + 1 + next, row[done] / pivot[0]);
                let ahead = row[done..end].iter_mut().zip(pivot);
                ahead.for_each(|(own, pivot)| *own -= factor * pivot);
                x[next] -= factor * known;
                ends[next] = ends[next].max(end);
            }
        }
        for row in (0..of).rev() {
            let own = &a[row * of..(row + 1) * of];
            let ahead = own[row + 1..ends[row]].iter().zip(&x[row + 1..]);
            let known: f64 = ahead.map(|(share, x)| share * x).sum();
            x[row] = (x[row] - known) / own[row];
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_is_what_it_was_made_of() {
        let mut one = [0.0; CLASSES];
        (one[7], one[9]) = (0.25, 0.75);
        let m: Matrix = [one, [0.0; CLASSES], [1.0; CLASSES]].into_iter().collect();
        let shares =
            |row: usize| -> Vec<f64> { (0..CLASSES).map(|to| m.row(row).of(to)).collect() };
        assert_eq!(shares(0), one);
        assert_eq!(shares(1), [0.0; CLASSES]);
        assert_eq!(
            m.row(0).iter().collect::<Vec<_>>(),
            [(7, 0.25), (8, 0.0), (9, 0.75)]
        );
        let x = std::array::from_fn(|to| to as f64);
        let times: Vec<f64> = m.rows().map(|row| row.times(&x)).collect();
        assert_eq!(times, [8.5, 0.0, 8_128.0]);
    }

    #[test]
    fn what_is_filled_is_told_by_both_ends() {
        let mut row = [0.0; CLASSES];
        assert_eq!(filled(&row), 0..0);
        (row[3], row[9], row[90]) = (-0.0, 1e-300, -1.0);
        assert_eq!(filled(&row), 9..91);
        assert_eq!(across(0..0, 4..5), 4..5);
        assert_eq!(across(9..91, 4..5), 4..91);
    }

    proptest! {
        /// Rows that are full, or have little beside their diagonal.
        #[test]
        fn it_solves_the_equations(
            rows in prop::collection::vec(prop::collection::vec((0_usize..40, 0.0_f64..1.0), 0..40), 40), gamma in 0.1_f64..0.999,
        ) {
            let mut equations = Equations::of(40);
            let mut m = vec![[0.0; 40]; 40];
            for (number, shares) in rows.iter().enumerate() {
                let all: f64 = shares.iter().map(|(_, share)| share).sum::<f64>().max(1e-9);
                shares.iter().for_each(|(column, share)| m[number][*column] += gamma * share / all);
                let filled = m[number].iter().copied().enumerate().filter(|(_, share)| *share > 0.0);
                equations.add(number as f64, filled);
            }
            let x = equations.solve();
            for (number, row) in m.iter().enumerate() {
                let said = number as f64 + row.iter().zip(&x).map(|(share, x)| share * x).sum::<f64>();
                prop_assert!((x[number] - said).abs() <= 1e-9 * (1.0 + said.abs()), "{} for {}", x[number], said);
            }
        }
    }
}
