// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's scan period (`update_task_scan_period` in `kernel/sched/fair.c`).
//!
//! At the end of each pass: without faults that are local or shared, or with failed migrations, it doubles.
//! Mostly private or mostly local faults lengthen it in tenths, others shorten it. A fault is private if the same
//! thread had the page's last one: by chance one of `threads`, and a single thread's all.
//!
//! With tiers (`numa_balancing=2`) it is simpler. A fault on a page that stays in slow memory is not
//! counted at all (`task_numa_fault` returns), one that was promoted is remote and, its last thread
//! being overwritten by the time of its scan, private. `local + shared` is thus always 0, which the
//! kernel takes for a quiet pass: the period doubles at the first promotion after each pass.

use terrace_core::Nanos;

const SLOTS: u64 = 10;
const THRESHOLD: u64 = 7;

/// The period and what the present pass saw.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScanPeriod {
    min: Nanos,
    max: Nanos,
    pub(crate) period: Nanos,
    threads: u64,
    /// Passes that have begun, with tiers, and whether one has ended since the period was set.
    passes: u64,
    ended: bool,
    /// As with `numa_balancing=2`.
    tiers: bool,
    local: u64,
    remote: u64,
    failed: bool,
    pub(crate) due: Nanos,
}

impl ScanPeriod {
    pub(crate) fn new(min: Nanos, max: Nanos, threads: u32) -> Self {
        Self {
            min,
            max,
            period: min,
            threads: u64::from(threads.max(1)),
            passes: 0,
            ended: false,
            tiers: false,
            local: 0,
            remote: 0,
            failed: false,
            due: Nanos::ZERO,
        }
    }

    /// As with `numa_balancing=2`.
    pub(crate) const fn with_tiers(mut self) -> Self {
        self.tiers = true;
        self
    }

    /// With tiers: a pass has begun, and the one before it ended.
    pub(crate) const fn pass(&mut self) {
        self.passes += 1;
        self.ended = self.passes > 1;
    }

    /// With tiers: a page was promoted. The new period if it is another now.
    pub(crate) fn promoted(&mut self) -> Option<Nanos> {
        let before = self.period;
        if std::mem::take(&mut self.ended) {
            self.period = Nanos((before.0 * 2).min(self.max.0));
        }
        (before != self.period).then_some(self.period)
    }

    pub(crate) const fn fault(&mut self, local: bool) {
        if local {
            self.local += 1;
        } else {
            self.remote += 1;
        }
    }

    pub(crate) const fn migration_failed(&mut self) {
        self.failed = true;
    }

    /// At a tick; the new period if a pass has ended and it changed.
    pub(crate) fn tick(&mut self, now: Nanos) -> Option<Nanos> {
        if now < self.due {
            return None;
        }
        let before = self.period;
        let first = self.due == Nanos::ZERO;
        if self.tiers && !first {
            return None;
        }
        if !first {
            self.period = self.next();
        }
        self.due = now + self.period;
        (self.local, self.remote, self.failed) = (0, 0, false);
        (first || before != self.period).then_some(self.period)
    }

