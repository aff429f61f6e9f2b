// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the program's pages: those under a transaction and those with a shadow. Pure.
//!
//! A page is in at most one transaction. An entry is found by the page's *current* address: when
//! the program moves a mapping, the entry moves along; when it gives the page back, the entry is
//! dead, which its worker finds out at its next step under the lock.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::PageSize;

use crate::state::frames::Frame;

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Protected and being copied; the program reads it, and a write aborts.
    Copying,
    /// Moved out; the address is empty. Its bytes are at an address of ours.
    Out {
        /// Where the bytes are, all the time the page is out.
        content: u64,
        /// Which part is out, in bytes from the page's start: a huge page may go in pieces.
        from: u64,
        /// First byte behind it.
        to: u64,
    },
    /// Moved in and protected again; about to be compared with its shadow.
    Verifying,
}

/// A page under a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) addr: u64,
    pub(crate) size: PageSize,
    pub(crate) stage: Stage,
    /// The program wrote to it (or touched its mapping) since it was protected.
    pub(crate) dirty: bool,
    /// The program gave it back.
    pub(crate) dead: bool,
}

/// Names an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(usize);

/// A copy on the slower node of a promoted page, of 4 KiB (Nomad 3.2). It counts for as long as its page is
/// write-protected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shadow {
    pub(crate) frame: Frame,
    born: u64,
}

/// The pages the agent knows something about.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    entries: Vec<Option<Entry>>,
    unused: Vec<usize>,
    by_addr: BTreeMap<u64, usize>,
    shadows: BTreeMap<u64, Shadow>,
    /// Shadows by age, (born, address); some of them gone.
    ages: VecDeque<(u64, u64)>,
    births: u64,
}

/// The key of the item of a map that covers part of `start..end`, if any: keys are first
/// addresses, and items are up to 2 MiB long.
fn overlapping<T>(
    map: &BTreeMap<u64, T>,
    start: u64,
    end: u64,
    size: impl Fn(&T) -> u64,
) -> Option<u64> {
    let (key, item) = map.range(..end).next_back()?;
    (key + size(item) > start).then_some(*key)
}

impl Pages {
    /// Begins a transaction; `None` where one covers part of the page already.
    pub(crate) fn begin(&mut self, addr: u64, size: PageSize) -> Option<EntryId> {
        if self.entry_over(addr, addr + size.bytes()).is_some() {
            return None;
        }
        let entry = Entry {
            addr,
            size,
            stage: Stage::Copying,
            dirty: false,
            dead: false,
        };
        let index = self.unused.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        self.entries[index] = Some(entry);
        self.by_addr.insert(addr, index);
        Some(EntryId(index))
    }

