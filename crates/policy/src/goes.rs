// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the kernel's hint-fault scanner is asked for passes of some length. Pure: the supervisor sets the
//! kernel's scanner by it, the simulator plays it.
//!
//! A pass is a number of goes. A thread keeps the time between two of them that it was created with, so a
//! longer pass is one of smaller goes. The kernel arms 2 MiB in a go at least, which is why goes are not
//! closer than they need be. Where the policy asks for passes as short as the kernel's shortest, it is in a hurry: a
//! go is as large as it may be, and the kernel's own limit (3 % of a thread's time) holds.

use terrace_core::Nanos;

const MIB: u64 = 1 << 20;
/// Goes are not closer, the kernel's own lower bound for goes of 256 MiB, and not farther apart, the
/// kernel's own `scan_delay_ms`; ms.
const APART: (u64, u64) = (100, 1000);
/// `scan_period_min_ms`.
const HURRY: Nanos = Nanos::from_millis(1_000);
/// With the largest goes all of the machine's memory takes so long, ms.
const WHOLE: u64 = 5000;

/// The goes of one scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Goes {
    most: u64,
    apart: Nanos,
}

impl Goes {
    /// Of `most` bytes at most, in whole MiB, at least one, on a machine with so much memory, bytes. Each go costs a
    /// flush of the processor's translations, and a pass of a minute over a small process cannot be
    /// fewer than one for each 2 MiB.
    #[must_use]
    pub fn new(most: u64, memory: u64) -> Self {
        let most = (most / MIB).max(1);
        let apart = WHOLE * most / (memory / MIB).max(1);
        Self {
            most: most * MIB,
            apart: Nanos::from_millis(apart.clamp(APART.0, APART.1)),
        }
    }

    /// With threads that were created with another time between their goes.
    #[must_use]
    pub const fn with_apart(self, apart: Nanos) -> Self {
        Self { apart, ..self }
    }

    /// From go to go, for threads created from now on.
    #[must_use]
    pub const fn apart(&self) -> Nanos {
        self.apart
    }

    /// Bytes that a go is to arm of a process of so many, for passes of that period; whole MiB, at least one.
    #[must_use]
    pub fn size(&self, bytes: u64, period: Nanos) -> u64 {
        if period <= HURRY {
            return self.most;
        }
        let part = u128::from(bytes / MIB) * u128::from(self.apart.0) / u128::from(period.0.max(1));
        let part = part.clamp(1, u128::from(self.most / MIB));
        u64::try_from(part).map_or(self.most, |part| part * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_has_as_many_goes_as_fit_into_it() {
        let (two, minute) = (Nanos::from_secs(2), Nanos::from_secs(60));
        let size = |most, bytes, period| Goes::new(most, u64::MAX).size(bytes, period) / MIB;
        assert_eq!(size(256 * MIB, 200 * MIB, two), 10);
        assert_eq!(size(256 * MIB, 200 * MIB, Nanos::from_secs(4)), 5);
        assert_eq!(size(256 * MIB, 16 << 30, minute), 27);
        // Neither less than the kernel can count, nor more than was asked for.
        assert_eq!(size(256 * MIB, 20 * MIB, minute), 1);
        assert_eq!(size(256 * MIB, 1 << 40, two), 256);
        assert_eq!(size(0, 1 << 40, two), 1);
    }

    #[test]
    fn who_is_in_a_hurry_gets_the_largest_goes() {
        let goes = Goes::new(256 * MIB, 1 << 40);
        assert_eq!(goes.size(20 * MIB, Nanos::from_secs(1)), 256 * MIB);
        assert!(goes.size(20 * MIB, Nanos::from_secs(4)) < 256 * MIB);
    }

    #[test]
    fn small_machines_are_scanned_less_often() {
        let apart = |memory_mib: u64| Goes::new(256 * MIB, memory_mib * MIB).apart();
        assert_eq!(apart(1242), Nanos::from_secs(1));
        assert_eq!(apart(4 << 10), Nanos::from_millis(312));
        assert_eq!(apart(64 << 10), Nanos::from_millis(100));
        assert_eq!(apart(0), Nanos::from_secs(1));
        let own = Goes::new(256 * MIB, 0).with_apart(Nanos::from_millis(7));
        assert_eq!(own.apart(), Nanos::from_millis(7));
    }
}
