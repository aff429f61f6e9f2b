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

/// Migration pending queue (MPQ): hottest first, ties in order of arrival. One queue for each
/// class of heat, and a bit for each that is not empty.
#[derive(Debug)]
pub struct Pending {
    classes: Vec<VecDeque<PageRef>>,
    filled: [u64; 4],
    len: usize,
    capacity: usize,
    /// Pages turned away because hotter ones filled the queue.
    pub dropped: u64,
}

/// A class's queue that has run empty keeps room for so many pages at most, so that the bound in
/// bytes is one.
const KEPT: usize = 1024;

impl Pending {
    /// For at most `bytes` of entries, at least one.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let capacity = (bytes / size_of::<PageRef>()).max(1);
        Self {
            classes: vec![VecDeque::new(); 256],
            filled: [0; 4],
            len: 0,
            capacity,
            dropped: 0,
        }
    }

    /// Adds a page with the class of its idle time; gives the coldest where there is no room.
    pub fn push(&mut self, idle_class: u8, page: PageRef) -> Option<PageRef> {
        self.classes[usize::from(idle_class)].push_back(page);
        self.filled[usize::from(idle_class / 64)] |= 1 << (idle_class % 64);
        self.len += 1;
        if self.len <= self.capacity {
            return None;
        }
        self.dropped += 1;
        self.pop_coldest()
    }

    fn hottest_class(&self) -> Option<u8> {
        let (word, bits) = (0_u8..).zip(self.filled).find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + low_byte(bits.trailing_zeros()))
    }

    fn coldest_class(&self) -> Option<u8> {
        let (word, bits) = (0_u8..4)
            .zip(self.filled)
            .rev()
            .find(|(_, bits)| *bits != 0)?;
        Some(word * 64 + low_byte(bits.ilog2()))
    }

    fn taken_from(&mut self, class: u8) {
        self.len -= 1;
        let queue = &mut self.classes[usize::from(class)];
        if queue.is_empty() {
            queue.shrink_to(KEPT);
            self.filled[usize::from(class / 64)] &= !(1 << (class % 64));
        }
    }

    /// The hottest and its class.
    #[must_use]
    pub fn peek(&self) -> Option<(u8, PageRef)> {
        let class = self.hottest_class()?;
        let page = self.classes[usize::from(class)].front()?;
        Some((class, *page))
    }

    /// Takes the hottest.
    pub fn pop(&mut self) -> Option<(u8, PageRef)> {
        let class = self.hottest_class()?;
        let page = self.classes[usize::from(class)].pop_front()?;
        self.taken_from(class);
        Some((class, page))
    }

    /// Takes the coldest, of equally cold ones the last to come.
    pub fn pop_coldest(&mut self) -> Option<PageRef> {
        let class = self.coldest_class()?;
        let page = self.classes[usize::from(class)].pop_back()?;
        self.taken_from(class);
        Some(page)
    }

    /// Takes the coldest if it is colder than that class.
    pub fn pop_colder_than(&mut self, class: u8) -> Option<PageRef> {
        self.coldest_class().filter(|&coldest| coldest > class)?;
        self.pop_coldest()
    }

    /// The sum of a figure that all pages of a class share.
    pub fn sum(&self, of: impl Fn(u8) -> u64) -> u64 {
        (0_u8..=255)
            .zip(&self.classes)
            .filter(|(_, queue)| !queue.is_empty())
            .map(|(class, queue)| of(class).saturating_mul(queue.len() as u64))
            .fold(0, u64::saturating_add)
    }

    /// How many wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// A bit's number in a word.
const fn low_byte(bit: u32) -> u8 {
    bit.to_le_bytes()[0]
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
        /// Whatever is pushed and taken, the queue does what a sorted list does: the hottest that
        /// fit are kept, first come first served among equals, and every other one is counted.
        #[test]
        fn pending_is_a_sorted_list(
            steps in prop::collection::vec((any::<u8>(), 0_u8..6), 0..300),
            room in 1_usize..50,
        ) {
            let mut queue = Pending::new(room * size_of::<PageRef>());
            let mut list: Vec<(u8, PageRef)> = Vec::new();
            let mut dropped = 0;
            for (n, &(class, step)) in (0..).zip(&steps) {
                match step {
                    0 => {
                        let want = (!list.is_empty()).then(|| list.remove(0));
                        prop_assert_eq!(queue.peek(), want);
                        prop_assert_eq!(queue.pop(), want);
                    }
                    1 => prop_assert_eq!(queue.pop_coldest(), list.pop().map(|(_, page)| page)),
                    _ => {
                        let at = list.partition_point(|(c, _)| *c <= class);
                        list.insert(at, (class, page(n)));
                        let over = (list.len() > room).then(|| list.pop().unwrap().1);
                        dropped += u64::from(over.is_some());
                        prop_assert_eq!(queue.push(class, page(n)), over);
                    }
                }
                prop_assert_eq!(queue.len(), list.len());
            }
            prop_assert_eq!(queue.dropped, dropped);
            let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(rest, list);
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
