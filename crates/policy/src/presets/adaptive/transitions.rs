// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pages of a class did in the next pass: counted, per process.
//!
//! ```text
//! near(x)[k]  = sum over j != k of 2^-|k - j| x[j]
//! prior[k][d] = (near(N)[k][d] + A [d = 0]) / (near(N)[k] + A)             d: by how many classes a page rose
//! M[k][k + d] = (N[k][d] + A prior[k][d]) / (N[k] + A)
//! rate'[k]    = rate[k] (near(seen)[k] + B / 2) / (near(rate exposure)[k] + B)
//! r[k]        = (seen[k] + B) / (exposure[k] + B / rate'[k])               visits a second
//! ```
//!
//! N, seen and exposure fade by a tenth a pass. A class of which little was counted is taken to do what those
//! next to it did. Before anything was, pages stay in their class, and its estimated rate is believed by half.
//!
//! **Surprise**: bits a page by which M predicted this pass worse than it thought it would:
//! `-sum n[k][k'] log2 M[k][k'] / n  -  entropy of M's rows`: a new phase. That a page was not seen is one outcome, whichever
//! class its estimate comes to: those of pages that are never touched fall in step, by less and less. Within a pass the same of
//! the pages seen so far: the sooner a page is seen, the higher its class is then, so what M expected of them are the ends of its rows.

use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::classes::class_rate;

const ROW_PRIOR: f64 = 4.0;
const RATE_PRIOR: f64 = 4.0;
/// What passes of another length leave of the counts.
const OTHER_LENGTH: f64 = 1.0 / 8.0;

/// Ways a page's class can change.
const RISES: usize = 2 * CLASSES - 1;

/// Rows of a matrix by class.
pub(super) type Matrix = Vec<[f64; CLASSES]>;

/// The counters of one process.
#[derive(Debug, Clone)]
pub(super) struct Transitions {
    /// This pass.
    now: Vec<[u32; CLASSES]>,
    /// Pages that the pass before left in each class.
    pages: [f64; CLASSES],
    counts: Matrix,
    /// M of these counts.
    matrix: Matrix,
    seen: [f64; CLASSES],
    exposure: [f64; CLASSES],
    /// Whether a page was observed in this pass.
    observed: bool,
    trained: bool,
}

impl Transitions {
    pub(super) fn new() -> Self {
        let mut new = Self {
            now: vec![[0; CLASSES]; CLASSES],
            pages: [0.0; CLASSES],
            counts: vec![[0.0; CLASSES]; CLASSES],
            matrix: Vec::new(),
            seen: [0.0; CLASSES],
            exposure: [0.0; CLASSES],
            observed: false,
            trained: false,
        };
        new.matrix = new.by_counts();
        new
    }

    /// So many pages of level `from` were observed for so long, s, and have come to `to`, unless their estimate was
    /// still settling: what looks like a change of the page is one of the estimate then.
    #[inline]
    pub(super) fn count(
        &mut self,
        pages: u32,
        from: Level,
        to: Option<Level>,
        (seen, exposure): (bool, f64),
    ) {
        self.observed = true;
        if from == 0 {
            return;
        }
        let from = class_of(from);
        if let Some(to) = to {
            self.now[from][class_of(to)] += pages;
        }
        if seen {
            self.seen[from] += f64::from(pages);
        }
        self.exposure[from] += f64::from(pages) * exposure;
    }

    /// The pass is over, in which the process had that part of the time that it has in others; what was counted before
    /// a whole one keeps so much of its weight. Whether it surprised by more than `alarm` bits a page, where one of class `k` that
    /// was not seen is in `unseen(k)` or below.
    pub(super) fn end_pass(
        &mut self,
        keep: f64,
        part: f64,
        alarm: f64,
        unseen: impl Fn(usize) -> usize,
    ) -> bool {
        if !std::mem::take(&mut self.observed) {
            return false;
        }
        let keep = keep.powf(part);
        let surprise = self.trained.then(|| self.surprise(unseen)).flatten();
        let surprised = surprise.is_some_and(|bits| bits > alarm);
        self.pages = [0.0; CLASSES];
        for class in 0..CLASSES {
            for to in 0..CLASSES {
                let new = f64::from(std::mem::take(&mut self.now[class][to]));
                self.pages[to] += new;
                self.trained |= new > 0.0;
                self.counts[class][to] = self.counts[class][to] * keep + new * part;
            }
            self.seen[class] *= keep;
            self.exposure[class] *= keep;
        }
        self.matrix = self.by_counts();
        surprised
    }

    /// What was counted before is of passes of another length.
    pub(super) fn forget(&mut self) {
        for row in &mut self.counts {
            row.iter_mut().for_each(|n| *n *= OTHER_LENGTH);
        }
        self.seen.iter_mut().for_each(|n| *n *= OTHER_LENGTH);
        self.exposure.iter_mut().for_each(|n| *n *= OTHER_LENGTH);
        self.trained = false;
        self.matrix = self.by_counts();
    }

