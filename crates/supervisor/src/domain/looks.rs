// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a domain looks at what does not tell by itself.
//!
//! A look takes a processor from a program, and some of what its caches and its TLB hold. So where nothing happens there is
//! hardly any:
//!
//! ```text
//! trackers   TRACK after a look that found something, or where one of them does not say that it has something;   else when they say so
//! memory     with the trackers, as what a policy makes of them depends on it, but MEMORY after the last one at the earliest;
//!            MEMORY after one that found a change, or after an order;   else after twice as long as before, AT_REST at most
//! ```

use terrace_core::Nanos;

/// Faults and readings carry their own times, so nothing but the age of a decision depends on it, and many at a
/// time are cheaper: neighbours share what has to be looked up. For samples, at most.
const TRACK: Nanos = Nanos::from_millis(100);
/// For the nodes' free memory.
const MEMORY: Nanos = Nanos::from_millis(200);
const AT_REST: Nanos = Nanos::from_secs(10);

/// At the trackers.
#[derive(Debug)]
pub(super) struct TrackLooks {
    due: Option<Nanos>,
}

impl TrackLooks {
    pub(super) const fn new(now: Nanos) -> Self {
        Self { due: Some(now) }
    }

    /// Whether it is time, though none has said that it is.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.due.is_some_and(|due| now >= due)
    }

    /// They were looked at; `wait` if there was nothing and each says when there is.
    pub(super) fn looked(&mut self, now: Nanos, wait: bool) {
        self.due = (!wait).then(|| now + TRACK);
    }

    /// When it is time, if nobody is waited for.
    pub(super) const fn due(&self) -> Option<Nanos> {
        self.due
    }
}

/// At the nodes' free memory.
#[derive(Debug)]
pub(super) struct MemoryLooks {
    last: Nanos,
    due: Nanos,
    interval: Nanos,
}

impl MemoryLooks {
    pub(super) const fn new(now: Nanos) -> Self {
        Self {
            last: now,
            due: now,
            interval: MEMORY,
        }
    }

    pub(super) fn is_due(&self, now: Nanos) -> bool {
        now >= self.due
    }

    /// It was looked at, and had changed since the last time or not.
    pub(super) fn looked(&mut self, now: Nanos, changed: bool) {
        self.interval = if changed {
            MEMORY
        } else {
            Nanos(2 * self.interval.0).min(AT_REST)
        };
        (self.last, self.due) = (now, now + self.interval);
    }

    /// The trackers are looked at, or somebody is new.
    pub(super) fn wanted(&mut self) {
        self.due = self.due.min(self.last + MEMORY);
    }

    /// Orders were given that change it.
    pub(super) fn ordered(&mut self, now: Nanos) {
        self.interval = MEMORY;
        self.due = self.due.min(now + MEMORY);
    }

    pub(super) const fn due(&self) -> Nanos {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Nanos {
        Nanos::from_millis(ms)
    }

    #[test]
    fn trackers_that_say_when_there_is_something_are_waited_for() {
        let mut looks = TrackLooks::new(ms(0));
        assert!(looks.is_due(ms(0)));
        looks.looked(ms(0), false);
        assert!(!looks.is_due(ms(99)) && looks.is_due(ms(100)));
        looks.looked(ms(100), true);
        assert!(!looks.is_due(ms(100_000)) && looks.due().is_none());
        looks.looked(ms(100_000), false);
        assert_eq!(looks.due(), Some(ms(100_100)));
    }

    #[test]
    fn memory_that_does_not_change_is_hardly_looked_at() {
        let (mut looks, mut now, mut count) = (MemoryLooks::new(ms(0)), ms(0), 0);
        while now < Nanos::from_secs(62) {
            looks.looked(now, false);
            (now, count) = (looks.due(), count + 1);
        }
        // After 0.4, 1.2, 2.8, 6 and 12.4 s, and then each 10 s.
        assert_eq!(count, 10);
        assert_eq!(looks.due(), ms(62_400));
    }

    #[test]
    fn it_is_looked_at_soon_where_something_happens() {
        let quiet = || {
            let mut looks = MemoryLooks::new(ms(0));
            (0..9).for_each(|_| looks.looked(ms(0), false));
            looks
        };
        let mut looks = quiet();
        looks.ordered(ms(100));
        assert_eq!(looks.due(), ms(300));
        looks.ordered(ms(250));
        assert_eq!(looks.due(), ms(300), "no later than without");
        looks.looked(ms(300), true);
        assert_eq!(looks.due(), ms(500));
        let mut looks = quiet();
        looks.wanted();
        assert!(!looks.is_due(ms(199)) && looks.is_due(ms(200)));
        looks.looked(ms(5_000), false);
        looks.wanted();
        assert_eq!(looks.due(), ms(5_200));
    }
}
