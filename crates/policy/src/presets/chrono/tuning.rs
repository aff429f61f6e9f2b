// SPDX-License-Identifier: MIT OR Apache-2.0
//! CIT threshold and promotion rate limit (3.2), and the thrashing monitor (3.3.2).
//!
//! ```text
//! semi-auto:  r = limit / enqueue rate,  TH' = (1 - d + d r) TH      each scan period
//! dcsc:       r = cut / TH,              TH' = (1 - d + d r) TH      at each look at the heat maps
//!             limit = misplacement ratio * memory / scan period
//! thrashing:  limit / 2 for the next scan period, and again as long as it lasts
//! ```
//!
//! A step halves the threshold at the least and doubles it at the most, with the default d: a period in which nothing
//! was enqueued says that the threshold is too short, not how much. Threshold in [[`FINEST`], [`COARSEST`]].

use terrace_core::Nanos;

use super::heat::COARSEST;
use super::heat::FINEST;
use super::heat::Overlap;
use super::params::Params;
use super::params::TuningKind;

/// What happened in a scan period, bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Period {
    /// Entered the promotion queue.
    pub enqueued: u64,
    /// Left it for its migration.
    pub dequeued: u64,
    /// Of pages that came to a faster tier.
    pub promoted: u64,
    /// Entered the queue within a period of their demotion.
    pub thrashed: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Tuning {
    params: Params,
    threshold: Nanos,
    /// Bytes a second, but for thrashing.
    limit: u64,
    /// How often thrashing has halved it.
    halved: u32,
    began: Nanos,
    /// The period under way.
    pub now: Period,
    /// The last one, and how long it was.
    last: (Period, Nanos),
    /// What the heat maps said last.
    pub seen: Option<Overlap>,
}

impl Tuning {
    /// As given.
    #[must_use]
    pub fn new(params: Params) -> Self {
        Self {
            threshold: params.cit_threshold.max(FINEST).min(COARSEST),
            limit: params.rate_limit,
            halved: 0,
            began: Nanos::ZERO,
            now: Period::default(),
            last: (Period::default(), Nanos::ZERO),
            seen: None,
            params,
        }
    }

    /// The CIT threshold of base pages.
    #[must_use]
    pub const fn threshold(&self) -> Nanos {
        self.threshold
    }

    /// Bytes that may be promoted a second.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.checked_shr(self.halved).unwrap_or(0)
    }

    /// Time has come to a point; where a scan period is over, what it says is heeded.
    pub fn at(&mut self, now: Nanos) {
        if self.began == Nanos::ZERO {
            self.began = now;
        }
        let length = now.since(self.began);
        if length < self.params.scan_period {
            return;
        }
        let over = std::mem::take(&mut self.now);
        self.began = now;
        self.last = (over, length);
        if self.params.tuning == TuningKind::SemiAuto {
            let enqueued = rate(over.enqueued, length);
            self.step(real(self.limit()), enqueued);
        }
        if real(over.thrashed) > self.params.thrash_threshold * real(over.promoted) {
            self.halved += 1;
        } else {
            self.halved = 0;
        }
    }

    /// The heat maps overlap so; of pages that stand for so many bytes.
    pub fn overlap(&mut self, found: Overlap, bytes: u64) {
        self.seen = Some(found);
        self.step(real(found.cut.0), real(self.threshold.0));
        let misplaced = found.misplaced / found.all * real(bytes);
        self.limit = whole(misplaced / self.params.scan_period.as_secs_f64());
    }

    /// TH' = (1 - d + d * wanted / is) TH.
    fn step(&mut self, wanted: f64, is: f64) {
        let delta = self.params.delta_step;
        let factor = if is > 0.0 {
            1.0 - delta + delta * wanted / is
        } else {
            f64::INFINITY
        };
        let factor = match self.params.tuning {
            TuningKind::SemiAuto => factor.min(1.0 / (1.0 - delta)),
            TuningKind::Dcsc => factor,
        };
        let next = whole(real(self.threshold.0) * factor);
        self.threshold = Nanos(next).max(FINEST).min(COARSEST);
    }

    /// Bytes a second that entered the queue in the last period, and that left it.
    #[must_use]
    pub fn rates(&self) -> (u64, u64) {
        let (period, length) = self.last;
        let of = |bytes| whole(rate(bytes, length));
        (of(period.enqueued), of(period.dequeued))
    }

    /// Thrashed candidates of the last period in percent of its promotions.
    #[must_use]
    pub fn thrash_percent(&self) -> u64 {
        let (period, _) = self.last;
        match (period.thrashed, period.promoted) {
            (0, _) => 0,
            (_, 0) => 100,
            (thrashed, promoted) => whole(100.0 * real(thrashed) / real(promoted)),
        }
    }

    /// Pages on the wrong tier in percent of all.
    #[must_use]
    pub fn misplacement_percent(&self) -> u64 {
        let found = self.seen;
        found.map_or(0, |found| whole(100.0 * found.misplaced / found.all))
    }
}

fn rate(bytes: u64, length: Nanos) -> f64 {
    if length == Nanos::ZERO {
        0.0
    } else {
        real(bytes) / length.as_secs_f64()
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates and times below 2^53")]
const fn real(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and saturates"
)]
const fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
#[path = "tuning_tests.rs"]
mod tests;
