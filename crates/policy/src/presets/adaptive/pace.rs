// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to look, and how closely: a pass's length and its shortest wait.
//!
//! ```text
//! cost      = busy + lost: processor time of the last pass, as the reader tells it, and what programs lost to it
//! share     = the larger of  busy / pass  and  lost / (pass * processors that the programs run on)
//! waited    = pass / 2 * what the last plan saves a second: it came up evenly in the pass, and was not had meanwhile
//! pass      x 2  while  waited < cost / 2  and  share > 1 %,  or  share > 5 %
//!           / 2  while  waited > cost * 2
//!           the shortest  when a process surprises  and  share of 30 s <= 5 %: no other surprise is believed for so long
//! shortest  / 2  while more pages are seen at the first reading than half of the fast tier has: they cannot be told apart
//!           x 2  while they are less than a 32nd of it
//! ```
//!
//! A pass twice as long has half the cost a second and twice the wait: their sum is least where the two are equal, and of the powers of
//! two where they differ by a factor of two at most.
//!
//! A program loses time as it has to set the bits of its pages again, one after the other. These are about what reading takes,
//! not about pages: a page is judged by its value only.

use terrace_core::Nanos;

use super::params::Params;

/// Share that reading may take of a processor, and of the programs' time: at rest, and while it pays.
const REST_SHARE: f64 = 0.01;
const BUSY_SHARE: f64 = 0.05;
/// No second surprise of a process within so long.
pub(super) const ALARM_AGAIN: Nanos = Nanos::from_millis(30_000);
/// The shortest wait stays within this factor of the first one.
const FINER: u64 = 8;

/// What reading all pages once takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Of the reader's processor, ns.
    pub(super) busy: f64,
    /// Of the programs' time, ns.
    pub(super) lost: f64,
    /// Processors that they run on.
    pub(super) runs: f64,
}

impl Price {
    fn all(&self) -> f64 {
        self.busy + self.lost
    }

    /// Its share of that time: of a processor, or of what the programs have.
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    fn share(&self, of: Nanos) -> f64 {
        self.busy.max(self.lost / self.runs.max(1.0)) / of.0 as f64
    }

    /// Whether one pass is within its share until the next surprise is believed.
    fn is_paid_off(&self) -> bool {
        self.share(ALARM_AGAIN) <= BUSY_SHARE
    }
}

/// What a pass showed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shown {
    /// What its plan saves, ns a second.
    pub(super) saves: f64,
    pub(super) price: Price,
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

    /// A process did what nobody expected, while reading has that price. Whether that is another pace.
    pub(super) fn surprised(&mut self, price: &Price, params: &Params) -> bool {
        price.is_paid_off() && self.hurry(params)
    }

    /// After a pass.
    pub(super) fn next(&mut self, shown: Shown, params: &Params) {
        if !params.pace {
            return;
        }
        let price = shown.price;
        let half = Nanos(self.pass.0 / 2).max(params.pass_min);
        let waited = self.pass.as_secs_f64() / 2.0 * shown.saves;
        let rests =
            !shown.surprised && waited < price.all() / 2.0 && price.share(self.pass) > REST_SHARE;
        if shown.surprised && price.is_paid_off() {
            self.pass = params.pass_min;
        } else if rests || price.share(self.pass) > BUSY_SHARE {
            let longer = Nanos(self.pass.0.saturating_mul(2)).min(params.pass_max);
            self.rests += u64::from(longer > self.pass);
            self.pass = longer;
        } else if (waited > price.all() * 2.0 || shown.surprised) && price.share(half) <= BUSY_SHARE
        {
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

#[cfg(test)]
mod tests {
    use super::*;

    const PRICE: Price = Price {
        busy: 60e6,
        lost: 0.0,
        runs: 1.0,
    };
    const SHOWN: Shown = Shown {
        saves: 0.0,
        price: PRICE,
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
        assert!(pace.rests > 1 && PRICE.busy <= 0.01 * rest.0 as f64);
        let saves = 2.0 * PRICE.busy / rest.as_secs_f64();
        pace.next(Shown { saves, ..SHOWN }, &params);
        assert_eq!(pace.pass, rest, "as much is waited for as looking costs");
        let saves = 2.5 * saves;
        pace.next(Shown { saves, ..SHOWN }, &params);
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
        let large = Price {
            busy: 1.6e9,
            ..PRICE
        };
        assert!(!pace.surprised(&large, &params) && pace.surprised(&PRICE, &params));
        assert_eq!(pace.pass, params.pass_min);
        assert!(!pace.hurry(&params));
        pace.pass = rest;
        assert!(pace.hurry(&params) && pace.pass == params.pass_min);
    }

    /// Ten times what the reader takes: the share counts that is of the programs' own time.
    #[test]
    fn what_programs_lose_is_a_share_of_what_they_run() {
        let params = Params::default();
        let rest = |runs| {
            let lost = 10.0 * PRICE.busy;
            let price = Price {
                lost,
                runs,
                ..PRICE
            };
            let mut pace = Pace::new(&params);
            (0..20).for_each(|_| pace.next(Shown { price, ..SHOWN }, &params));
            pace.pass.as_secs_f64()
        };
        assert!(rest(1.0) >= 60.0 && rest(4.0) >= 15.0 && rest(4.0) < 60.0);
        assert_eq!(rest(64.0), rest(128.0), "the reader's own");
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
