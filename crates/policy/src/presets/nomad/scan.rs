// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to arm hint faults, and where.
//!
//! Arming costs: a page-table walk for every page and a fault for every page in use. It is worth
//! that while placement gets better. So the pass is short while pages are promoted, doubles while
//! few are, is as long as can be after one that found nothing, and is short again when many are.
//!
//! Fast pages are armed only to learn which of them are cold, which matters while the fast tier is
//! full: until the tracker says that all have been armed; when a shortest pass has gone by since, what was
//! not touched is cold; it stays armed, so that it is known to be cold until it faults. That is
//! asked of the tracker, not counted in passes: the kernel takes up a shorter period late, and leaves
//! out what the running thread doesn't use. Learning starts again when no page is left that is cold
//! enough, the later the less the last time was worth, and for few pages not before eight times as long
//! has gone by as it took. It costs a fault for each fast page in use, and does not start before those
//! that wait have cost an eighth of that. What the swaps since the last time were good for shows in how many fast
//! pages are in use now: where that is less than a quarter of what was swapped, as where all pages are
//! equally hot, the pause grows fourfold.
//!
//! Once the fast tier is full a page has to be referenced twice, so nothing is known from the passes right after
//! that either. Until a page has faulted nothing is known from passes without faults: the program may be about to
//! start, and is worth a whole pass then.

use terrace_core::Nanos;

use crate::event::Action;
use crate::event::ScanScope;

/// A promotion is worth as many hint faults as its page's idle time goes into this: in a minute, with an
/// access each idle time that is 150 ns shorter, against 1.5 us for a fault.
const WORTH: Nanos = Nanos::from_secs(6);
/// And at most so many: what is captured of very short times says little.
const WORTH_MAX: u64 = 1000;
/// Less so many, what the migration costs: a copy and its share of a shootdown, 10 us.
const MIGRATION: u64 = 6;
/// A captured time is not taken for shorter.
const SHORTEST_IDLE: Nanos = Nanos::from_millis(1);
/// How long that worth takes to come in.
const WORTH_COMES_IN: Nanos = Nanos::from_secs(60);
/// A pass with more hint faults than this for each promotion found nothing.
const USELESS: u64 = 100;
/// Learning has paid when what waits has lost one part in so many of its price: it goes on waiting, and what
/// is learned serves all that comes later.
const LEARNING_PAYS: u128 = 8;
/// Passes over a tier that has just filled up say nothing: it took a part of the first to fill it, and what is to be
/// promoted then has to fault in two more.
const REFERENCES: u64 = 2;
/// Of what was swapped since the last learning, one part in so many must be in use.
const SWAPS_IN_USE: u64 = 4;
/// Learning ends after so many passes whatever was armed: some memory never is.
const LEARNING_PASSES: u64 = 8;
/// For few pages that wait, learning takes one part in so many of the time at most: it makes every page
/// in use fault, and that has to be made up for. Many are a hot set that has moved.
const LEARNING_SHARE: u64 = 8;

/// Decides scope and period of the scan.
#[derive(Debug)]
pub struct ScanControl {
    min: Nanos,
    max: Nanos,
    period: Nanos,
    floor: Nanos,
    scope: ScanScope,
    /// All fast pages have been armed, those in use have yet to fault.
    settling: bool,
    started: bool,
    learn_since: Nanos,
    learn_after: Nanos,
    learn_next: Nanos,
    learn_for_few: Nanos,
    learn_pause: Nanos,
    found: Nanos,
    learned: bool,
    promoted_since: u64,
    /// Faults of fast pages since learning began: those in use. And at the end of the last.
    in_use: u64,
    /// Their accesses a second, by what their hint faults captured. And how long a page of the tier is idle
    /// between two, by the last learning.
    rates: u64,
    usual_idle: Nanos,
    in_use_then: Option<u64>,
    /// Worth that has waited for room since the last learning, times nanoseconds.
    waited: u128,
    looked: Nanos,
    pass_start: Nanos,
    promoted: u64,
    gained: u64,
    faults: u64,
    changed: bool,
    /// A page has faulted.
    seen: bool,
    /// Passes that ended since the fast tier has been full.
    passes_full: u64,
}

/// Hint faults that the promotion of a page is worth that is idle for so long between accesses.
pub fn worth(idle: Nanos) -> u64 {
    let accesses = WORTH.0 / idle.0.max(1);
    accesses.min(WORTH_MAX).saturating_sub(MIGRATION)
}