    /// M: each row sums up to 1.
    pub(super) const fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    fn by_counts(&self) -> Matrix {
        let near = near(|class| {
            let mut rises = [0.0; RISES];
            rises[CLASSES - 1 - class..][..CLASSES].copy_from_slice(&self.counts[class]);
            rises
        });
        let row = |(class, near): (usize, &[f64; RISES])| {
            let near_by = near.iter().sum::<f64>() + ROW_PRIOR;
            let counts = &self.counts[class];
            let all = counts.iter().sum::<f64>() + ROW_PRIOR;
            let mut row = *counts;
            for (rise, count) in near.iter().enumerate() {
                let to = (class + rise).saturating_sub(CLASSES - 1).min(CLASSES - 1);
                row[to] += ROW_PRIOR * count / near_by;
            }
            row[class] += ROW_PRIOR * ROW_PRIOR / near_by;
            row.map(|count| count / all)
        };
        near.iter().enumerate().map(row).collect()
    }

    /// r: visits a second by class.
    pub(super) fn rates(&self) -> [f64; CLASSES] {
        let near = near(|class| {
            let expected = class_rate(class) * self.exposure[class];
            [self.seen[class], expected]
        });
        std::array::from_fn(|class| {
            let [seen, expected] = near[class];
            let rate = class_rate(class) * (seen + RATE_PRIOR / 2.0) / (expected + RATE_PRIOR);
            (self.seen[class] + RATE_PRIOR) / (self.exposure[class] + RATE_PRIOR / rate)
        })
    }

    fn surprise(&self, unseen: impl Fn(usize) -> usize) -> Option<f64> {
        let pages = |now: &[u32; CLASSES]| now.iter().map(|n| f64::from(*n)).sum();
        self.excess(self.now.iter().map(pages), |_| 0, unseen)
    }

    /// Surprise by those pages only that were seen so far, where one of class `k` that is seen is in `least(k)` or above.
    pub(super) fn surprised_so_far(&self, least: impl Fn(usize) -> usize, alarm: f64) -> bool {
        let excess = || self.excess(self.pages.iter().copied(), least, |_| 0);
        self.trained && excess().is_some_and(|bits| bits > alarm)
    }

    /// Bits a page beyond what M expects, of so many pages by class, in the classes from the least one on. Those up to
    /// `unseen` are one.
    fn excess(
        &self,
        pages: impl Iterator<Item = f64>,
        least: impl Fn(usize) -> usize,
        unseen: impl Fn(usize) -> usize,
    ) -> Option<f64> {
        let (mut cross, mut own, mut all) = (0.0, 0.0, 0.0);
        // A class that nobody was in before costs what a page in so many would.
        let bits = |share: f64| -share.max(1e-6).log2();
        let rows = self.matrix.iter().zip(&self.now).zip(pages);
        for (class, ((row, now), pages)) in rows.enumerate() {
            all += pages;
            let (from, one) = (least(class), (unseen(class) + 1).max(least(class)));
            let mut cell = |share: f64, count: f64| {
                own += pages * share * bits(share);
                cross += count * bits(share);
            };
            if one > from {
                let count = now[from..one].iter().map(|n| f64::from(*n)).sum();
                cell(row[from..one].iter().sum(), count);
            }
            for (&share, &count) in row[one..].iter().zip(&now[one..]) {
                if share > 0.0 || count > 0 {
                    cell(share, f64::from(count));
                }
            }
        }
        (all > 0.0).then(|| (cross - own) / all)
    }
}

