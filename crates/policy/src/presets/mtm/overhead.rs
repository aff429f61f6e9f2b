// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiling overhead (5.3): how many pages may be sampled.
//!
//! ```text
//! num_ps = (t_mi * profiling_overhead - spent) / (one_scan_overhead * scans)             equation 1
//! scans  = num_scans + 1: the first of an interval clears the bit
//! ```
//!
//! Before an interval nothing is spent. Before each of its scans the same equation holds for what is left of its budget and
//! its scans, at the price that those before it had: where that is more than was planned, they are of fewer pages.
//!
//! What a scan takes is measured with every scan ([`crate::Event::Watched`]), what it takes of the program included.
//! `one_scan_overhead` is a moving average over intervals. There is a hint fault for every 12 scans (6.2). What one takes is measured, too
//! ([`crate::Event::Faulted`]); where it is not, it is as long as 12 scans, and half of the budget is for hint faults.

use terrace_core::Nanos;

use super::params::Params;

/// So many scans have a hint fault, which takes as long as so many where nobody tells (6.2).
pub(super) const SCANS_A_FAULT: u64 = 12;
/// Before the first interval pages are scanned so often at most, which may take this part of what an interval may.
const TRIES: u64 = 9;
const TRIED_PART: f64 = 0.1;
/// Fewer pages would say nothing.
const FEWEST: u64 = 16;
/// A step of `tau_m` where regions are too many, of `num_scans`.
const TAU_STEP: f64 = 1.0 / 6.0;

