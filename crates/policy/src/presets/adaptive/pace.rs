// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to look, and how closely: a pass's length and its shortest wait.
//!
//! ```text
//! cost      = busy + lost: Terrace's processor time of the last pass, reading and learning from it, and what programs lost to it
//! share     = the larger of  busy / pass  and  lost / (pass * processors that the programs run on)
//! waited    = pass / 2 * what the last plan saves a second: it came up evenly in the pass, and was not had meanwhile
//! pass      x 2  while  waited < cost / 2  and  share > 1 %  and nothing is tried (`skew`),  or  share > 5 %
//!           / 2  while  waited > cost * 2  and  share of that <= 5 %
//!           the shortest  when a process comes or surprises,  if there is credit
//!           as long as makes share <= 5 %,  at once,  where a pass takes more than all credit
//! credit    + 5 % of the time that goes by, up to that of 30 s, which it begins with;  - cost
//! parts     60 s / pass  while each of the last 8 plans spends less on moves than reading one of so many chunks costs;  1  else
//! shortest  / 2  while more pages are seen at the first reading than half of the fast tier has: they cannot be told apart
//!           x 2  while they are less than a 32nd of it
//! ```
//!
//! So however many programs come or surprise, passes take no more than 5 % of all time, that of 30 s and those in which they become longer again.
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
pub(super) const REST_SHARE: f64 = 0.01;
pub(super) const BUSY_SHARE: f64 = 0.05;
/// No second surprise of a process within so long, and what may be spent ahead is the share of it.
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

    /// Of a processor's time, or of what the programs have on each of theirs.
    fn one(&self) -> f64 {
        self.busy.max(self.lost / self.runs.max(1.0))
    }

    /// Whether all credit is worth one pass.
    fn is_affordable(&self) -> bool {
        self.one() <= Credit::ALL
    }

    /// Its share of that time.
    fn share(&self, of: Nanos) -> f64 {
        self.one() / ns(of)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time")]
const fn ns(time: Nanos) -> f64 {
    time.0 as f64
}

/// What may be spent beyond the share: it comes back at that share.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Credit {
    ns: f64,
    at: Nanos,
}

impl Credit {
    const ALL: f64 = BUSY_SHARE * ns(ALARM_AGAIN);

    fn spend(&mut self, now: Nanos, cost: f64) {
        let earned = BUSY_SHARE * ns(now.since(self.at));
        self.at = self.at.max(now);
        self.ns = (self.ns + earned).min(Self::ALL) - cost;
    }

    /// Whether passes that take so much may be short now.
    fn covers(&self, price: &Price) -> bool {
        self.ns > 0.0 && price.is_affordable()
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
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Pace {
    pub(super) pass: Nanos,
    pub(super) shortest: Nanos,
    /// Of how many chunks one is read.
    pub(super) parts: u32,
    /// Plans in a row that hardly moved anything.
    quiet: u32,
    /// How often a pass became longer.
    pub(super) rests: u64,
    credit: Credit,
}

impl Pace {
    pub(super) fn new(params: &Params) -> Self {
        Self {
            pass: params.pass_min,
            shortest: params.shortest.min(params.pass_min),
            parts: 1,
            quiet: 0,
            rests: 0,
            credit: Credit {
                ns: Credit::ALL,
                at: Nanos::ZERO,
            },
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

    /// Somebody new is there, or one did what nobody expected, while reading has that price: as often as can be. Whether that is
    /// another pace.
    pub(super) fn hurry(&mut self, price: &Price, params: &Params) -> bool {
        let before = self.asks();
        if params.pace && self.credit.covers(price) {
            self.pass = params.pass_min;
            (self.parts, self.quiet) = (1, 0);
        }
        self.asks() != before
    }

    /// After a pass.
    pub(super) fn next(&mut self, now: Nanos, shown: Shown, params: &Params) {
        if !params.pace {
            return;
        }
        let price = shown.price;
        let (before, parts) = (self.pass, f64::from(shown.parts));
        self.credit.spend(now, price.one() / parts);
        self.pass = self.next_pass(&shown, params);
        self.rests += u64::from(self.pass > before);
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

    /// How long the next pass is.
    fn next_pass(&self, shown: &Shown, params: &Params) -> Nanos {
        let (price, pass) = (shown.price, self.pass);
        if shown.surprised && self.credit.covers(&price) {
            return params.pass_min;
        }
        let waited = pass.as_secs_f64() / 2.0 * shown.saves * f64::from(shown.parts);
        let is_rest = !shown.surprised
            && !shown.tries
            && waited < price.all() / 2.0
            && price.share(pass) > REST_SHARE;
        let half = Nanos(pass.0 / 2).max(params.pass_min);
        let is_wanted = waited > price.all() * 2.0 || shown.surprised;
        let twice = |pass: Nanos| Nanos(pass.0.saturating_mul(2)).min(params.pass_max);
        let mut next = if is_rest || price.share(pass) > BUSY_SHARE {
            twice(pass)
        } else if is_wanted && price.share(half) <= BUSY_SHARE {
            half
        } else {
            pass
        };
        while !price.is_affordable() && price.share(next) > BUSY_SHARE && next < params.pass_max {
            next = twice(next);
        }
        next
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
#[path = "pace_tests.rs"]
mod tests;
