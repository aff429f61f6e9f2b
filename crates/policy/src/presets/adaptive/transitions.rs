// SPDX-License-Identifier: MIT OR Apache-2.0
//! What pages of a class did in the next pass: counted, per process.
//!
//! ```text
//! near(x)[k]  = sum over j != k of 2^-|k - j| x[j]
//! prior[k][d] = (near(N)[k][d] + A [d = 0]) / (near(N)[k] + A)             d: by how many classes a page rose
//! M[k][k + d] = (N[k][d] + A prior[k][d]) / (N[k] + A)
//! rate'[k]    = (near(seen)[k] + B / 2) / (near(exposure)[k] + B / rate[k])
//! r[k]        = (seen[k] + B) / (exposure[k] + B / rate'[k])               visits a second, as many as can be told apart (`rising`)
//! ```
//!
//! N, seen and exposure fade by a tenth a pass. A class of which little was counted is taken to do what those
//! next to it did. Before anything was, pages stay in their class, whose rate is what first waits say ([`super::first`]).
//!
//! **Surprise**: bits a page by which M predicted this pass worse than it thought it would:
//! `-sum n[k][k'] log2 M[k][k'] / n  -  entropy of M's rows`: a new phase. M says nothing of what is new, or has become
//! base pages, until it was counted once: such pages are in n and do not surprise. That a page was not seen is one outcome, whichever
//! class its estimate comes to: those of pages that are never touched fall in step, by less and less. Within a pass the same of
//! the pages seen so far: the sooner a page is seen, the higher its class is then, so what M expected of them are the ends of its rows.

use std::cmp::Ordering;
use std::ops::Range;

use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::classes::class_rate;
use super::estimate::SETTLING;
use super::estimate::Seen;
use super::first::Waits;
use super::matrix;
use super::matrix::Counts;
use super::matrix::Matrix;
use super::mixture::LEAST_SHARE;
use super::rising::rising;

const ROW_PRIOR: f64 = 4.0;
const RATE_PRIOR: f64 = 4.0;
/// What passes of another length leave of the counts.
const OTHER_LENGTH: f64 = 1.0 / 8.0;

/// What is known of a page that was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// Its estimate is still settling: what looks like a change of the page is one of the estimate.
    Hardly,
    /// It settled in the pass before.
    New,
    /// It was counted before.
    Well,
}

impl Known {
    /// After so many passes.
    pub(super) fn after(passes: u32) -> Self {
        match passes.cmp(&SETTLING) {
            Ordering::Less => Self::Hardly,
            Ordering::Equal => Self::New,
            Ordering::Greater => Self::Well,
        }
    }
}

/// The counters of one process.
#[derive(Debug, Clone)]
pub(super) struct Transitions {
    /// This pass, of pages that were counted before.
    now: Counts<u32>,
    /// And of new ones.
    new: Counts<u32>,
    /// Of how many chunks this pass reads one. What a sample shows counts for nothing: its pages are too few, and those of a chunk too
    /// alike, to say what all do. It says whether they still do what is known.
    parts: u32,
    /// Pages of this pass that were observed before, and whose estimate is settling.
    unsettled: f64,
    /// Pages that the last pass of all chunks left in each class, and the last one of as small a sample.
    pages: [[f64; CLASSES]; 2],
    /// And those of it whose estimate was settling.
    settling: [f64; 2],
    sample: u32,
    counts: Counts<f64>,
    seen: [f64; CLASSES],
    exposure: [f64; CLASSES],
    /// What is known until pages were observed a second time.
    first: Waits,
    /// Whether the first pass is over, and whether one is in which they were.
    begun: bool,
    counted: bool,
    /// Whether a page was observed in this pass.
    observed: bool,
    trained: bool,
}

impl Transitions {
    pub(super) fn new() -> Self {
        Self {
            now: Counts::new(),
            new: Counts::new(),
            parts: 1,
            unsettled: 0.0,
            pages: [[0.0; CLASSES]; 2],
            settling: [0.0; 2],
            sample: 0,
            counts: Counts::new(),
            seen: [0.0; CLASSES],
            exposure: [0.0; CLASSES],
            first: Waits::default(),
            begun: false,
            counted: false,
            observed: false,
            trained: false,
        }
    }

    /// A pass that reads one of so many chunks is under way.
    pub(super) fn reads(&mut self, parts: u32) {
        self.parts = parts;
        if parts > 1 && parts != self.sample {
            self.sample = parts;
            self.pages[1] = [0.0; CLASSES];
            self.settling[1] = 0.0;
        }
    }

    const fn is_sample(&self) -> bool {
        self.parts > 1
    }