/// What the last pass showed.
#[derive(Debug, Clone, Copy)]
pub struct PassView {
    /// Whether all fast pages have been armed since [`ScanControl::asked_since`].
    pub armed: bool,
    /// Whether they have, and a while ago.
    pub learned: bool,
    /// Whether the fast tier has no room.
    pub full: bool,
    /// Whether the fast tier has no room for what waits.
    pub contended: bool,
    /// Whether no fast page was cold enough for what waits.
    pub scarce: bool,
    /// Whether migration has proved futile (see the governor).
    pub futile: bool,
    /// How many pages wait for promotion.
    pub pending: usize,
    /// What the promotion of all of them is worth ([`worth`]).
    pub waiting: u64,
    /// How many promoted pages make a short pass worth while when the fast tier is full.
    pub worth: u64,
    /// How many pages the fast tier holds that were promoted.
    pub on_fast: u64,
    /// How many base pages the fast tier has.
    pub fast_pages: u64,
}

impl ScanControl {
    /// Starts with short passes over slow pages.
    #[must_use]
    pub const fn new(min: Nanos, max: Nanos) -> Self {
        Self {
            min,
            max,
            period: min,
            floor: Nanos::ZERO,
            scope: ScanScope::Slow,
            settling: false,
            started: false,
            learn_since: Nanos::ZERO,
            learn_after: Nanos::ZERO,
            learn_next: Nanos::ZERO,
            learn_for_few: Nanos::ZERO,
            learn_pause: Nanos::ZERO,
            found: Nanos::ZERO,
            learned: false,
            promoted_since: 0,
            in_use: 0,
            rates: 0,
            usual_idle: Nanos(u64::MAX),
            in_use_then: None,
            waited: 0,
            looked: Nanos::ZERO,
            pass_start: Nanos::ZERO,
            promoted: 0,
            gained: 0,
            faults: 0,
            changed: true,
            seen: false,
            passes_full: 0,
        }
    }

    /// How long a pass takes now.
    #[must_use]
    pub fn period(&self) -> Nanos {
        self.period.max(self.floor)
    }

    /// No pass can be shorter than that: the tracker arms only so many bytes a second.
    pub const fn set_floor(&mut self, floor: Nanos) {
        self.floor = floor;
    }

    /// While learning: since when fast pages are to have been armed. None before a pass is over:
    /// there is nothing to see yet.
    #[must_use]
    pub fn asked_since(&self, now: Nanos) -> Option<Nanos> {
        let pass = now.since(self.learn_since) >= self.shortest();
        (self.learning() && pass).then(|| self.learn_since.max(self.found))
    }

    /// A page was found now, not by a reference. What the first look at a program finds is learned
    /// with the rest: it must be armed once more if it was before.
    pub fn found(&mut self, now: Nanos) {
        if self.learning() && now.since(self.learn_since) < self.shortest() {
            self.found = now;
        }
    }

    /// Whether fast pages have been armed long enough that an old last reference means a cold page.
    #[must_use]
    pub const fn ages_known(&self) -> bool {
        self.learned
    }

    /// Whether it is being learned which fast pages are cold.
    #[must_use]
    pub fn learning(&self) -> bool {
        self.scope == ScanScope::All || self.settling
    }

    /// The shortest that a pass can be.
    #[must_use]
    pub fn shortest(&self) -> Nanos {
        self.min.max(self.floor)
    }

    /// A page was promoted that was idle for so long before: this pass was worth something.
    pub fn promoted(&mut self, idle: Nanos) {
        self.promoted += 1;
        self.gained = self.gained.saturating_add(worth(idle));
        self.promoted_since += 1;
    }

    /// A slow page faulted: this pass cost something.
    pub const fn faulted(&mut self) {
        self.faults += 1;
        self.seen = true;
    }

    /// A fast page faulted that was idle for so long: it is in use.
    pub fn faulted_fast(&mut self, idle: Option<Nanos>) {
        self.in_use += 1;
        let idle = idle.map_or(u64::MAX, |idle| idle.0.max(SHORTEST_IDLE.0));
        self.rates += 1_000_000_000 / idle;
    }

    /// How long a fast page is idle between two accesses, by the mean of all rates; endless before that was
    /// learned.
    #[must_use]
    pub const fn usual_idle(&self) -> Nanos {
        self.usual_idle
    }

