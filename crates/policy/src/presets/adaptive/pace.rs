// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to look, and how closely: a pass's length and its shortest wait.
//!
//! ```text
//! cost      = processor time of the last pass, as the reader tells it
//! pass      x 2  while  what the last pass could gain  <  its cost  and  cost / pass > 1 % of a processor
//!                or     cost / pass > 5 %
//!           / 2  while  it could gain more than eight times its cost
//!           the shortest  when a process surprises  and  cost / 30 s <= 5 %: no other surprise is believed for so long
//! shortest  / 2  while more pages are seen at the first reading than half of the fast tier has: they cannot be told apart
//!           x 2  while they are less than a 32nd of it
//! ```
//!
//! These are about the reader's time, not about pages: a page is judged by its value only.

use terrace_core::Nanos;

use super::params::Params;

/// Share of a processor that reading may take: at rest, and while it pays.
const REST_SHARE: f64 = 0.01;
const BUSY_SHARE: f64 = 0.05;
const PAYS_WELL: f64 = 8.0;
/// No second surprise of a process within so long.
pub(super) const ALARM_AGAIN: Nanos = Nanos::from_millis(30_000);
/// The shortest wait stays within this factor of the first one.
const FINER: u64 = 8;

/// What a pass showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shown {
    /// What its plan gains, ns.
    pub(super) gain: f64,
    /// What reading all pages once costs, ns.
    pub(super) cost: f64,
    /// Pages in fast memory.
    pub(super) fast: u64,
    /// Pages of either that were seen at the first reading.
    pub(super) first: u64,
    /// A process did what nobody expected.
    pub(super) surprised: bool,
}

/// The present pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) pass: Nanos,
    pub(super) shortest: Nanos,
    /// How often a pass became longer.
    pub(super) rests: u64,
}

impl Pace {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            pass: params.pass_min,
            shortest: params.shortest.min(params.pass_min),
            rests: 0,
        }
    }

    /// Somebody new is there: as often as can be. Whether that is another pace.
    pub(super) fn hurry(&mut self, params: &Params) -> bool {
        let changed = params.pace && self.pass > params.pass_min;
        if changed {
            self.pass = params.pass_min;
        }
        changed
    }

    /// A process did what nobody expected, while reading all pages once costs that, ns. Whether that is another pace.
    pub(super) fn surprised(&mut self, cost: f64, params: &Params) -> bool {
        is_paid_off(cost) && self.hurry(params)
    }

    /// After a pass.
    pub(super) fn next(&mut self, shown: Shown, params: &Params) {
        if !params.pace {
            return;
        }
        let cost = shown.cost;
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let share = |pass: Nanos| cost / pass.0 as f64;
        let half = Nanos(self.pass.0 / 2).max(params.pass_min);
        let rests = !shown.surprised && shown.gain < cost && share(self.pass) > REST_SHARE;
        if shown.surprised && is_paid_off(cost) {
            self.pass = params.pass_min;
        } else if rests || share(self.pass) > BUSY_SHARE {
            let longer = Nanos(self.pass.0.saturating_mul(2)).min(params.pass_max);
            self.rests += u64::from(longer > self.pass);
            self.pass = longer;
        } else if (shown.gain > PAYS_WELL * cost || shown.surprised) && share(half) <= BUSY_SHARE {
            self.pass = half;
        }
        let finest = Nanos(params.shortest.0 / FINER).max(Nanos(10_000));
        let coarsest = Nanos(params.shortest.0.saturating_mul(FINER)).min(params.pass_min);
        if shown.first > shown.fast / 2 {
            self.shortest = Nanos(self.shortest.0 / 2).max(finest);
        } else if shown.first < shown.fast / 32 {
            self.shortest = Nanos(self.shortest.0 * 2).min(coarsest);
        }
    }
}

/// Whether one pass of that cost, ns, is within the share of a processor until the next surprise is believed.
#[expect(clippy::cast_precision_loss, reason = "a time")]
fn is_paid_off(cost: f64) -> bool {
    cost / ALARM_AGAIN.0 as f64 <= BUSY_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown = Shown {
        gain: 0.0,
        cost: 60e6,
        fast: 200_000,
        first: 20_000,
        surprised: false,
    };

    #[test]
    fn rests_while_there_is_nothing_to_gain_and_wakes_up() {
        let params = Params::default();
        let mut pace = Pace::new(&params);
        for _ in 0..20 {
            pace.next(SHOWN, &params);
        }
        let rest = pace.pass;
        assert!(pace.rests > 1 && SHOWN.cost <= 0.01 * rest.0 as f64);
        let gain = 10.0 * SHOWN.cost;
        pace.next(Shown { gain, ..SHOWN }, &params);
        assert_eq!(pace.pass, Nanos(rest.0 / 2));
        pace.next(
            Shown {
                surprised: true,
                ..SHOWN
            },
            &params,
        );
        assert_eq!(pace.pass, params.pass_min);
        pace.next(SHOWN, &params);
        assert!(pace.pass > params.pass_min, "one such pass is worth it");
        let large = 1.6e9;
        assert!(!pace.surprised(large, &params) && pace.surprised(SHOWN.cost, &params));
        assert_eq!(pace.pass, params.pass_min);
        assert!(!pace.hurry(&params));
        pace.pass = rest;
        assert!(pace.hurry(&params) && pace.pass == params.pass_min);
    }

    #[test]
    fn looks_as_closely_as_tells_pages_apart() {
        let params = Params::default();
        let mut pace = Pace::new(&params);
        for _ in 0..20 {
            pace.next(
                Shown {
                    first: 150_000,
                    ..SHOWN
                },
                &params,
            );
        }
        assert_eq!(pace.shortest, Nanos(params.shortest.0 / FINER));
        for _ in 0..20 {
            pace.next(Shown { first: 0, ..SHOWN }, &params);
        }
        assert_eq!(pace.shortest, Nanos(params.shortest.0 * FINER));
    }
}