/// See the module.
#[derive(Debug)]
pub(super) struct Overhead {
    /// `one_scan_overhead`, ns; none before the first interval.
    scan_ns: Option<f64>,
    /// `tau_m` as it is now.
    pub(super) tau_m: f64,
    /// Pages scanned in this interval, or before the first one, and the time that it took.
    pages: u64,
    scanned: Nanos,
    /// Hint faults of this interval, and of those whose time is told how many and how long.
    faults: u64,
    told: u64,
    faulted: Nanos,
    /// What a hint fault takes, ns, by those of the last interval that had any; none where nobody tells.
    fault_ns: Option<f64>,
    /// Of scans before the first interval, until that ends.
    before: Nanos,
    /// Of all intervals that ended.
    ended: Nanos,
    /// The largest share of an interval that profiling took, in 1/10,000.
    pub(super) worst: u64,
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times and counts far below 2^53, not negative"
)]
impl Overhead {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            scan_ns: None,
            tau_m: params.tau_m,
            pages: 0,
            scanned: Nanos::ZERO,
            faults: 0,
            told: 0,
            faulted: Nanos::ZERO,
            fault_ns: None,
            before: Nanos::ZERO,
            ended: Nanos::ZERO,
            worst: 0,
        }
    }

    /// What a scan takes, ns: by those of this interval; before its first, `one_scan_overhead`.
    pub(super) fn scan_ns(&self) -> Option<f64> {
        let each = self.scanned.0 as f64 / self.pages as f64;
        if self.pages > 0 {
            Some(each.max(0.1))
        } else {
            self.scan_ns
        }
    }

    /// Scans were made.
    pub(super) fn scanned(&mut self, pages: u64, took: Nanos) {
        self.scanned = self.scanned + took;
        self.pages += pages;
    }

    /// A hint fault was taken. Whether those of this interval have had their part of its budget.
    pub(super) fn faulted(&mut self, params: &Params) -> bool {
        self.faults += 1;
        self.faults_ns() >= Self::budget(params) * self.faults_part()
    }

    /// So many took so long.
    pub(super) fn faults_took(&mut self, faults: u64, took: Nanos) {
        self.told += faults;
        self.faulted = self.faulted + took;
    }

    fn faults_ns(&self) -> f64 {
        let untold = self.faults.saturating_sub(self.told);
        self.faulted.0 as f64 + untold as f64 * self.fault_ns()
    }

    /// What a hint fault takes.
    fn fault_ns(&self) -> f64 {
        let scans = SCANS_A_FAULT as f64 * self.scan_ns().unwrap_or(0.0);
        self.fault_ns.unwrap_or(scans)
    }

    /// The part of a budget that is for hint faults, of which there is one for so many scans.
    fn faults_part(&self) -> f64 {
        let (fault, scan) = (self.fault_ns().max(0.1), self.scan_ns().unwrap_or(0.1));
        fault / (fault + SCANS_A_FAULT as f64 * scan)
    }

    /// What this interval's profiling took.
    fn spent(&self) -> Nanos {
        self.before + self.scanned + Nanos(self.faults_ns() as u64)
    }

    /// Of all there was.
    pub(super) fn total(&self) -> Nanos {
        self.ended + self.spent()
    }

    /// What an interval may take.
    fn budget(params: &Params) -> f64 {
        params.interval.0 as f64 * params.profiling_overhead
    }

    /// Equation 1 for the scans of an interval that follow the first `done`; none before a scan was measured.
    pub(super) fn num_ps(&self, params: &Params, done: u8, faults: bool) -> Option<u64> {
        let scans = f64::from(params.num_scans) + 1.0 - f64::from(done);
        let part = if faults { self.faults_part() } else { 0.0 };
        let theirs = Self::budget(params) * part;
        let others = self.before.0 as f64 + self.faults_ns().max(theirs);
        let left = Self::budget(params) - others - self.scanned.0 as f64;
        Some((left / (self.scan_ns()? * scans)) as u64)
    }

    /// How many pages may be scanned again and again before the first interval; none before a scan was measured.
    pub(super) fn tried_pages(&self, params: &Params) -> Option<u64> {
        let may = Self::budget(params) * TRIED_PART;
        Some(((may / self.scan_ns()?) as u64 / TRIES).max(FEWEST))
    }

    /// The first interval is to begin: what was scanned until now is of its budget.
    pub(super) fn measured(&mut self) {
        self.scan_ns = self.scan_ns();
        self.before = std::mem::replace(&mut self.scanned, Nanos::ZERO);
        self.pages = 0;
    }

    /// `tau_m` and `tau_s` as they are: the second stays above the first (5.3).
    pub(super) fn thresholds(&self, params: &Params) -> (f32, f32) {
        let step = f64::from(params.num_scans) * TAU_STEP;
        let raised = self.tau_m > params.tau_m;
        let least = if raised { self.tau_m + step } else { 0.0 };
        (self.tau_m as f32, params.tau_s.max(least) as f32)
    }

    /// The end of an interval of that length with so many regions: `tau_m` rises step by step while they are more
    /// than samples, and is reset when they fit (5.3).
    pub(super) fn end(&mut self, params: &Params, regions: u64, faults: bool, took: Nanos) {
        let spent = self.spent();
        let share = spent.0 as f64 / took.0.max(1) as f64;
        self.worst = self.worst.max((share * 1e4) as u64);
        self.ended = self.ended + spent;
        let mean = |each: f64| self.scan_ns.map_or(each, |before| (before + each) / 2.0);
        self.scan_ns = self.scan_ns().map(mean);
        if self.told > 0 {
            self.fault_ns = Some(self.faulted.0 as f64 / self.told as f64);
        }
        (self.pages, self.faults, self.told) = (0, 0, 0);
        (self.scanned, self.before, self.faulted) = (Nanos::ZERO, Nanos::ZERO, Nanos::ZERO);
        let num_ps = self.num_ps(params, 0, faults).unwrap_or(u64::MAX).max(1);
        let scans = f64::from(params.num_scans);
        if params.overhead_control && regions > num_ps {
            // Above all differences there are at the last step.
            self.tau_m = (self.tau_m + scans * TAU_STEP).min(scans * 1.01);
        } else {
            self.tau_m = params.tau_m;
        }
    }
}
