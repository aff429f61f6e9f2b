// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad's two queues (3.1, figure 4): candidates that were referenced once, pages that wait for
//! their transaction.
//!
//! Both are bounded in bytes and count what they turn away. The candidate queue is first in, first
//! out: the oldest goes. The pending queue keeps the hottest: a queue that drops silently at its
//! end loses exactly the hot pages, because they all fault right after a scan.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::PageRef;

/// Promotion candidate queue (PCQ).
#[derive(Debug)]
pub struct Candidates {
    queue: VecDeque<(Nanos, PageRef)>,
    capacity: usize,
    /// Entries that were pushed out by younger ones.
    pub dropped: u64,
}

impl Candidates {
    /// For at most `bytes` of entries, at least one.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let capacity = (bytes / size_of::<(Nanos, PageRef)>()).max(1);
        Self {
            queue: VecDeque::new(),
            capacity,
            dropped: 0,
        }
    }

    /// Adds a page; gives the one that had to go.
    pub fn push(&mut self, now: Nanos, page: PageRef) -> Option<PageRef> {
        self.queue.push_back((now, page));
        if self.queue.len() <= self.capacity {
            return None;
        }
        self.dropped += 1;
        self.queue.pop_front().map(|(_, page)| page)
    }

    /// Takes the oldest page if it was added at or before `until`.
    pub fn expire(&mut self, until: Nanos) -> Option<PageRef> {
        if self.queue.front()?.0 > until {
            return None;
        }
        self.queue.pop_front().map(|(_, page)| page)
    }

    /// How many there are (including those that moved on and wait for their expiry).
    #[must_use]
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Migration pending queue (MPQ): hottest first, ties in order of arrival.
#[derive(Debug)]
pub struct Pending {
    by_heat: BTreeSet<(u8, u64, PageRef)>,
    arrivals: u64,
    capacity: usize,
    /// Pages turned away because hotter ones filled the queue.
    pub dropped: u64,
}

impl Pending {
    /// For at most `bytes` of entries, at least one.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let capacity = (bytes / size_of::<(u8, u64, PageRef)>()).max(1);
        Self {
            by_heat: BTreeSet::new(),
            arrivals: 0,
            capacity,
            dropped: 0,
        }
    }

    /// Adds a page with the class of its idle time; gives the coldest where there is no room.
    pub fn push(&mut self, idle_class: u8, page: PageRef) -> Option<PageRef> {
        self.arrivals += 1;
        self.by_heat.insert((idle_class, self.arrivals, page));
        if self.by_heat.len() <= self.capacity {
            return None;
        }
        self.dropped += 1;
        self.by_heat.pop_last().map(|(_, _, page)| page)
    }

    /// The hottest and its class.
    #[must_use]
    pub fn peek(&self) -> Option<(u8, PageRef)> {
        self.by_heat.first().map(|&(class, _, page)| (class, page))
    }

    /// Takes the hottest.
    pub fn pop(&mut self) -> Option<(u8, PageRef)> {
        self.by_heat
            .pop_first()
            .map(|(class, _, page)| (class, page))
    }

    /// Takes the coldest.
    pub fn pop_coldest(&mut self) -> Option<PageRef> {
        self.by_heat.pop_last().map(|(_, _, page)| page)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_heat.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_heat.is_empty()
    }
}

/// Aborted transactions that wait for their next try.
#[derive(Debug, Default)]
pub struct Retries {
    by_time: BTreeSet<(Nanos, PageRef)>,
}

impl Retries {
    /// Tries the page again at `when`.
    pub fn push(&mut self, when: Nanos, page: PageRef) {
        self.by_time.insert((when, page));
    }

    /// Takes a page whose time has come.
    pub fn due(&mut self, now: Nanos) -> Option<PageRef> {
        if self.by_time.first()?.0 > now {
            return None;
        }
        self.by_time.pop_first().map(|(_, page)| page)
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_time.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_time.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use terrace_core::Addr;
    use terrace_core::PageSize;
    use terrace_core::Pid;

    use super::*;

    fn page(n: u64) -> PageRef {
        PageRef {
            pid: Pid(1),
            addr: Addr(n << 12),
            size: PageSize::Base4K,
        }
    }

    proptest! {
        /// However many are pushed, the hottest that fit are kept, in order, and every other one
        /// is counted.
        #[test]
        fn pending_keeps_the_hottest(classes in prop::collection::vec(any::<u8>(), 0..200), room in 1_usize..50) {
            let mut queue = Pending::new(room * size_of::<(u8, u64, PageRef)>());
            for (n, class) in (0..).zip(&classes) { queue.push(*class, page(n)); }
            let mut want = classes.clone();
            want.sort_unstable();
            want.truncate(room);
            let dropped = queue.dropped;
            let got: Vec<u8> = std::iter::from_fn(|| queue.pop()).map(|(class, _)| class).collect();
            prop_assert_eq!(dropped, classes.len().saturating_sub(room) as u64);
            prop_assert_eq!(got, want);
        }
    }

    #[test]
    fn candidates_expire_in_order_and_the_oldest_goes_first() {
        let mut queue = Candidates::new(2 * size_of::<(Nanos, PageRef)>());
        assert_eq!(queue.push(Nanos(1), page(1)), None);
        assert_eq!(queue.push(Nanos(2), page(2)), None);
        assert_eq!(queue.push(Nanos(3), page(3)), Some(page(1)));
        assert_eq!(queue.dropped, 1);
        assert_eq!(queue.expire(Nanos(1)), None);
        assert_eq!(queue.expire(Nanos(2)), Some(page(2)));
        assert_eq!(queue.expire(Nanos(2)), None);
    }
}
