// SPDX-License-Identifier: MIT OR Apache-2.0
//! Time as the engine sees it: nanoseconds since an origin that the caller chose.
//!
//! The supervisor uses `CLOCK_MONOTONIC`, which is also what `bpf_ktime_get_ns` reads; the
//! simulator starts at 0.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time, or a span of it, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The origin.
    pub const ZERO: Self = Self(0);
    /// Later than any time that occurs.
    pub const MAX: Self = Self(u64::MAX);

    /// `n` milliseconds.
    #[must_use]
    pub const fn from_millis(n: u64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    #[must_use]
    pub const fn from_secs(n: u64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The span from `earlier` to `self`; zero where `earlier` is the later one.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// As seconds, for printing and for rates.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "a printed figure, exact to 2^53 ns"
    )]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, rhs: Self) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl From<Duration> for Nanos {
    /// Spans over 584 years saturate.
    fn from(value: Duration) -> Self {
        Self(u64::try_from(value.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(value: Nanos) -> Self {
        Self::from_nanos(value.0)
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from(*self))
    }
}
