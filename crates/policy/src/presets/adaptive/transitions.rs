// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pages of a class did in the next pass: counted, per process.
//!
//! ```text
//! M[k][k'] = (N[k][k'] + A prior[k][k']) / (sum of N[k] + A),  prior[k] = (own class + share of all pages by class) / 2
//! r[k]     = (seen[k] + B) / (exposure[k] + B / estimated rate of k)      visits a second
//! ```
//!
//! N, seen and exposure fade by a tenth a pass. The prior trusts a page's estimate by half and is a
//! row's only content before anything was counted; then the counts outweigh it.
//!
//! **Surprise**: bits a page by which M predicted this pass worse than it thought it would:
//! `-sum n[k][k'] log2 M[k][k'] / n  -  entropy of M's rows`. A new phase forgets 7/8 of what was counted.

use super::classes::CLASSES;
use super::classes::Level;
use super::classes::Seen;
use super::classes::class_of;
use super::classes::class_rate;

const ROW_PRIOR: f64 = 4.0;
const RATE_PRIOR: f64 = 4.0;
/// What a new phase leaves of the counts.
const NEW_PHASE: f64 = 1.0 / 8.0;

/// Rows of a matrix by class.
pub(super) type Matrix = Vec<[f64; CLASSES]>;

/// The counters of one process.
#[derive(Debug, Clone)]
pub(super) struct Transitions {
    /// This pass.
    now: Vec<[u32; CLASSES]>,
    counts: Matrix,
    seen: [f64; CLASSES],
    exposure: [f64; CLASSES],
    /// Pages by the class they have come to in this pass.
    occupied: [u32; CLASSES],
    /// Shares of the pages by class, after the last pass.
    shares: [f64; CLASSES],
    trained: bool,
}

impl Transitions {
    pub(super) fn new() -> Self {
        Self {
            now: vec![[0; CLASSES]; CLASSES],
            counts: vec![[0.0; CLASSES]; CLASSES],
            seen: [0.0; CLASSES],
            exposure: [0.0; CLASSES],
            occupied: [0; CLASSES],
            shares: [0.0; CLASSES],
            trained: false,
        }
    }

    /// A page of level `from` was observed, and has come to `to`.
    #[inline]
    pub(super) fn count(&mut self, from: Level, to: Level, one: Seen) {
        self.occupied[class_of(to)] += 1;
        if from == 0 {
            return;
        }
        let from = class_of(from);
        self.now[from][class_of(to)] += 1;
        self.seen[from] += f64::from(u8::from(one.seen));
        self.exposure[from] += one.exposure;
    }

    /// The pass is over; what was counted before keeps so much of its weight. Whether it surprised by
    /// more than `alarm` bits a page, and the past was forgotten for that.
    pub(super) fn end_pass(&mut self, keep: f64, alarm: f64) -> bool {
        let all: u32 = self.occupied.iter().sum();
        if all == 0 {
            return false;
        }
        let surprise = self.trained.then(|| self.surprise()).flatten();
        let surprised = surprise.is_some_and(|bits| bits > alarm);
        if surprised {
            self.forget();
        }
        self.shares = self.occupied.map(|n| f64::from(n) / f64::from(all));
        self.occupied = [0; CLASSES];
        for class in 0..CLASSES {
            for to in 0..CLASSES {
                let new = f64::from(std::mem::take(&mut self.now[class][to]));
                self.trained |= new > 0.0;
                self.counts[class][to] = self.counts[class][to] * keep + new;
            }
            self.seen[class] *= keep;
            self.exposure[class] *= keep;
        }
        surprised
    }

    /// What was counted before is of another phase, or of passes of another length.
    pub(super) fn forget(&mut self) {
        for row in &mut self.counts {
            row.iter_mut().for_each(|n| *n *= NEW_PHASE);
        }
        self.seen.iter_mut().for_each(|n| *n *= NEW_PHASE);
        self.exposure.iter_mut().for_each(|n| *n *= NEW_PHASE);
        self.trained = false;
    }

    fn row(&self, class: usize) -> [f64; CLASSES] {
        let row = &self.counts[class];
        let all: f64 = row.iter().sum::<f64>() + ROW_PRIOR;
        let mut shares: [f64; CLASSES] =
            std::array::from_fn(|to| (row[to] + ROW_PRIOR / 2.0 * self.shares[to]) / all);
        // What the shares leave (all of them before the first pass) is persistence.
        shares[class] += 1.0 - shares.iter().sum::<f64>();
        shares
    }

    /// M: each row sums up to 1.
    pub(super) fn matrix(&self) -> Matrix {
        (0..CLASSES).map(|class| self.row(class)).collect()
    }

    /// r: visits a second by class.
    pub(super) fn rates(&self) -> [f64; CLASSES] {
        std::array::from_fn(|class| {
            let prior = RATE_PRIOR / class_rate(class);
            (self.seen[class] + RATE_PRIOR) / (self.exposure[class] + prior)
        })
    }

    fn surprise(&self) -> Option<f64> {
        let (mut cross, mut own, mut pages) = (0.0, 0.0, 0.0);
        for class in 0..CLASSES {
            let n: f64 = self.now[class].iter().map(|n| f64::from(*n)).sum();
            if n <= 0.0 {
                continue;
            }
            pages += n;
            let row = self.row(class);
            for (share, count) in row.into_iter().zip(self.now[class]) {
                if share > 0.0 {
                    own -= n * share * share.log2();
                }
                if count > 0 {
                    // A class that nobody was in before costs what a page in so many would.
                    cross -= f64::from(count) * share.max(1e-6).log2();
                }
            }
        }
        (pages > 0.0).then(|| (cross - own) / pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Seen = Seen {
        seen: true,
        exposure: 0.5,
    };

    #[test]
    fn rows_are_shares_of_what_was_counted_and_the_prior() {
        let mut one = Transitions::new();
        for _ in 0..30 {
            one.count(100, 100, PASS);
        }
        for _ in 0..10 {
            one.count(100, 20, PASS);
        }
        assert!(!one.end_pass(0.9, 0.5), "nothing to compare with");
        let m = one.matrix();
        for row in &m {
            assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
        // 30 of 40, and of the prior a half for staying and half of 3/4.
        let expected = (30.0 + 2.0 + 2.0 * 0.75) / 44.0;
        assert!((m[50][50] - expected).abs() < 1e-9, "{}", m[50][50]);
        let stays = 0.5 + 0.5 * one.shares[90];
        assert!((m[90][90] - stays).abs() < 1e-9, "nothing counted: by half");
        let r = one.rates();
        let prior = RATE_PRIOR / class_rate(50);
        // They fade with the pass that is over.
        let direct = (40.0 * 0.9 + RATE_PRIOR) / (20.0 * 0.9 + prior);
        assert!((r[50] / direct - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_pass_like_the_others_is_no_surprise_and_a_new_phase_is() {
        let mut one = Transitions::new();
        for _ in 0..10 {
            for _ in 0..500 {
                one.count(100, 100, PASS);
                one.count(20, 20, PASS);
            }
            assert!(!one.end_pass(0.9, 0.5));
        }
        for _ in 0..500 {
            one.count(100, 20, PASS);
            one.count(20, 100, PASS);
        }
        assert!(one.end_pass(0.9, 2.0));
        assert!(
            !one.end_pass(0.9, 2.0),
            "a pass without a page says nothing"
        );
    }
}
