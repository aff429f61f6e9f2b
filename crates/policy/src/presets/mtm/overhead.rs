// SPDX-License-Identifier: MIT OR Apache-2.0
//! Profiling overhead (5.3): how many pages may be sampled.
//!
//! ```text
//! num_ps = t_mi * profiling_overhead / (one_scan_overhead * scans)                       equation 1
//! scans  = num_scans + 1: the first of an interval clears the bit
//! ```
//!
//! What a scan takes is measured with every scan ([`crate::Event::Watched`]) and is a moving average. With hint
//! faults, one for every 12 scans at 12 times their price, it is twice that (6.2).

use terrace_core::Nanos;

use super::params::Params;

/// So many scans have a hint fault, which takes as long as so many (6.2).
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
    /// `one_scan_overhead`, ns; none before it was measured.
    scan_ns: Option<f64>,
    /// `tau_m` as it is now.
    pub(super) tau_m: f64,
    /// Processor time of this interval's scans, those before the first interval counted to it; of all its profiling; and of
    /// all there was.
    scanned: Nanos,
    pub(super) spent: Nanos,
    /// Of scans before the first interval, until that ends.
    before: Nanos,
    pub(super) total: Nanos,
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
            scanned: Nanos::ZERO,
            spent: Nanos::ZERO,
            before: Nanos::ZERO,
            total: Nanos::ZERO,
            worst: 0,
        }
    }

    /// `one_scan_overhead`.
    pub(super) fn scan_ns(&self) -> Option<f64> {
        self.scan_ns
    }

    /// Scans were made.
    pub(super) fn scanned(&mut self, pages: u64, busy: Nanos) {
        self.scanned = self.scanned + busy;
        self.spent = self.spent + busy;
        self.total = self.total + busy;
        if pages == 0 {
            return;
        }
        let each = (busy.0 as f64 / pages as f64).max(0.1);
        self.scan_ns = Some(self.scan_ns.map_or(each, |before| (before + each) / 2.0));
    }

    /// A hint fault was taken.
    pub(super) fn faulted(&mut self) {
        let fault = Nanos((self.scan_ns.unwrap_or(0.0) * SCANS_A_FAULT as f64) as u64);
        self.spent = self.spent + fault;
        self.total = self.total + fault;
    }

    /// What an interval may take.
    fn budget(params: &Params) -> f64 {
        params.interval.0 as f64 * params.profiling_overhead
    }

    /// Equation 1; none before a scan was measured. Of the first interval, of what the scans before it have left.
    pub(super) fn num_ps(&self, params: &Params, faults: bool) -> Option<u64> {
        let scan = self.scan_ns? * if faults { 2.0 } else { 1.0 };
        let scans = f64::from(params.num_scans) + 1.0;
        let left = Self::budget(params) - self.before.0 as f64;
        Some(((left / (scan * scans)) as u64).max(1))
    }

    /// How many pages may be scanned again and again before the first interval; none before a scan was measured.
    pub(super) fn tried_pages(&self, params: &Params) -> Option<u64> {
        let may = Self::budget(params) * TRIED_PART;
        Some(((may / self.scan_ns?) as u64 / TRIES).max(FEWEST))
    }

    /// The first interval is to begin: what was scanned until now is of its budget.
    pub(super) fn measured(&mut self) {
        self.before = self.scanned;
    }

    /// Whether another scan of so many pages stays within the interval's budget, of which hint faults have half.
    pub(super) fn affords(&self, params: &Params, pages: u64, faults: bool) -> bool {
        let next = self.scan_ns.unwrap_or(0.0) * pages as f64;
        let part = if faults { 0.5 } else { 1.0 };
        let may = Self::budget(params) * part * 1.02;
        !params.overhead_control || self.scanned.0 as f64 + next <= may
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
    pub(super) fn end(&mut self, params: &Params, regions: u64, num_ps: u64, took: Nanos) {
        let share = self.spent.0 as f64 / took.0.max(1) as f64;
        self.worst = self.worst.max((share * 1e4) as u64);
        self.scanned = Nanos::ZERO;
        self.before = Nanos::ZERO;
        self.spent = Nanos::ZERO;
        let scans = f64::from(params.num_scans);
        if params.overhead_control && regions > num_ps {
            // Above all differences there are at the last step.
            self.tau_m = (self.tau_m + scans * TAU_STEP).min(scans * 1.01);
        } else {
            self.tau_m = params.tau_m;
        }
    }
}