    /// At a tick: reconsiders once a pass.
    pub fn tick(&mut self, now: Nanos, view: PassView) -> Option<Action> {
        if !self.started {
            self.started = true;
            self.pass_start = now;
            self.looked = now;
            if view.full {
                self.learn(now);
            }
        }
        if view.contended {
            self.waited += u128::from(now.since(self.looked).0) * u128::from(view.waiting);
        }
        self.looked = now;
        let lasts = Nanos(self.learn_after.0 + LEARNING_PASSES * self.shortest().0);
        if self.learning() && (view.learned || now.since(self.learn_since) >= lasts) {
            self.learned(now, view);
        } else if self.scope == ScanScope::All && view.armed {
            self.settling = true;
            self.arm_slow_only();
        }
        if self.has_to_learn(now, view) {
            self.learn(now);
        } else if now.since(self.pass_start) >= self.period() {
            self.pass_start = now;
            self.pass_ended(view);
        }
        std::mem::take(&mut self.changed).then_some(Action::Scan {
            scope: self.scope,
            period: self.period,
        })
    }

    fn learn(&mut self, now: Nanos) {
        self.scope = ScanScope::All;
        self.learn_since = now;
        self.learn_after = self.period();
        self.pass_start = now;
        self.period = self.min;
        self.waited = 0;
        self.in_use = 0;
        self.rates = 0;
        self.changed = true;
    }

    /// As before learning.
    const fn arm_slow_only(&mut self) {
        self.scope = ScanScope::Slow;
        self.period = self.learn_after;
        self.changed = true;
    }

    fn learned(&mut self, now: Nanos, view: PassView) {
        self.learned = true;
        self.settling = false;
        self.arm_slow_only();
        self.usual_idle = Nanos(match self.rates {
            0 => u64::MAX,
            rates => view.fast_pages.saturating_mul(1_000_000_000) / rates,
        });
        let hoped = self.promoted_since / SWAPS_IN_USE;
        let then = self.in_use_then.replace(self.in_use);
        // Far fewer than then: the program uses other pages now.
        let better = then.is_none_or(|then| then.abs_diff(self.in_use) >= hoped);
        let worth_it = self.promoted_since > view.worth && !view.futile && better;
        self.learn_pause = if worth_it || self.learn_pause == Nanos::ZERO {
            Nanos(self.shortest().0 * 4)
        } else {
            let longer = Nanos(self.learn_pause.0 * if better { 2 } else { 4 });
            longer.min(self.max.max(self.shortest()))
        };
        self.learn_next = now + self.learn_pause;
        self.learn_for_few = now + Nanos(now.since(self.learn_since).0 * LEARNING_SHARE);
        self.promoted_since = 0;
    }

    /// Whether what waits for room has cost as much as it costs to learn which fast pages are cold.
    fn has_to_learn(&self, now: Nanos, view: PassView) -> bool {
        let unknown = view.scarce || !self.ages_known();
        let few = (view.pending as u64) < view.worth;
        let next = if few {
            self.learn_next.max(self.learn_for_few)
        } else {
            self.learn_next
        };
        let lost = self.waited * LEARNING_PAYS / u128::from(WORTH_COMES_IN.0);
        let paid = lost >= u128::from(view.on_fast);
        view.contended && unknown && paid && !self.learning() && now >= next
    }

    fn pass_ended(&mut self, view: PassView) {
        // With room, what a pass costs is its faults.
        let busy = if view.contended {
            self.promoted > view.worth
        } else {
            self.promoted > 0 && self.gained >= self.faults
        };
        let hardly = self.gained < self.faults / 4;
        let useless = hardly && self.promoted * USELESS < self.faults;
        self.promoted = 0;
        self.gained = 0;
        self.faults = 0;
        self.passes_full = if view.full { self.passes_full + 1 } else { 0 };
        let too_soon = view.full && self.passes_full <= REFERENCES;
        if self.learning() || !self.seen || too_soon {
            return;
        }
        let period = if view.futile || !busy {
            let longer = match (useless, hardly) {
                (true, _) => self.max.0,
                (_, true) => self.period().0 * 4,
                _ => self.period().0 * 2,
            };
            Nanos(longer.min(self.max.0)).max(self.min)
        } else {
            self.min
        };
        if period != self.period {
            self.period = period;
            self.changed = true;
        }
    }
}

#[cfg(test)]
mod tests;
