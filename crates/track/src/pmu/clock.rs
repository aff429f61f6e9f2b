// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the kernel's local clock to `CLOCK_MONOTONIC`. Pure.
//!
//! Samples carry the local clock: asking the kernel for another one makes Intel's PMU interrupt for
//! each sample instead of writing many (`intel_pmu_large_pebs_flags`: `use_clockid` excludes
//! `PERF_SAMPLE_TIME`). Both clocks count nanoseconds from different origins and drift a little. A
//! record read just now is a little old, so the least difference seen is the best estimate of the
//! origin; it is taken over one to two [`SPAN`]s, so that drift does not add up. Times are thus late
//! by at most what the freshest record of some seconds waited before it was read.

use terrace_core::Nanos;

/// How long a least difference counts, at least.
pub const SPAN: Nanos = Nanos::from_secs(10);

/// The difference of the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LocalClock {
    /// Monotonic less local, modulo 2^64; the least of the last full span.
    last: Option<u64>,
    /// Likewise, of this span.
    current: Option<u64>,
    began: Nanos,
}

impl LocalClock {
    /// A record with time `local` was read at `now`.
    pub fn observe(&mut self, now: Nanos, local: u64) {
        if now.since(self.began) >= SPAN {
            self.last = self.current.take().or(self.last);
            self.began = now;
        }
        let difference = now.0.wrapping_sub(local);
        self.current = Some(match self.current {
            Some(least) if less(least, difference) => least,
            _ => difference,
        });
    }

    /// `local` on the monotonic clock, no later than `now`.
    #[must_use]
    pub fn monotonic(&self, local: u64, now: Nanos) -> Nanos {
        let difference = match (self.last, self.current) {
            (Some(a), Some(b)) => Some(if less(a, b) { a } else { b }),
            (a, b) => a.or(b),
        };
        let time = difference.map_or(now.0, |d| local.wrapping_add(d));
        Nanos(time.min(now.0))
    }
}

/// Whether `a` is less than `b`, as differences.
const fn less(a: u64, b: u64) -> bool {
    b.wrapping_sub(a) <= u64::MAX / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_freshest_record_sets_the_origin() {
        let mut clock = LocalClock::default();
        // The local clock is 1,000 ahead; records are read 50, 5 and 90 late.
        for (now, late) in [(10_000, 50), (20_000, 5), (30_000, 90)] {
            clock.observe(Nanos(now), now + 1_000 - late);
        }
        let now = Nanos(40_000);
        assert_eq!(clock.monotonic(31_000, now), Nanos(30_005));
        // What would be in the future is now.
        assert_eq!(clock.monotonic(99_000, now), now);
        assert_eq!(LocalClock::default().monotonic(1, now), now);
    }

    #[test]
    fn drift_is_followed_both_ways() {
        for drift in [-1_000_i64, 1_000] {
            let mut clock = LocalClock::default();
            for second in 0..1_000_u64 {
                let now = 1_000_000_000 * (second + 100);
                // A microsecond a second, and each record is read 100 ns late.
                let local = (now - 100).wrapping_add_signed(drift * second.cast_signed());
                clock.observe(Nanos(now), local);
                let error = clock.monotonic(local, Nanos(now)).0.abs_diff(now);
                assert!(error <= 21_000, "{drift}: {error} ns after {second} s");
            }
        }
    }
}
