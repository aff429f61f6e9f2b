// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to look, and how closely: a pass's length and its shortest wait.
//!
//! ```text
//! cost      = busy + lost: Terrace's processor time of the last pass, reading and learning from it, and what programs lost to it
//! share     = the larger of  busy / pass  and  lost / (pass * processors that the programs run on)
//! waited    = pass / 2 * what the last plan saves a second: it came up evenly in the pass, and was not had meanwhile
//! pass      x 2  while  waited < cost / 2  and  share > 1 %  and nothing is tried (`skew`),  or  share > 5 %
//!           / 2  while  waited > cost * 2
//!           the shortest  when a process surprises  and  share of 30 s <= 5 %: no other surprise is believed for so long
//! parts     60 s / pass  while each of the last 8 plans spends less on moves than reading one of so many chunks costs;  1  else
//! shortest  / 2  while more pages are seen at the first reading than half of the fast tier has: they cannot be told apart
//!           x 2  while they are less than a 32nd of it
//! ```
//!
//! A pass twice as long has half the cost a second and twice the wait: their sum is least where the two are equal, and of the powers of
//! two where they differ by a factor of two at most.
//!
//! Plans that hardly move anything, for as long as is looked back (`lag`), say that there is nothing to be had by reading. A sample then says
//! whether pages still do what is known of them, and all are read once in the longest pass ([`terrace_core::Turns`]). A sample counts for nothing
//! else (`transitions`); its plan is taken to be that part of the plan for all.
//!
//! A program loses time as it has to set the bits of its pages again, one after the other. These are about what reading takes,
//! not about pages: a page is judged by its value only.

use terrace_core::Nanos;

use super::lag::LAG;
use super::params::Params;
use crate::event::Action;

/// Share that reading may take of a processor, and of the programs' time: at rest, and while it pays.
const REST_SHARE: f64 = 0.01;
const BUSY_SHARE: f64 = 0.05;
/// No second surprise of a process within so long.
pub(super) const ALARM_AGAIN: Nanos = Nanos::from_millis(30_000);
/// The shortest wait stays within this factor of the first one.
const FINER: u64 = 8;

/// Chunks of a sample at least: 4,096 base pages.
const SAMPLE_CHUNKS: usize = 8;

/// What reading all pages once takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Price {
    /// Of Terrace's processor time, ns.
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
    /// What its moves take, ns.
    pub(super) spends: f64,
    pub(super) price: Price,
    /// Pages in fast memory.
    pub(super) fast: u64,
    /// Pages of either that were seen at the first reading.
    pub(super) first: u64,
    /// Chunks that there are, and of how many the pass read one.
    pub(super) chunks: usize,
    pub(super) parts: u32,
    /// A process did what nobody expected.
    pub(super) surprised: bool,
    /// Huge pages were split to see what that brings, and passes have not told yet.
    pub(super) tries: bool,
}

/// The present pace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) pass: Nanos,
    pub(super) shortest: Nanos,
    /// Of how many chunks one is read.
    pub(super) parts: u32,
    /// Plans in a row that hardly moved anything.
    quiet: u32,
    /// How often a pass became longer.
    pub(super) rests: u64,
}

impl Pace {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            pass: params.pass_min,
            shortest: params.shortest.min(params.pass_min),
            parts: 1,
            quiet: 0,
            rests: 0,
        }
    }

    /// How pages are to be read.
    pub(super) const fn asks(&self) -> Action {
        Action::ReadAccessed {
            shortest: self.shortest,
            pass: self.pass,
            parts: self.parts,
        }
    }

    /// Somebody new is there: as often as can be. Whether that is another pace.
    pub(super) fn hurry(&mut self, params: &Params) -> bool {
        let before = self.asks();
        if params.pace {
            self.pass = params.pass_min;
            (self.parts, self.quiet) = (1, 0);
        }
        self.asks() != before
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
        let (before, parts) = (self.pass, f64::from(shown.parts));
        let waited = self.pass.as_secs_f64() / 2.0 * shown.saves * parts;
        let rests = !shown.surprised
            && !shown.tries
            && waited < price.all() / 2.0
            && price.share(self.pass) > REST_SHARE;
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
        let most = self.most_parts(shown.chunks, params);
        let is_quiet = shown.spends * parts * f64::from(most) < price.all();
        self.quiet = if is_quiet && !shown.surprised && self.pass == before {
            self.quiet + 1
        } else {
            0
        };
        self.parts = if params.sentinel && self.quiet >= LAG {
            most
        } else {
            1
        };
        if shown.parts > 1 {
            // What was seen at the first reading is of another pass.
            return;
        }
        let finest = Nanos(params.shortest.0 / FINER).max(Nanos(10_000));
        let coarsest = Nanos(params.shortest.0.saturating_mul(FINER)).min(params.pass_min);
        if shown.first > shown.fast / 2 {
            self.shortest = Nanos(self.shortest.0 / 2).max(finest);
        } else if shown.first < shown.fast / 32 {
            self.shortest = Nanos(self.shortest.0 * 2).min(coarsest);
        }
    }

    /// Parts of which all pages are read once in about the longest pass, with a sample that is large enough.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a power of two"
    )]
    fn most_parts(&self, chunks: usize, params: &Params) -> u32 {
        let turns = params.pass_max.as_secs_f64() / self.pass.as_secs_f64();
        let large = (chunks / SAMPLE_CHUNKS).checked_ilog2().unwrap_or(0);
        1 << (turns.log2().round().max(0.0) as u32).min(large).min(20)
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
        spends: 0.0,
        price: PRICE,
        fast: 200_000,
        first: 20_000,
        chunks: 1_000,
        parts: 1,
        surprised: false,
        tries: false,
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

    #[test]
    fn a_sample_is_read_where_plans_move_nothing() {
        let params = Params::default();
        let mut pace = Pace::new(&params);
        let mut after = |shown: Shown, times: u32| {
            (0..times).for_each(|_| pace.next(shown, &params));
            (pace.pass.as_secs_f64(), pace.parts)
        };
        // The pass becomes longer three times before it is the last one's length.
        assert_eq!(after(SHOWN, 3 + LAG - 1), (8.0, 1));
        assert_eq!(after(SHOWN, 1), (8.0, 8), "all in 64 s");
        let sample = Shown { parts: 8, ..SHOWN };
        assert_eq!(after(sample, 20), (8.0, 8));
        let few = Shown {
            chunks: 20,
            ..SHOWN
        };
        assert_eq!(after(few, 1), (8.0, 2), "a sample of ten chunks");
        assert_eq!(after(Shown { chunks: 7, ..SHOWN }, 1), (8.0, 1));
        // A plan of an eighth that moves for less than an eighth of what reading an eighth takes, and for more.
        let moves = |part: f64| Shown {
            spends: PRICE.busy * part,
            ..sample
        };
        assert_eq!(after(moves(0.9 / 64.0), 1), (8.0, 8));
        assert_eq!(after(moves(1.1 / 64.0), 1), (8.0, 1));
        assert_eq!(after(SHOWN, LAG - 1), (8.0, 1));
        assert_eq!(after(SHOWN, 1), (8.0, 8));
        let surprised = Shown {
            surprised: true,
            ..sample
        };
        assert_eq!(after(surprised, 1), (1.0, 1));
        let without = Params {
            sentinel: false,
            ..params
        };
        (0..20).for_each(|_| pace.next(SHOWN, &without));
        assert_eq!(pace.parts, 1);
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