    /// The entry, as long as its transaction runs.
    pub(crate) fn get(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id.0)?.as_mut()
    }

    /// Ends a transaction.
    pub(crate) fn end(&mut self, id: EntryId) -> Option<Entry> {
        let entry = self.entries.get_mut(id.0)?.take()?;
        self.unused.push(id.0);
        if self.by_addr.get(&entry.addr) == Some(&id.0) {
            self.by_addr.remove(&entry.addr);
        }
        Some(entry)
    }

    /// An entry that covers part of the range.
    pub(crate) fn entry_over(&self, start: u64, end: u64) -> Option<EntryId> {
        let size = |index: &usize| {
            self.entries
                .get(*index)
                .and_then(Option::as_ref)
                .map_or(0, |entry| entry.size.bytes())
        };
        let key = overlapping(&self.by_addr, start, end, size)?;
        self.by_addr.get(&key).copied().map(EntryId)
    }

    /// The pages of the range lose their protection: transactions that count on it are aborted.
    pub(crate) fn disturb(&mut self, start: u64, end: u64) {
        for entry in self.entries.iter_mut().flatten() {
            if entry.addr < end && entry.addr + entry.size.bytes() > start {
                entry.dirty = true;
            }
        }
    }

    /// The program gave the range back: its transactions are dead, its addresses free.
    pub(crate) fn kill(&mut self, start: u64, end: u64) {
        while let Some(id) = self.entry_over(start, end) {
            if let Some(entry) = self.get(id) {
                entry.dead = true;
                entry.dirty = true;
                let addr = entry.addr;
                self.by_addr.remove(&addr);
            }
        }
    }

    /// The program moved the range: transactions that only read are aborted, and all follow it.
    pub(crate) fn follow(&mut self, from: u64, to: u64, len: u64) {
        let mut moved = Vec::new();
        while let Some(id) = self.entry_over(from, from + len) {
            let Some(entry) = self.get(id) else { break };
            let old = entry.addr;
            entry.dirty = true;
            entry.addr = old.wrapping_sub(from).wrapping_add(to);
            moved.push((entry.addr, id.0));
            self.by_addr.remove(&old);
        }
        self.by_addr.extend(moved);
    }

    /// Everything that is out: (address, bytes, where the bytes are).
    pub(crate) fn out(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        self.entries.iter().flatten().filter_map(|entry| {
            let Stage::Out { content, from, to } = entry.stage else {
                return None;
            };
            (!entry.dead).then_some((entry.addr + from, to - from, content + from))
        })
    }

    /// How many transactions run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.entries.len() - self.unused.len()
    }

    /// Remembers a page's shadow.
    pub(crate) fn add_shadow(&mut self, addr: u64, frame: Frame) {
        self.births += 1;
        let born = self.births;
        let shadow = Shadow { frame, born };
        self.shadows.insert(addr, shadow);
        self.ages.push_back((born, addr));
        if self.ages.len() > 2 * self.shadows.len() + 1024 {
            let shadows = &self.shadows;
            self.ages
                .retain(|(born, addr)| shadows.get(addr).is_some_and(|s| s.born == *born));
        }
    }

    /// The shadow of this page.
    pub(crate) fn shadow(&self, addr: u64) -> Option<Shadow> {
        self.shadows.get(&addr).copied()
    }

    /// Shadows from an address on, in order of address: (page, frame).
    pub(crate) fn shadows_from(&self, addr: u64) -> impl Iterator<Item = (u64, u64)> {
        let behind = self.shadows.range(addr..);
        behind.map(|(page, shadow)| (*page, shadow.frame.addr))
    }

    /// Takes a shadow that covers part of the range.
    pub(crate) fn take_shadow_over(&mut self, start: u64, end: u64) -> Option<(u64, Shadow)> {
        let key = overlapping(&self.shadows, start, end, |_| PageSize::Base4K.bytes())?;
        self.shadows.remove_entry(&key)
    }

    /// Takes the oldest shadow.
    pub(crate) fn take_oldest_shadow(&mut self) -> Option<(u64, Shadow)> {
        while let Some((born, addr)) = self.ages.pop_front() {
            if self.shadows.get(&addr).is_some_and(|s| s.born == born) {
                return self.shadows.remove_entry(&addr);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeId;

    use super::*;

    const K4: PageSize = PageSize::Base4K;
    const M2: PageSize = PageSize::Huge2M;
    const HUGE: u64 = 2 << 20;

    fn frame(addr: u64) -> Frame {
        Frame {
            addr,
            node: NodeId(0),
        }
    }

    #[test]
    fn one_transaction_a_page_whatever_its_size() {
        let mut pages = Pages::default();
        let small = pages.begin(HUGE + 4096, K4).expect("free");
        assert_eq!(pages.begin(HUGE, M2), None);
        assert_eq!(pages.begin(HUGE + 4096, K4), None);
        assert!(pages.begin(HUGE + 8192, K4).is_some());
        pages.end(small);
        assert_eq!(pages.running(), 1);
        let huge = pages.begin(4 * HUGE, M2).expect("free");
        assert_eq!(pages.entry_over(5 * HUGE - 4096, 5 * HUGE), Some(huge));
        assert_eq!(pages.entry_over(5 * HUGE, 6 * HUGE), None);
    }

    #[test]
    fn entries_follow_their_mapping_and_die_with_it() {
        let mut pages = Pages::default();
        let ids: Vec<_> = (0..4)
            .filter_map(|n| pages.begin(0x10000 + n * 4096, K4))
            .collect();
        pages.follow(0x11000, 0x90000, 0x2000);
        assert_eq!(pages.entry_over(0x11000, 0x13000), None);
        assert_eq!(pages.entry_over(0x91000, 0x92000), Some(ids[2]));
        assert!(
            pages
                .get(ids[2])
                .is_some_and(|e| e.addr == 0x91000 && e.dirty)
        );
        pages.kill(0x90000, 0x91000);
        assert!(pages.get(ids[1]).is_some_and(|e| e.dead));
        // The address is free for a new mapping at once.
        let again = pages.begin(0x90000, K4).expect("free");
        pages.end(ids[1]);
        assert_eq!(pages.entry_over(0x90000, 0x91000), Some(again));
    }

    #[test]
    fn a_move_onto_a_neighbour_keeps_every_entry() {
        let mut pages = Pages::default();
        let a = pages.begin(0x1000, K4).expect("free");
        let b = pages.begin(0x2000, K4).expect("free");
        pages.follow(0x2000, 0x3000, 0x1000);
        pages.follow(0x1000, 0x2000, 0x1000);
        assert!(pages.get(a).is_some_and(|e| e.addr == 0x2000));
        assert!(pages.get(b).is_some_and(|e| e.addr == 0x3000));
        assert_eq!(pages.entry_over(0x2000, 0x3000), Some(a));
    }

    #[test]
    fn oldest_shadows_go_first_and_replaced_ones_are_not_counted() {
        let mut pages = Pages::default();
        for n in 0..5 {
            pages.add_shadow(n * 4096, frame(n));
        }
        assert_eq!(pages.take_shadow_over(0, 1).map(|(a, _)| a), Some(0));
        pages.add_shadow(0, frame(9));
        let order: Vec<_> = std::iter::from_fn(|| pages.take_oldest_shadow())
            .map(|(_, s)| s.frame.addr)
            .collect();
        assert_eq!(order, [1, 2, 3, 4, 9]);
    }

    #[test]
    fn only_pages_out_of_place_are_told_to_a_child() {
        let mut pages = Pages::default();
        let a = pages.begin(0x1000, K4).expect("free");
        let _b = pages.begin(0x2000, K4).expect("free");
        if let Some(entry) = pages.get(a) {
            entry.stage = Stage::Out {
                content: 0x7000,
                from: 0,
                to: 4096,
            };
        }
        let out: Vec<_> = pages.out().collect();
        assert_eq!(out, [(0x1000, 4096, 0x7000)]);
    }
}
