// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the kernel's hint-fault scanner is asked for passes of some length. Pure: the supervisor sets the
//! kernel's scanner by it, the simulator plays it.
//!
//! A pass is a number of steps. A thread keeps the time between two steps that it was created with, so a
//! longer pass is one of smaller steps. The kernel arms 2 MiB in a step at least, which is why steps are not
//! closer than they need be. Where the policy asks for passes as short as the kernel's shortest, a step is as
//! large as it may be, and the kernel's own limit (3 % of a thread's time) holds.

use terrace_core::Nanos;

const MIB: u64 = 1 << 20;
/// Between two steps at least, the kernel's own lower bound for steps of 256 MiB, and at most, the kernel's own `scan_delay_ms`; ms.
const DELAY: (u64, u64) = (100, 1000);
/// `scan_period_min_ms`.
const SHORTEST_PASS: Nanos = Nanos::from_millis(1_000);
/// With the largest steps all of the machine's memory takes so long, ms.
const WHOLE: u64 = 5000;

/// How large the steps of one scanner are, and how long it waits between two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanSizing {
    most: u64,
    delay: Nanos,
}

impl ScanSizing {
    /// Of `most` bytes at most, in whole MiB, at least one, on a machine with so much memory, bytes. Each go costs a
    /// flush of the processor's translations, and a pass of a minute over a small process cannot be
    /// fewer than one for each 2 MiB.
    #[must_use]
    pub fn new(most: u64, memory: u64) -> Self {
        let most = (most / MIB).max(1);
        let delay = WHOLE * most / (memory / MIB).max(1);
        Self {
            most: most * MIB,
            delay: Nanos::from_millis(delay.clamp(DELAY.0, DELAY.1)),
        }
    }

    /// With threads that were created with another time between their steps.
    #[must_use]
    pub const fn with_delay(self, delay: Nanos) -> Self {
        Self { delay, ..self }
    }

    /// From step to step, for threads created from now on.
    #[must_use]
    pub const fn delay(&self) -> Nanos {
        self.delay
    }

    /// Bytes that a step is to arm of a process of so many, for passes of that period; whole MiB, at least one.
    #[must_use]
    pub fn size(&self, bytes: u64, period: Nanos) -> u64 {
        if period <= SHORTEST_PASS {
            return self.most;
        }
        let part = u128::from(bytes / MIB) * u128::from(self.delay.0) / u128::from(period.0.max(1));
        let part = part.clamp(1, u128::from(self.most / MIB));
        u64::try_from(part).map_or(self.most, |part| part * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_has_as_many_steps_as_fit_into_it() {
        let (two, minute) = (Nanos::from_secs(2), Nanos::from_secs(60));
        let size = |most, bytes, period| ScanSizing::new(most, u64::MAX).size(bytes, period) / MIB;
        assert_eq!(size(256 * MIB, 200 * MIB, two), 10);
        assert_eq!(size(256 * MIB, 200 * MIB, Nanos::from_secs(4)), 5);
        assert_eq!(size(256 * MIB, 16 << 30, minute), 27);
        // Neither less than the kernel can count, nor more than was asked for.
        assert_eq!(size(256 * MIB, 20 * MIB, minute), 1);
        assert_eq!(size(256 * MIB, 1 << 40, two), 256);
        assert_eq!(size(0, 1 << 40, two), 1);
    }

    #[test]
    fn who_asks_for_short_passes_gets_the_largest_steps() {
        let sizing = ScanSizing::new(256 * MIB, 1 << 40);
        assert_eq!(sizing.size(20 * MIB, Nanos::from_secs(1)), 256 * MIB);
        assert!(sizing.size(20 * MIB, Nanos::from_secs(4)) < 256 * MIB);
    }

    #[test]
    fn small_machines_are_scanned_less_often() {
        let delay = |memory_mib: u64| ScanSizing::new(256 * MIB, memory_mib * MIB).delay();
        assert_eq!(delay(1242), Nanos::from_secs(1));
        assert_eq!(delay(4 << 10), Nanos::from_millis(312));
        assert_eq!(delay(64 << 10), Nanos::from_millis(100));
        assert_eq!(delay(0), Nanos::from_secs(1));
        let own = ScanSizing::new(256 * MIB, 0).with_delay(Nanos::from_millis(7));
        assert_eq!(own.delay(), Nanos::from_millis(7));
    }
}
