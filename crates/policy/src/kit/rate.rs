// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rates, in bytes a second: what they make of a time ([`bytes_in`]) and of an amount ([`time_of`]), and how
//! migrations keep to one ([`TokenBucket`]).

use terrace_core::Nanos;

const SECOND: u64 = 1_000_000_000;

/// Bytes that a rate gives in a time.
#[must_use]
pub fn bytes_in(time: Nanos, rate: u64) -> u64 {
    let bytes = u128::from(rate) * u128::from(time.0) / u128::from(SECOND);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// The time that so many bytes take at a rate; at none, as at the least there is.
#[must_use]
pub fn time_of(bytes: u64, rate: u64) -> Nanos {
    let nanos = u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1));
    Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Whether a length of passes differs enough from the one asked for last to be asked for: by an eighth of that.
#[must_use]
pub const fn differs(new: Nanos, asked: Nanos) -> bool {
    new.0.abs_diff(asked.0) >= asked.0.div_ceil(8)
}

/// Bytes that may be moved now: they come at a rate, and only so many are kept. Who takes more than there is has that
/// much less later.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenBucket {
    /// Bytes times 10^9.
    nano_bytes: i128,
    at: Nanos,
}

impl TokenBucket {
    /// Time has gone on at that rate; at most `most` bytes are kept.
    pub fn fill(&mut self, now: Nanos, rate: u64, most: u64) {
        let more = i128::from(rate) * i128::from(now.since(self.at).0);
        let most = i128::from(most) * i128::from(SECOND);
        self.nano_bytes = (self.nano_bytes + more).min(most);
        self.at = now;
    }

    /// Whether there is any.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.nano_bytes > 0
    }

    /// Whether there are so many.
    #[must_use]
    pub fn has(&self, bytes: u64) -> bool {
        self.nano_bytes >= i128::from(bytes) * i128::from(SECOND)
    }

    /// So many are taken.
    pub fn take(&mut self, bytes: u64) {
        self.nano_bytes -= i128::from(bytes) * i128::from(SECOND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_times_and_bytes() {
        assert_eq!(bytes_in(Nanos::from_millis(1_500), 1 << 20), 3 << 19);
        assert_eq!(bytes_in(Nanos::MAX, u64::MAX), u64::MAX);
        assert_eq!(time_of(3 << 19, 1 << 20), Nanos::from_millis(1_500));
        assert_eq!(time_of(u64::MAX, 0), Nanos::MAX);
        assert!(differs(Nanos(900), Nanos(800)) && differs(Nanos(700), Nanos(800)));
        assert!(!differs(Nanos(899), Nanos(800)) && !differs(Nanos(701), Nanos(800)));
        assert!(differs(Nanos(1), Nanos(0)));
    }

    /// A limit below one page a second: whoever takes a page all the same waits for it afterwards.
    #[test]
    fn a_limit_is_kept_to_whatever_the_pages_are() {
        let mut bucket = TokenBucket::default();
        let (mut taken, rate) = (0_u64, 1 << 20);
        for tick in 0..600 {
            bucket.fill(Nanos::from_millis(100 * tick), rate, rate);
            while bucket.any() {
                bucket.take(2 << 20);
                taken += 2 << 20;
            }
        }
        let most = 60 * rate + (2 << 20);
        assert!((most - (4 << 20)..=most).contains(&taken), "{taken}");
    }

    #[test]
    fn parts_of_bytes_add_up_and_what_is_not_used_is_kept_up_to_the_most() {
        let mut bucket = TokenBucket::default();
        // 3 bytes in 2 s, a 1000th of that at a time.
        (1..=1000).for_each(|tick| bucket.fill(Nanos::from_millis(2 * tick), 3 / 2, 100));
        assert!(bucket.has(2) && !bucket.has(3));
        bucket.fill(Nanos::from_secs(1_000), 1 << 20, 100);
        assert!(bucket.has(100) && !bucket.has(101));
        bucket.take(100);
        assert!(!bucket.any() && bucket.has(0));
    }
}
