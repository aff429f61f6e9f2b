// SPDX-License-Identifier: MIT OR Apache-2.0
//! A scan of the chosen pages: what was asked for, what was answered.
//!
//! Who looks at pages takes its time for it. The next scan is not asked for before this one was answered, and what a scan found
//! is of the time since the one before was asked for: each looks at the pages in the same order.

use terrace_core::Nanos;
use terrace_core::Pid;

/// The last scan that was asked for.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The page that was last asked for, while there are more to ask for.
    cursor: Option<Option<(Pid, usize)>>,
    /// When it was asked for.
    pub(super) asked: Nanos,
    /// So long after the one before.
    pub(super) span: Nanos,
    /// Pages that nobody has told of.
    open: u64,
    /// Pages that were told, those that were accessed, and those of them that had been in the scan before.
    told: u64,
    accessed: u64,
    again: u64,
    /// The share that was accessed in the scan before.
    before: f64,
}

#[expect(clippy::cast_precision_loss, reason = "pages of a scan")]
impl Round {
    /// A scan of so many pages begins.
    pub(super) fn begin(&mut self, now: Nanos, pages: u64) {
        *self = Self {
            cursor: Some(None),
            asked: now,
            span: now.since(self.asked),
            open: pages,
            told: 0,
            accessed: 0,
            again: 0,
            before: self.share(),
        };
    }

    /// The page behind which the next one is to be asked for, while there are more.
    pub(super) const fn cursor(&self) -> Option<Option<(Pid, usize)>> {
        self.cursor
    }

    /// The page that was asked for; none where that was the last.
    pub(super) fn asked_for(&mut self, page: Option<(Pid, usize)>) {
        self.cursor = page.map(Some);
    }

    /// A page was found.
    pub(super) fn found(&mut self, before: bool, accessed: bool) {
        self.told += 1;
        self.accessed += u64::from(accessed);
        self.again += u64::from(before && accessed);
    }

    /// So many pages were looked at, in memory or not. Whether that was the last of them.
    pub(super) fn looked(&mut self, pages: u64) -> bool {
        let waiting = self.waits();
        self.open = self.open.saturating_sub(pages);
        waiting && self.open == 0
    }

    /// Whether there are answers to come.
    pub(super) const fn waits(&self) -> bool {
        self.open > 0
    }

    /// Pages that are in memory.
    pub(super) const fn told(&self) -> u64 {
        self.told
    }

    /// The share of them that was accessed since the scan before.
    pub(super) fn share(&self) -> f64 {
        self.part(self.accessed)
    }

    /// How far this scan and the one before say the same of pages: their covariance. Had all pages the same chance to be
    /// found accessed it would be none; where the scans are as far apart, it is the variance of those chances.
    pub(super) fn agreement(&self) -> f64 {
        self.part(self.again) - self.share() * self.before
    }

    /// What chance alone makes of an agreement, at most about.
    pub(super) fn noise(&self) -> f64 {
        0.25 / (self.told.max(1) as f64).sqrt()
    }

    fn part(&self, pages: u64) -> f64 {
        pages as f64 / self.told.max(1) as f64
    }
}
