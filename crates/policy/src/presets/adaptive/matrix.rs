// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows by class, most of which is 0: a page that changes its class has one near by then, and few classes have pages.
//!
//! Each program has some, and who goes over all of a row spends most of a pass of many small programs on zeros (`cargo bench -p terrace-policy
//! --bench programs`). What is beyond the columns of a row that are filled counts as 0 and is not looked at.

use std::ops::Index;
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
        Some(first) => first..row.iter().rposition(is_filled).map_or(first, |last| last) + 1,
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

/// Rows, with the columns of each that are filled.
#[derive(Debug, Clone, Default)]
pub(super) struct Matrix {
    rows: Vec<[f64; CLASSES]>,
    filled: Vec<Range<usize>>,
}

impl Matrix {
    /// The rows with their columns that are filled.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&[f64; CLASSES], Range<usize>)> {
        self.rows.iter().zip(self.filled.iter().cloned())
    }

    /// The columns of a row that are filled.
    pub(super) fn filled(&self, row: usize) -> Range<usize> {
        self.filled[row].clone()
    }

    /// The sum over a row of its elements times those.
    pub(super) fn times(&self, row: usize, x: &[f64; CLASSES]) -> f64 {
        let filled = self.filled(row);
        let own = self.rows[row][filled.clone()].iter();
        own.zip(&x[filled]).map(|(own, x)| own * x).sum()
    }
}

impl Index<usize> for Matrix {
    type Output = [f64; CLASSES];

    fn index(&self, row: usize) -> &[f64; CLASSES] {
        &self.rows[row]
    }
}

impl FromIterator<[f64; CLASSES]> for Matrix {
    fn from_iter<I: IntoIterator<Item = [f64; CLASSES]>>(rows: I) -> Self {
        let rows: Vec<[f64; CLASSES]> = rows.into_iter().collect();
        let filled = rows.iter().map(filled).collect();
        Self { rows, filled }
    }
}

/// So many equations `sum over j of a[i][j] x[j] = b[i]`, of which those are added that have something to say of x.
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