    /// So many pages of which so much is known were observed so, and have come from a level to another.
    #[inline]
    pub(super) fn count(&mut self, pages: u32, [from, to]: [Level; 2], known: Known, one: Seen) {
        self.observed = true;
        if from == 0 {
            return;
        }
        let (from, to) = (class_of(from), class_of(to));
        match known {
            Known::Hardly => self.unsettled += f64::from(pages),
            Known::New => self.new.of(from)[to] += pages,
            Known::Well => self.now.of(from)[to] += pages,
        }
        if self.is_sample() {
            return;
        }
        if one.seen {
            self.seen[from] += f64::from(pages);
        }
        self.exposure[from] += f64::from(pages) * one.exposure();
    }

    /// So many pages of which nothing was known were observed so and have come to that level.
    pub(super) fn count_first(&mut self, pages: u32, to: Level, one: Seen) {
        if !self.counted {
            self.first.count(pages, to, one);
        }
    }

    /// The pass is over, in which the process had that part of the time that it has in others; what was counted before
    /// a whole one keeps so much of its weight. Whether it surprised who knew M by more than `alarm` bits a page, where one of class `k` that
    /// was not seen is in `unseen(k)` or below.
    pub(super) fn end_pass(
        &mut self,
        m: &Matrix,
        (keep, part): (f64, f64),
        alarm: f64,
        unseen: impl Fn(usize) -> usize,
    ) -> bool {
        if !std::mem::take(&mut self.observed) {
            return false;
        }
        let part = if self.is_sample() { 0.0 } else { part };
        let keep = keep.powf(part);
        let surprise = self.trained.then(|| self.surprise(m, unseen)).flatten();
        let surprised = surprise.is_some_and(|bits| bits > alarm);
        // Some chunks are in the second pass when the first is over.
        self.counted |= self.begun && self.exposure.iter().any(|exposure| *exposure > 0.0);
        self.begun = true;
        let which = usize::from(self.is_sample());
        self.pages[which] = [0.0; CLASSES];
        self.settling[which] = std::mem::take(&mut self.unsettled);
        self.fade(keep);
        for class in 0..CLASSES {
            let mut pass = self.now.take(class);
            if let Some(new) = self.new.take(class) {
                let all = pass.get_or_insert_with(|| Box::new([0; CLASSES]));
                for to in matrix::counted(&new) {
                    all[to] += new[to];
                }
            }
            if let Some(pass) = pass {
                self.count_pass(class, &pass, part);
            }
        }
        surprised
    }

    /// Pages of a pass that had that part of its time, and were of a class.
    fn count_pass(&mut self, class: usize, pass: &[u32; CLASSES], part: f64) {
        let pages = &mut self.pages[usize::from(self.parts > 1)];
        let filled = matrix::counted(pass);
        self.trained |= !filled.is_empty();
        for to in filled.clone() {
            pages[to] += f64::from(pass[to]);
        }
        if part > 0.0 {
            let counts = self.counts.of(class);
            for to in filled {
                counts[to] += f64::from(pass[to]) * part;
            }
        }
    }

    /// What was counted before keeps so much of its weight.
    fn fade(&mut self, keep: f64) {
        self.counts.fade(keep);
        self.seen.iter_mut().for_each(|n| *n *= keep);
        self.exposure.iter_mut().for_each(|n| *n *= keep);
    }

    /// What was counted before is of passes of another length.
    pub(super) fn forget(&mut self) {
        self.fade(OTHER_LENGTH);
        self.trained = false;
    }

