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

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PAGE: u64 = 4096;
    const SECOND: Nanos = Nanos::from_secs(1);

    /// With a limit of 1 MiB a second and a threshold of 1,125 ms, 60 s ago.
    fn adjusted() -> Threshold {
        let mut threshold = Threshold::new(SECOND, MIB);
        threshold.adjust(Nanos::ZERO);
        assert_eq!(threshold.now(), Nanos::from_millis(1_125));
        threshold
    }

    /// `numa_promotion_adjust_threshold` (Linux 6.12): by a sixteenth of twice the default, down if there were more
    /// than 11/10 of the candidates that the limit allows in 60 s, up if fewer than 9/10.
    #[test]
    fn the_threshold_follows_the_candidates_of_a_period() {
        for (candidates, expected_ms) in [
            (0, 1_250),
            (54 * MIB - PAGE, 1_250),
            (54 * MIB, 1_125),
            (66 * MIB, 1_125),
            (66 * MIB + PAGE, 1_000),
            (600 * MIB, 1_000),
        ] {
            let mut threshold = adjusted();
            threshold.candidates += candidates;
            threshold.adjust(Nanos::from_secs(60));
            let now = threshold.now();
            assert_eq!(now, Nanos::from_millis(1_125), "not before 60 s are over");
            threshold.adjust(Nanos::from_millis(60_001));
            assert_eq!(
                threshold.now(),
                Nanos::from_millis(expected_ms),
                "{candidates}"
            );
            // What was counted then does not count again.
            threshold.adjust(Nanos::from_millis(120_002));
            let next = expected_ms + 125;
            assert_eq!(threshold.now(), Nanos::from_millis(next), "{candidates}");
        }
    }

    /// From an eighth of the default to twice that; the default is 1 s.
    #[test]
    fn the_threshold_stays_within_its_bounds() {
        for (candidates, expected_ms) in [(0, 2_000), (600 * MIB, 125)] {
            let mut threshold = adjusted();
            for minute in 1..20 {
                threshold.candidates += candidates;
                threshold.adjust(Nanos::from_secs(61 * minute));
            }
            assert_eq!(threshold.now(), Nanos::from_millis(expected_ms));
        }
    }

    /// A latency of as much is not below it, and is no candidate.
    #[test]
    fn only_candidates_count() {
        let mut threshold = adjusted();
        for (idle_ms, expected, candidates) in [(1_125, false, 0), (1_124, true, 1)] {
            let idle = Some(Nanos::from_millis(idle_ms));
            assert_eq!(threshold.promotes(SECOND, PAGE, idle), expected);
            assert_eq!(threshold.candidates, candidates * PAGE);
        }
    }
}
