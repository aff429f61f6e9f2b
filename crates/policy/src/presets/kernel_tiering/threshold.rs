// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which hint-fault latency is short enough, and how much may be promoted
//! (`numa_promotion_adjust_threshold`, `numa_promotion_rate_limit`). Bytes and ns.
//!
//! Every 60 s the threshold moves by an eighth towards as many candidates as the limit allows, and once
//! when it first matters: the last time was before the run.

use terrace_core::Nanos;

/// `sysctl_numa_balancing_scan_period_max`.
const ADJUST_PERIOD: Nanos = Nanos::from_secs(60);
/// `NUMA_MIGRATION_ADJUST_STEPS`.
const ADJUST_STEPS: u64 = 16;

#[derive(Debug, Clone, Copy)]
pub(super) struct Threshold {
    default: u64,
    /// 0: the default.
    now: u64,
    /// Bytes a second.
    limit: u64,
    candidates: u64,
    /// `None`: before the run.
    adjusted: Option<Nanos>,
    at_adjustment: u64,
    window: Nanos,
    at_window: u64,
}

impl Threshold {
    pub(super) const fn new(default: Nanos, limit: u64) -> Self {
        Self {
            default: default.0,
            now: 0,
            limit,
            candidates: 0,
            adjusted: None,
            at_adjustment: 0,
            window: Nanos::ZERO,
            at_window: 0,
        }
    }

    /// What it is; 0 while it is the default.
    pub(super) const fn now(&self) -> Nanos {
        Nanos(self.now)
    }

    /// Back to the default: it did not matter.
    pub(super) const fn forget(&mut self) {
        self.now = 0;
    }

    /// Whether a page that waited so long for its fault is promoted.
    pub(super) fn promotes(&mut self, now: Nanos, bytes: u64, idle: Option<Nanos>) -> bool {
        self.adjust(now);
        let threshold = self.value();
        // The kernel counts in ms: what it did not see scanned has waited forever.
        idle.is_some_and(|idle| idle.0 < threshold) && !self.limited(now, bytes)
    }

    const fn value(&self) -> u64 {
        if self.now == 0 {
            self.default
        } else {
            self.now
        }
    }

    fn adjust(&mut self, now: Nanos) {
        if self
            .adjusted
            .is_some_and(|at| now.since(at) <= ADJUST_PERIOD)
        {
            return;
        }
        let wanted = u128::from(self.limit) * 60;
        let seen = u128::from(self.candidates - self.at_adjustment);
        let unit = self.default * 2 / ADJUST_STEPS;
        let threshold = self.value();
        self.now = if seen > wanted * 11 / 10 {
            threshold.saturating_sub(unit).max(unit)
        } else if seen < wanted * 9 / 10 {
            (threshold + unit).min(self.default * 2)
        } else {
            threshold
        };
        self.adjusted = Some(now);
        self.at_adjustment = self.candidates;
    }

    /// Counts a candidate; whether it is beyond the limit.
    fn limited(&mut self, now: Nanos, bytes: u64) -> bool {
        self.candidates += bytes;
        if now.since(self.window) > Nanos::from_secs(1) {
            self.window = now;
            self.at_window = self.candidates;
        }
        self.candidates - self.at_window >= self.limit
    }
}