    /// Bytes that this takes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.counts.bytes() + self.now.bytes() + self.new.bytes()
    }

    /// What is known until a pass is over in which pages were observed a second time: those that were first say little of all.
    pub(super) fn first(&self) -> Option<&Waits> {
        (!self.counted).then_some(&self.first)
    }

    /// Whether M says what pages of the pass should do.
    pub(super) const fn is_trained(&self) -> bool {
        self.trained
    }

    /// Whether that is so.
    pub(super) const fn is_counted(&self) -> bool {
        self.counted
    }

    /// M: each row sums up to 1.
    pub(super) fn matrix(&self) -> Matrix {
        let counted = |row: Option<&[f64; CLASSES]>| row.map_or(0..0, matrix::filled);
        let filled: Vec<Range<usize>> = self.counts.rows().map(counted).collect();
        // By how much a page rose at least and at most, from 1 - CLASSES on.
        let by = |class: usize, to: usize| CLASSES - 1 - class + to;
        let rises = filled.iter().enumerate().fold(0..0, |all, (class, to)| {
            let own = by(class, to.start)..by(class, to.end);
            matrix::across(all, if to.is_empty() { 0..0 } else { own })
        });
        let near = near(rises.len(), |class, own| {
            let to = filled[class].clone();
            if let Some(counts) = self.counts.row(class).filter(|_| !to.is_empty()) {
                let begin = by(class, to.start) - rises.start;
                own[begin..begin + to.len()].copy_from_slice(&counts[to]);
            }
        });
        let row = |class: usize| {
            let near = &near[class * rises.len()..(class + 1) * rises.len()];
            let near_by = near.iter().sum::<f64>() + ROW_PRIOR;
            let counts = self.counts.row(class);
            let mut row = counts.copied().unwrap_or([0.0; CLASSES]);
            let all = row[filled[class].clone()].iter().sum::<f64>() + ROW_PRIOR;
            for (rise, count) in rises.clone().zip(near) {
                let to = (class + rise).saturating_sub(CLASSES - 1).min(CLASSES - 1);
                row[to] += ROW_PRIOR * count / near_by;
            }
            row[class] += ROW_PRIOR * ROW_PRIOR / near_by;
            for to in matrix::filled(&row) {
                row[to] /= all;
            }
            row
        };
        (0..CLASSES).map(row).collect()
    }

    /// r: visits a second by class.
    pub(super) fn rates(&self) -> [f64; CLASSES] {
        if !self.counted {
            return self.first.rates();
        }
        let near = near(2, |class, own| {
            own.copy_from_slice(&[self.seen[class], self.exposure[class]]);
        });
        rising(&std::array::from_fn(|class| {
            let (seen, exposure) = (near[2 * class], near[2 * class + 1]);
            let rate = (seen + RATE_PRIOR / 2.0) / (exposure + RATE_PRIOR / class_rate(class));
            let prior = RATE_PRIOR / rate;
            [self.seen[class] + RATE_PRIOR, self.exposure[class] + prior]
        }))
    }

    fn surprise(&self, m: &Matrix, unseen: impl Fn(usize) -> usize) -> Option<f64> {
        let sum = |row: &[u32; CLASSES]| {
            row[matrix::counted(row)]
                .iter()
                .map(|n| f64::from(*n))
                .sum()
        };
        let pages = |row: Option<&[u32; CLASSES]>| row.map_or(0.0, sum);
        let unknown = self.unsettled + self.new.rows().map(pages).sum::<f64>();
        self.excess(m, (unknown, self.now.rows().map(pages)), |_| 0, unseen)
    }

    /// Surprise by those pages only that were seen so far, where one of class `k` that is seen is in `least(k)` or above.
    pub(super) fn surprised_so_far(
        &self,
        m: &Matrix,
        least: impl Fn(usize) -> usize,
        alarm: f64,
    ) -> bool {
        let which = usize::from(self.is_sample());
        let pages = (self.settling[which], self.pages[which].into_iter());
        let excess = || self.excess(m, pages, least, |_| 0);
        self.trained && excess().is_some_and(|bits| bits > alarm)
    }

    /// Bits a page beyond what M expects, of so many pages that it says nothing of and so many by class, in the classes from the least one on.
    /// Those up to `unseen` are one.
    fn excess(
        &self,
        m: &Matrix,
        (unknown, pages): (f64, impl Iterator<Item = f64>),
        least: impl Fn(usize) -> usize,
        unseen: impl Fn(usize) -> usize,
    ) -> Option<f64> {
        let (mut cross, mut own, mut all) = (0.0, 0.0, unknown);
        // A class that nobody was in before.
        let bits = |share: f64| -share.max(LEAST_SHARE).log2();
        let none = [0; CLASSES];
        let rows = m.rows().zip(self.now.rows()).zip(pages);
        for (class, ((row, now), pages)) in rows.enumerate() {
            all += pages;
            let now = now.unwrap_or(&none);
            let counted = matrix::counted(now);
            if pages <= 0.0 && counted.is_empty() {
                continue;
            }
            let (from, one) = (least(class), (unseen(class) + 1).max(least(class)));
            let mut cell = |share: f64, count: f64| {
                own += pages * share * bits(share);
                cross += count * bits(share);
            };
            if one > from {
                let count = now[from..one].iter().map(|n| f64::from(*n)).sum();
                cell((from..one).map(|to| row.of(to)).sum(), count);
            }
            for to in matrix::across(row.filled.clone(), counted).filter(|to| *to >= one) {
                let (share, count) = (row.of(to), now[to]);
                if share > 0.0 || count > 0 {
                    cell(share, f64::from(count));
                }
            }
        }
        (all > 0.0).then(|| (cross - own) / all)
    }
}

/// So many figures a class, one class after the other: what those next to it have, each class further away by half.
fn near(figures: usize, of: impl Fn(usize, &mut [f64])) -> Vec<f64> {
    let mut own = vec![0.0; CLASSES * figures];
    let mut near = own.clone();
    for (class, own) in own.chunks_mut(figures.max(1)).enumerate() {
        of(class, own);
    }
    let mut gather = |classes: &mut dyn Iterator<Item = usize>| {
        let mut coming = vec![0.0; figures];
        for class in classes {
            let at = class * figures..(class + 1) * figures;
            let all = near[at.clone()].iter_mut().zip(&mut coming).zip(&own[at]);
            for ((near, coming), own) in all {
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
#[path = "transitions_tests.rs"]
mod tests;
