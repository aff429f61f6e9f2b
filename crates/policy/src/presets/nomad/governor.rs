// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counts what migration costs once the fast tier is full, and slows down when it is futile.
//!
//! Filling free fast memory is a one-time cost and is not governed. Once every promotion needs a
//! demotion, migration can thrash: the paper sees it ("a strategy to dynamically switch it on/off
//! is needed", 4.2) and leaves it open. Ours: a token bucket in bytes; at the end of each window a
//! migration counts as futile if it turned a page that had been migrated the other way before.
//! More futile than useful halves the rate, mostly useful doubles it back to its maximum.

use terrace_core::Nanos;

/// The token bucket and its feedback.
#[derive(Debug)]
pub struct Governor {
    max_rate: u64,
    rate: u64,
    tokens: u64,
    filled: Nanos,
    window_start: Nanos,
    useful: u64,
    futile: u64,
}

const WINDOW: Nanos = Nanos::from_secs(2);
const MIN_SHARE: u64 = 64;

impl Governor {
    /// At most `max_rate` bytes a second.
    #[must_use]
    pub const fn new(max_rate: u64) -> Self {
        Self {
            max_rate,
            rate: max_rate,
            tokens: 0,
            filled: Nanos::ZERO,
            window_start: Nanos::ZERO,
            useful: 0,
            futile: 0,
        }
    }

    /// Bytes a second now.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Whether the rate is well below its maximum, that is, migration has proved futile.
    #[must_use]
    pub const fn throttled(&self) -> bool {
        self.rate <= self.max_rate / 4
    }

    /// Sets another maximum, when the machine is known.
    pub fn set_max_rate(&mut self, max_rate: u64) {
        if max_rate != self.max_rate {
            self.max_rate = max_rate;
            self.rate = max_rate;
        }
    }

    /// Takes `bytes` if they are there.
    pub fn take(&mut self, now: Nanos, bytes: u64) -> bool {
        self.refill(now);
        if self.tokens < bytes {
            return false;
        }
        self.tokens -= bytes;
        true
    }

    /// Notes a migration while contended, and whether it turned an earlier one.
    pub fn note(&mut self, now: Nanos, turned: bool) {
        self.roll(now);
        if turned {
            self.futile += 1
        } else {
            self.useful += 1
        }
    }

    fn refill(&mut self, now: Nanos) {
        self.roll(now);
        let span = now.since(self.filled).0;
        let grown = u128::from(self.rate) * u128::from(span) / 1_000_000_000;
        if grown > 0 {
            // A second's worth at most: a pause is no reason for a burst.
            let grown = u64::try_from(grown).unwrap_or(u64::MAX);
            self.tokens = self
                .tokens
                .saturating_add(grown)
                .min(self.rate.max(2 << 20));
            self.filled = now;
        }
    }

    fn roll(&mut self, now: Nanos) {
        if now.since(self.window_start) < WINDOW {
            return;
        }
        let seen = self.useful + self.futile;
        if seen >= 16 {
            if self.futile * 2 > seen {
                self.rate = (self.rate / 2).max(self.max_rate / MIN_SHARE);
            } else if self.futile * 4 < seen {
                self.rate = (self.rate * 2).min(self.max_rate);
            }
        } else if seen == 0 {
            // Nothing to learn from: creep back, so that a change of the workload is noticed.
            self.rate = (self.rate + self.max_rate / MIN_SHARE).min(self.max_rate);
        }
        self.window_start = now;
        self.useful = 0;
        self.futile = 0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever is asked when, no span of time gets more than the rate and one bucket.
        #[test]
        fn never_over_the_rate(steps in prop::collection::vec((0_u64..200_000_000, 1_u64..1 << 22), 1..200)) {
            let max = 8 << 20;
            let mut governor = Governor::new(max);
            let (mut now, mut taken) = (Nanos::ZERO, 0);
            for (wait, bytes) in steps {
                now = now + Nanos(wait);
                if governor.take(now, bytes) { taken += bytes; }
            }
            let allowed = u128::from(max) * u128::from(now.0) / 1_000_000_000;
            prop_assert!(u128::from(taken) <= allowed + 1);
        }
    }

    #[test]
    fn futile_migration_slows_down_and_useful_migration_speeds_up() {
        let mut governor = Governor::new(64 << 20);
        let mut now = Nanos::ZERO;
        for _ in 0..8 {
            for _ in 0..100 {
                governor.note(now, true);
            }
            now = now + WINDOW;
        }
        governor.note(now, true);
        assert_eq!(governor.rate(), 1 << 20);
        assert!(governor.throttled());
        for _ in 0..8 {
            for _ in 0..100 {
                governor.note(now, false);
            }
            now = now + WINDOW;
        }
        governor.note(now, false);
        assert_eq!(governor.rate(), 64 << 20);
    }
}