/// What those next to a class have, each class further away by half.
fn near<const N: usize>(of: impl Fn(usize) -> [f64; N]) -> Vec<[f64; N]> {
    let mut near = vec![[0.0; N]; CLASSES];
    let mut gather = |classes: &mut dyn Iterator<Item = usize>| {
        let mut coming = [0.0; N];
        for class in classes {
            for ((near, coming), own) in near[class].iter_mut().zip(&mut coming).zip(of(class)) {
                *near += *coming;
                *coming = (*coming + own) / 2.0;
            }
        }
    };
    gather(&mut (0..CLASSES));
    gather(&mut (0..CLASSES).rev());
    near
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PASS: (bool, f64) = (true, 0.5);

    #[test]
    fn before_anything_was_counted_pages_stay_and_rates_are_believed_by_half() {
        let one = Transitions::new();
        for (class, row) in one.matrix().iter().enumerate() {
            assert!((row[class] - 1.0).abs() < 1e-9);
        }
        for (class, rate) in one.rates().iter().enumerate() {
            assert!((rate / class_rate(class) - 0.5).abs() < 1e-9);
        }
    }

    #[test]
    fn an_estimate_that_settles_is_no_change_of_its_page() {
        let mut one = Transitions::new();
        for _ in 0..30 {
            one.count(1, 100, None, PASS);
        }
        assert!(!one.end_pass(0.9, 1.0, 0.5, |_| 0));
        assert!((one.matrix()[50][50] - 1.0).abs() < 1e-9);
        assert!(one.rates()[50] > class_rate(50) / 2.0, "but it was seen");
        assert!(!one.trained);
    }

    /// Each pass they come to a class that nobody was in before.
    #[test]
    fn pages_that_are_never_touched_are_no_surprise_while_their_estimate_falls() {
        let falls = |unseen: fn(usize) -> usize| {
            let mut one = Transitions::new();
            let passes = (0..6_u8).map(|pass| {
                let level = 120 - 8 * pass - pass % 2 * 3;
                for _ in 0..500 {
                    one.count(1, level, Some(level - 8 - pass % 2 * 3), (false, 1.0));
                    one.count(1, 200, Some(200), PASS);
                }
                one.end_pass(0.9, 1.0, 0.5, unseen)
            });
            passes.filter(|surprised| *surprised).count()
        };
        assert_eq!(falls(|class| class), 0);
        assert!(falls(|_| 0) > 0, "by their classes alone they would be");
    }

    /// Seen soon are pages that were taken to be idle; that those that are not seen any more are missing is known at the end only.
    #[test]
    fn what_was_seen_so_far_can_be_a_surprise() {
        let mut one = Transitions::new();
        let usual = |one: &mut Transitions| {
            for _ in 0..500 {
                one.count(1, 200, Some(200), PASS);
            }
        };
        for _ in 0..3 {
            usual(&mut one);
            for _ in 0..500 {
                one.count(1, 20, Some(20), (false, 1.0));
            }
            one.end_pass(0.9, 1.0, 0.5, |class| class);
        }
        let least = |_| 90;
        assert!(!one.surprised_so_far(least, 0.5));
        usual(&mut one);
        assert!(!one.surprised_so_far(least, 0.5));
        for _ in 0..200 {
            one.count(1, 20, Some(200), PASS);
        }
        assert!(one.surprised_so_far(least, 0.5));
    }

    /// The equations as they are written.
    fn slow(one: &Transitions) -> (Matrix, Vec<f64>) {
        let near = |class: usize, of: &dyn Fn(usize) -> f64| -> f64 {
            let others = (0..CLASSES).filter(|other| *other != class);
            let weight = |other: usize| 0.5_f64.powf(class.abs_diff(other) as f64);
            others.map(|other| weight(other) * of(other)).sum()
        };
        let all = |class: usize| one.counts[class].iter().sum::<f64>();
        let rows = (0..CLASSES).map(|class| {
            let mut row = one.counts[class];
            let least = -i32::try_from(class).unwrap();
            for rise in -127_i32..=127 {
                let of = |other: usize| {
                    let to = i32::try_from(other).unwrap() + rise;
                    let to = usize::try_from(to).ok().filter(|to| *to < CLASSES);
                    to.map_or(0.0, |to| one.counts[other][to])
                };
                let stays = if rise == 0 { ROW_PRIOR } else { 0.0 };
                let prior = (near(class, &of) + stays) / (near(class, &all) + ROW_PRIOR);
                let to = class.saturating_add_signed(rise.max(least) as isize);
                row[to.min(CLASSES - 1)] += ROW_PRIOR * prior;
            }
            row.map(|count| count / (all(class) + ROW_PRIOR))
        });
        let expected = |class: usize| class_rate(class) * one.exposure[class];
        let rates = (0..CLASSES).map(|class| {
            let believed = (near(class, &|other| one.seen[other]) + RATE_PRIOR / 2.0)
                / (near(class, &expected) + RATE_PRIOR);
            let prior = class_rate(class) * believed;
            (one.seen[class] + RATE_PRIOR) / (one.exposure[class] + RATE_PRIOR / prior)
        });
        (rows.collect(), rates.collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8))]
        #[test]
        fn rows_and_rates_are_the_equations(
            counted in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>(), 0.001_f64..2.0), 1..200),
        ) {
            let mut one = Transitions::new();
            for (from, to, seen, exposure) in counted {
                one.count(1, from, Some(to), (seen, exposure));
            }
            one.end_pass(0.9, 1.0, f64::INFINITY, |_| 0);
            let (m, r) = slow(&one);
            for (row, slow) in one.matrix().iter().zip(&m) {
                prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
                prop_assert!(row.iter().zip(slow).all(|(a, b)| (a - b).abs() < 1e-9));
            }
            prop_assert!(one.rates().iter().zip(&r).all(|(a, b)| (a / b - 1.0).abs() < 1e-9));
        }
    }

    #[test]
    fn a_pass_like_the_others_is_no_surprise_and_a_new_phase_is() {
        let mut one = Transitions::new();
        for _ in 0..10 {
            for _ in 0..500 {
                one.count(1, 100, Some(100), PASS);
                one.count(1, 20, Some(20), PASS);
            }
            assert!(!one.end_pass(0.9, 1.0, 0.5, |_| 0));
        }
        for _ in 0..500 {
            one.count(1, 100, Some(20), PASS);
            one.count(1, 20, Some(100), PASS);
        }
        assert!(one.end_pass(0.9, 1.0, 2.0, |_| 0));
        assert!(
            !one.end_pass(0.9, 1.0, 2.0, |_| 0),
            "a pass without a page says nothing"
        );
    }
}