    fn next(&self) -> Nanos {
        let all = self.local + self.remote;
        let period = self.period.0;
        let quiet = self.local == 0 && (all == 0 || self.threads == 1);
        if quiet || self.failed {
            return Nanos((period * 2).min(self.max.0));
        }
        let slot = period.div_ceil(SLOTS);
        let (local, private) = (self.local * SLOTS / all, SLOTS / self.threads);
        let next = if private >= THRESHOLD {
            period + (private - THRESHOLD).max(1) * slot
        } else if local >= THRESHOLD {
            period + (local - THRESHOLD).max(1) * slot
        } else {
            period.saturating_sub((THRESHOLD - local.max(private)) * slot)
        };
        Nanos(next.clamp(self.min.0, self.max.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quiet_passes_lengthen_and_shared_remote_faults_shorten() {
        let mut scan = ScanPeriod::new(Nanos::from_secs(1), Nanos::from_secs(60), 16);
        assert_eq!(scan.tick(Nanos(1)), Some(Nanos::from_secs(1)));
        assert_eq!(scan.tick(Nanos::from_millis(500)), None);
        assert_eq!(scan.tick(Nanos::from_secs(2)), Some(Nanos::from_secs(2)));
        scan.fault(false);
        assert_eq!(scan.tick(Nanos::from_secs(5)), Some(Nanos::from_secs(1)));
        let mut single = ScanPeriod::new(Nanos::from_secs(1), Nanos::from_secs(60), 1);
        let _ = single.tick(Nanos(1));
        single.fault(true);
        assert_eq!(
            single.tick(Nanos::from_secs(2)),
            Some(Nanos::from_millis(1300))
        );
    }

    /// `update_task_scan_period` (Linux 6.12, as 5.13): of a period of 10 s a slot is 1 s. A fault of one of two threads
    /// is private half the time. `local + shared == 0` is quiet: faults of a single thread are all private.
    #[test]
    fn a_pass_changes_the_period_by_where_its_faults_were() {
        for (threads, local, remote, failed, expected) in [
            (16, 0, 0, false, 20),
            (16, 10, 0, true, 20),
            (16, 10, 0, false, 13),
            (16, 8, 2, false, 11),
            (16, 7, 3, false, 11),
            (16, 6, 4, false, 9),
            (16, 3, 7, false, 6),
            (16, 0, 10, false, 3),
            (2, 0, 10, false, 8),
            (2, 6, 4, false, 9),
            (1, 1, 9, false, 13),
            (1, 10, 0, false, 13),
            (1, 0, 10, false, 20),
        ] {
            let mut scan = ScanPeriod::new(Nanos::from_secs(1), Nanos::from_secs(60), threads);
            scan.period = Nanos::from_secs(10);
            (scan.local, scan.remote, scan.failed) = (local, remote, failed);
            let case = (threads, local, remote, failed);
            assert_eq!(scan.next(), Nanos::from_secs(expected), "{case:?}");
        }
    }

    /// `clamp(…, task_scan_min, task_scan_max)`, and `numa_scan_period_max` where it doubles.
    #[test]
    fn the_period_stays_within_its_bounds() {
        for (period, local, remote, expected) in [(2, 0, 10, 1), (55, 10, 0, 60), (40, 0, 0, 60)] {
            let mut scan = ScanPeriod::new(Nanos::from_secs(1), Nanos::from_secs(60), 16);
            scan.period = Nanos::from_secs(period);
            (scan.local, scan.remote) = (local, remote);
            assert_eq!(scan.next(), Nanos::from_secs(expected), "{period}");
        }
    }

    /// What a pass saw is no matter of the next one's.
    #[test]
    fn each_pass_counts_for_itself() {
        let mut scan = ScanPeriod::new(Nanos::from_secs(1), Nanos::from_secs(60), 16);
        let _ = scan.tick(Nanos(1));
        scan.migration_failed();
        scan.fault(true);
        assert_eq!(scan.tick(Nanos::from_secs(2)), Some(Nanos::from_secs(2)));
        scan.fault(true);
        let next = scan.tick(Nanos::from_secs(4));
        assert_eq!(next, Some(Nanos::from_millis(2_600)), "it did not fail");
        assert_eq!(
            scan.tick(Nanos::from_secs(7)),
            Some(Nanos::from_millis(5_200))
        );
    }

    #[test]
    fn with_tiers_the_first_promotion_after_each_pass_doubles() {
        let (min, max) = (Nanos::from_secs(1), Nanos::from_secs(3));
        let mut scan = ScanPeriod::new(min, max, 8).with_tiers();
        assert_eq!(scan.tick(Nanos(1)), Some(min));
        scan.pass();
        assert_eq!(scan.promoted(), None, "no pass has ended");
        scan.pass();
        assert_eq!(scan.promoted(), Some(Nanos::from_secs(2)));
        assert_eq!(scan.promoted(), None);
        assert_eq!(scan.tick(Nanos::from_secs(90)), None);
        scan.pass();
        assert_eq!(scan.promoted(), Some(max));
    }
}
