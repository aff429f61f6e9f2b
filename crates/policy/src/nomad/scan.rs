// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often to arm hint faults, and where.
//!
//! Arming costs: a page-table walk for every page and a fault for every page in use. It is worth
//! that while placement gets better. So the pass is short while pages are promoted, doubles while
//! few are, and is short again when many are. Fast pages are armed only while the fast tier is full,
//! because only then it matters which of them are cold; from the first pass on where it is full at
//! the start. What is cold is known after two passes over them, and until then no pass is judged.

use terrace_core::Nanos;

use crate::event::Action;
use crate::event::ScanScope;

/// A promotion is worth so many hint faults: a page comes back to the slow tier's latency at each
/// access, its fault to the kernel once.
const FAULTS_FOR_PROMOTION: u64 = 32;

/// Decides scope and period of the scan.
#[derive(Debug)]
pub struct ScanControl {
    min: Nanos,
    max: Nanos,
    period: Nanos,
    floor: Nanos,
    scope: ScanScope,
    scope_since: Nanos,
    started: bool,
    pass_start: Nanos,
    last_pass: Nanos,
    promoted: u64,
    faults: u64,
    changed: bool,
}

/// What the last pass showed.
#[derive(Debug, Clone, Copy)]
pub struct PassView {
    /// Whether the fast tier has no room.
    pub full: bool,
    /// Whether the fast tier has no room for what waits.
    pub contended: bool,
    /// Whether migration has proved futile (see the governor).
    pub futile: bool,
    /// How many pages wait for promotion.
    pub pending: usize,
    /// How many promoted pages make a short pass worth while when the fast tier is full.
    pub worth: u64,
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
            scope_since: Nanos::ZERO,
            started: false,
            pass_start: Nanos::ZERO,
            last_pass: Nanos::ZERO,
            promoted: 0,
            faults: 0,
            changed: true,
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

    /// When the last complete pass began.
    #[must_use]
    pub const fn last_pass(&self) -> Nanos {
        self.last_pass
    }

    /// Whether fast pages have been armed long enough that an old last reference means a cold page.
    #[must_use]
    pub fn ages_known(&self, now: Nanos) -> bool {
        let shortest = self.min.max(self.floor);
        self.scope == ScanScope::All && now.since(self.scope_since).0 >= 2 * shortest.0
    }

    /// A page was promoted: this pass was worth something.
    pub const fn promoted(&mut self) {
        self.promoted += 1;
    }

    /// A slow page faulted: this pass cost something.
    pub const fn faulted(&mut self) {
        self.faults += 1;
    }

    /// At a tick: reconsiders once a pass.
    pub fn tick(&mut self, now: Nanos, view: PassView) -> Option<Action> {
        if !self.started {
            self.started = true;
            self.pass_start = now;
            self.look_at(now, scope_for(view.full));
        }
        if now.since(self.pass_start) >= self.period() {
            self.last_pass = self.pass_start;
            self.pass_start = now;
            self.pass_ended(now, view);
        }
        std::mem::take(&mut self.changed).then_some(Action::Scan {
            scope: self.scope,
            period: self.period,
        })
    }

    fn look_at(&mut self, now: Nanos, scope: ScanScope) {
        if scope != self.scope {
            self.scope = scope;
            self.scope_since = now;
            self.changed = true;
        }
    }

    fn pass_ended(&mut self, now: Nanos, view: PassView) {
        let learning = self.scope == ScanScope::All && !self.ages_known(now);
        self.look_at(now, scope_for(view.contended || learning && view.full));
        let learning = self.scope == ScanScope::All && !self.ages_known(now);
        // With room, what a pass costs is its faults: so many for a promotion are worth it.
        let worth = if view.contended {
            view.worth
        } else {
            (self.faults / FAULTS_FOR_PROMOTION).max(16).min(view.worth)
        };
        let busy = learning || self.promoted > worth || (view.pending > 0 && !view.contended);
        self.promoted = 0;
        self.faults = 0;
        let period = if view.futile || !busy {
            Nanos((self.period().0 * 2).min(self.max.0)).max(self.min)
        } else {
            self.min
        };
        if period != self.period {
            self.period = period;
            self.changed = true;
        }
    }
}

