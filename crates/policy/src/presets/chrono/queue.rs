// SPDX-License-Identifier: MIT OR Apache-2.0
//! The promotion queue (3.1.2).
//!
//! First in, first out; bounded in bytes. Who comes to a full queue displaces the entry with the longest captured idle
//! time, or is dropped itself where its own is the longest; dropped ones are counted.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_core::CHUNK_PAGES;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;

use crate::kit::pages::Key;
use crate::kit::pages::page_of;

/// A page that waits, and its captured idle time as a base page's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The page.
    pub page: PageRef,
    /// The longest of its rounds.
    pub idle: Nanos,
}

/// Bytes that an entry takes, about: it is in three trees.
pub const ENTRY_BYTES: usize = 112;

/// See the module.
#[derive(Debug)]
pub struct Queue {
    entries: BTreeMap<u64, Entry>,
    by_idle: BTreeSet<(Nanos, u64)>,
    places: BTreeMap<PageRef, u64>,
    next: u64,
    capacity: usize,
    /// Dropped.
    pub dropped: u64,
}

impl Queue {
    /// With so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self {
            entries: BTreeMap::new(),
            by_idle: BTreeSet::new(),
            places: BTreeMap::new(),
            next: 0,
            capacity: (bytes / ENTRY_BYTES).max(1),
            dropped: 0,
        }
    }

    /// Puts a page at the end, once; gives the page that is not in the queue because of it.
    pub fn push(&mut self, entry: Entry) -> Option<PageRef> {
        self.remove(entry.page);
        let mut out = None;
        if self.entries.len() >= self.capacity {
            self.dropped += 1;
            match self.by_idle.last().copied() {
                Some((longest, seq)) if longest > entry.idle => {
                    out = self.take(seq).map(|old| old.page);
                }
                _ => return Some(entry.page),
            }
        }
        self.entries.insert(self.next, entry);
        self.by_idle.insert((entry.idle, self.next));
        self.places.insert(entry.page, self.next);
        self.next += 1;
        out
    }

    /// Where it is full and has none of these 2 MiB: a page of them with so long an idle time, or a longer one, is dropped.
    #[must_use]
    pub fn refused(&self, key: Key) -> Option<Nanos> {
        if self.entries.len() < self.capacity {
            return None;
        }
        let first = page_of(key, 0, PageSize::Base4K);
        let last = page_of(key, CHUNK_PAGES - 1, PageSize::Giant1G);
        let mut here = self.places.range(first..=last);
        let longest = self.by_idle.last().map(|(idle, _)| *idle);
        longest.filter(|_| here.next().is_none())
    }

    /// The first, which stays.
    #[must_use]
    pub fn first(&self) -> Option<Entry> {
        self.entries.first_key_value().map(|(_, entry)| *entry)
    }

    /// Takes the first.
    pub fn pop(&mut self) -> Option<Entry> {
        let (seq, _) = self.entries.first_key_value()?;
        self.take(*seq)
    }

    /// Takes a page out.
    pub fn remove(&mut self, page: PageRef) {
        if let Some(seq) = self.places.get(&page) {
            self.take(*seq);
        }
    }

    fn take(&mut self, seq: u64) -> Option<Entry> {
        let entry = self.entries.remove(&seq)?;
        self.by_idle.remove(&(entry.idle, seq));
        self.places.remove(&entry.page);
        Some(entry)
    }

    /// Pages in it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many it takes.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(n: u64, idle: u64) -> Entry {
        let page = PageRef {
            pid: terrace_core::Pid(1),
            addr: terrace_core::Addr(n << 12),
            size: terrace_core::PageSize::Base4K,
        };
        Entry {
            page,
            idle: Nanos(idle),
        }
    }

    #[test]
    fn a_full_queue_says_what_it_refuses() {
        let key = (terrace_core::Pid(1), 0);
        let mut queue = Queue::new(2 * ENTRY_BYTES);
        queue.push(entry(600, 50));
        assert_eq!(queue.refused(key), None, "there is room");
        queue.push(entry(700, 90));
        assert_eq!(queue.refused(key), Some(Nanos(90)));
        assert_eq!(queue.refused((key.0, 1)), None, "has one of these");
        assert_eq!(queue.push(entry(7, 90)), Some(entry(7, 0).page));
        assert_eq!(queue.push(entry(7, 89)), Some(entry(700, 0).page));
        assert_eq!(queue.refused(key), None, "and of these now");
    }

    #[test]
    fn the_first_goes_first_and_the_longest_idle_goes_out() {
        let mut queue = Queue::new(3 * ENTRY_BYTES);
        for (n, idle) in [(1, 50), (2, 90), (3, 10)] {
            assert_eq!(queue.push(entry(n, idle)), None);
        }
        assert_eq!(queue.push(entry(4, 95)), Some(entry(4, 0).page));
        assert_eq!(queue.push(entry(5, 40)), Some(entry(2, 0).page));
        assert_eq!((queue.len(), queue.dropped), (3, 2));
        queue.remove(entry(3, 0).page);
        queue.remove(entry(9, 0).page);
        assert_eq!(queue.push(entry(1, 60)), None, "again, at the end");
        let order: Vec<Entry> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [entry(5, 40), entry(1, 60)]);
        assert!(queue.is_empty() && queue.by_idle.is_empty() && queue.places.is_empty());
    }
}