const fn scope_for(fast_too: bool) -> ScanScope {
    if fast_too {
        ScanScope::All
    } else {
        ScanScope::Slow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: PassView = PassView {
        full: false,
        contended: false,
        futile: false,
        pending: 0,
        worth: 10,
    };

    #[test]
    fn backs_off_when_quiet_and_comes_back_when_hot_pages_show() {
        let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
        let mut now = Nanos::ZERO;
        for _ in 0..200 {
            now = now + Nanos::from_millis(500);
            let _ = scan.tick(now, QUIET);
        }
        assert_eq!(scan.period(), Nanos::from_secs(8));
        for _ in 0..11 {
            scan.promoted();
        }
        for _ in 0..11 * FAULTS_FOR_PROMOTION {
            scan.faulted();
        }
        now = now + Nanos::from_secs(8);
        let action = scan.tick(now, QUIET);
        assert_eq!(
            action,
            Some(Action::Scan {
                scope: ScanScope::Slow,
                period: Nanos::from_secs(1)
            })
        );
    }

    #[test]
    fn a_pass_takes_as_long_as_the_tracker_needs() {
        let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
        scan.set_floor(Nanos::from_secs(100));
        assert_eq!(scan.period(), Nanos::from_secs(100));
        let busy = PassView {
            pending: 1,
            ..QUIET
        };
        for second in 1..100 {
            let _ = scan.tick(Nanos::from_secs(second), busy);
            assert_eq!(scan.last_pass(), Nanos::ZERO);
        }
        let _ = scan.tick(Nanos::from_secs(101), busy);
        let _ = scan.tick(Nanos::from_secs(202), busy);
        assert_eq!(scan.last_pass(), Nanos::from_secs(101));
    }

    #[test]
    fn fast_pages_are_armed_only_while_contended() {
        let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
        let full = PassView {
            full: true,
            contended: true,
            ..QUIET
        };
        let started = scan.tick(Nanos::ZERO, QUIET);
        assert!(matches!(
            started,
            Some(Action::Scan {
                scope: ScanScope::Slow,
                ..
            })
        ));
        let action = scan.tick(Nanos::from_secs(1), full);
        assert!(matches!(
            action,
            Some(Action::Scan {
                scope: ScanScope::All,
                ..
            })
        ));
        for second in [1, 2] {
            let now = Nanos::from_secs(second);
            assert!(!scan.ages_known(now));
            let _ = scan.tick(now, full);
            assert_eq!(scan.period(), Nanos::from_secs(1), "nothing to judge by yet");
        }
        assert!(scan.ages_known(Nanos::from_secs(3)));
        let _ = scan.tick(Nanos::from_secs(3), full);
        assert_eq!(scan.period(), Nanos::from_secs(2), "nothing was promoted");
        let _ = scan.tick(Nanos::from_secs(5), QUIET);
        assert!(!scan.ages_known(Nanos::from_secs(5)), "slow pages only");
    }

    #[test]
    fn a_tier_that_is_full_at_the_start_is_learned_at_once() {
        let mut scan = ScanControl::new(Nanos::from_secs(1), Nanos::from_secs(8));
        let full = PassView {
            full: true,
            ..QUIET
        };
        scan.set_floor(Nanos::from_secs(10));
        for second in 0..20 {
            let _ = scan.tick(Nanos::from_secs(second), full);
            assert_eq!(scan.scope, ScanScope::All);
            assert!(!scan.ages_known(Nanos::from_secs(second)));
        }
        assert!(scan.ages_known(Nanos::from_secs(20)));
        // Nothing waits for room after that: which fast pages are cold doesn't matter.
        for second in 20..40 {
            let _ = scan.tick(Nanos::from_secs(second), full);
        }
        assert_eq!(scan.scope, ScanScope::Slow);
    }
}
