// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program's pages that are under a transaction. Pure.
//!
//! A page is in at most one transaction. An entry is found by the page's *current* address: when
//! the program moves a mapping, the entry moves along; when it gives the page back, the entry is
//! dead, which its worker finds out at its next step under the lock.
//!
//! The program can do either to a part of a huge page. A transaction that has not taken the page out ends
//! there: the page is where it was. A page that is out has its only bytes with us: its entry falls into pieces,
//! and each that the program still has comes in again where the program has it then.

use std::collections::BTreeMap;

use terrace_core::PageSize;

use crate::state::pieces::Piece;
use crate::state::pieces::overlapping;

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
    /// The program gave it back: all of it, if it is out, else any part.
    pub(crate) dead: bool,
}

impl Entry {
    const fn is_out(&self) -> bool {
        matches!(self.stage, Stage::Out { .. })
    }
}

/// Names an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId(usize);

/// The pages under a transaction.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    entries: Vec<Option<Entry>>,
    unused: Vec<usize>,
    /// By address: whose, and which part. One piece is all of a page, unless the program cut it.
    by_addr: BTreeMap<u64, (usize, Piece)>,
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
        let (len, at) = (size.bytes(), 0);
        self.by_addr.insert(addr, (index, Piece { addr, len, at }));
        Some(EntryId(index))
    }

    /// The entry, as long as its transaction runs.
    pub(crate) fn get(&mut self, id: EntryId) -> Option<&mut Entry> {
        self.entries.get_mut(id.0)?.as_mut()
    }

    /// Ends a transaction.
    pub(crate) fn end(&mut self, id: EntryId) -> Option<Entry> {
        let whole = self.whole(id);
        let entry = self.entries.get_mut(id.0)?.take()?;
        self.unused.push(id.0);
        if whole.is_some() {
            self.by_addr.remove(&entry.addr);
        } else if !entry.dead {
            self.by_addr.retain(|_, (index, _)| *index != id.0);
        }
        Some(entry)
    }

    /// An entry that covers part of the range.
    pub(crate) fn entry_over(&self, start: u64, end: u64) -> Option<EntryId> {
        let key = overlapping(&self.by_addr, start, end, |(_, piece)| piece.len)?;
        self.by_addr.get(&key).map(|(index, _)| EntryId(*index))
    }

    /// The pages of the range lose their protection: transactions that count on it are aborted.
    pub(crate) fn disturb(&mut self, start: u64, end: u64) {
        for entry in self.entries.iter_mut().flatten() {
            if entry.addr < end && entry.addr + entry.size.bytes() > start {
                entry.dirty = true;
            }
        }
    }

    /// The program gave the range back: what lies in it is nobody's, its addresses free.
    pub(crate) fn kill(&mut self, start: u64, end: u64) {
        for (index, _) in self.cut(start, end) {
            self.lose_part(index);
        }
    }

    /// The program moved the range: transactions that only read are aborted, and all follow it.
    pub(crate) fn follow(&mut self, from: u64, to: u64, len: u64) {
        let mut moved = Vec::new();
        for (index, piece) in self.cut(from, from + len) {
            let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) else {
                continue;
            };
            let addr = piece.addr.wrapping_sub(from).wrapping_add(to);
            if piece.len == entry.size.bytes() {
                entry.addr = addr;
            } else if !entry.is_out() {
                self.lose_part(index);
                continue;
            }
            entry.dirty = true;
            moved.push((addr, (index, Piece { addr, ..piece })));
        }
        self.by_addr.extend(moved);
    }

    /// Takes what lies in the range from its entries.
    fn cut(&mut self, start: u64, end: u64) -> Vec<(usize, Piece)> {
        let mut inside = Vec::new();
        while let Some(key) = overlapping(&self.by_addr, start, end, |(_, piece)| piece.len)
            && let Some((index, piece)) = self.by_addr.remove(&key)
        {
            let [before, part, behind] = piece.cut(start, end);
            for rest in before.into_iter().chain(behind) {
                self.by_addr.insert(rest.addr, (index, rest));
            }
            inside.extend(part.map(|part| (index, part)));
        }
        inside
    }

    /// Part of a page is not its entry's any more. Of a page that is out the rest has to come in again; a
    /// page that is in place is simply left alone.
    fn lose_part(&mut self, index: usize) {
        let Some(entry) = self.entries.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        entry.dirty = true;
        if entry.is_out() {
            entry.dead = !self.by_addr.values().any(|(whose, _)| *whose == index);
        } else {
            entry.dead = true;
            self.by_addr.retain(|_, (whose, _)| *whose != index);
        }
    }

    /// The piece that is all of the page, unless the program cut it.
    fn whole(&self, id: EntryId) -> Option<Piece> {
        let entry = self.entries.get(id.0)?.as_ref()?;
        let (index, piece) = self.by_addr.get(&entry.addr)?;
        (*index == id.0 && piece.len == entry.size.bytes()).then_some(*piece)
    }

    /// What the program still has of the page, and where.
    pub(crate) fn pieces(&self, id: EntryId) -> impl Iterator<Item = Piece> {
        let whole = self.whole(id);
        let of_it = move |(index, piece): &(usize, Piece)| (*index == id.0).then_some(*piece);
        let cut = whole.is_none().then(|| self.by_addr.values());
        whole
            .into_iter()
            .chain(cut.into_iter().flatten().filter_map(of_it))
    }

    /// The first part of the page that is out and has a place to come in again.
    pub(crate) fn first_out(&self, id: EntryId) -> Option<Piece> {
        let Stage::Out { from, to, .. } = self.entries.get(id.0)?.as_ref()?.stage else {
            return None;
        };
        self.pieces(id)
            .filter_map(|piece| piece.within(from, to))
            .min_by_key(|piece| piece.at)
    }

    /// Everything that is out, and at which address of ours its bytes are.
    pub(crate) fn out(&self) -> impl Iterator<Item = Piece> {
        self.by_addr.values().filter_map(|(index, piece)| {
            let entry = self.entries.get(*index)?.as_ref()?;
            let Stage::Out { content, from, to } = entry.stage else {
                return None;
            };
            let part = piece.within(from, to)?;
            let at = content + part.at;
            Some(Piece { at, ..part })
        })
    }

    /// Pages that are out, and where their bytes are.
    pub(crate) fn all_out(&self) -> impl Iterator<Item = (EntryId, u64)> {
        let entries = self.entries.iter().enumerate();
        entries.filter_map(|(index, entry)| match entry.as_ref()?.stage {
            Stage::Out { content, .. } => Some((EntryId(index), content)),
            Stage::Copying | Stage::Verifying => None,
        })
    }

    /// How many transactions run.
    #[cfg(test)]
    pub(crate) fn running(&self) -> usize {
        self.entries.len() - self.unused.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const K4: PageSize = PageSize::Base4K;
    const M2: PageSize = PageSize::Huge2M;
    const HUGE: u64 = 2 << 20;

    fn piece(addr: u64, len: u64, at: u64) -> Piece {
        Piece { addr, len, at }
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
        assert_eq!(out, [piece(0x1000, 4096, 0x7000)]);
    }

    /// A huge page of which all but the first two base pages are out.
    fn huge_out(pages: &mut Pages) -> EntryId {
        let id = pages.begin(HUGE, M2).expect("free");
        if let Some(entry) = pages.get(id) {
            let (from, to) = (0x2000, HUGE);
            let content = 0x70_0000_0000;
            entry.stage = Stage::Out { content, from, to };
        }
        id
    }

    #[test]
    fn of_a_page_that_is_out_the_rest_comes_in_again() {
        let mut pages = Pages::default();
        let id = huge_out(&mut pages);
        pages.kill(HUGE + 0x4000, HUGE + 0x5000);
        assert_eq!(pages.entry_over(HUGE + 0x4000, HUGE + 0x5000), None);
        pages.follow(HUGE + 0x8000, 0x10_0000_0000, 0x1000);
        assert!(pages.get(id).is_some_and(|e| !e.dead && e.dirty));
        let out: Vec<_> = pages.out().collect();
        let bytes = 0x70_0000_0000;
        let expected = [
            piece(HUGE + 0x2000, 0x2000, bytes + 0x2000),
            piece(HUGE + 0x5000, 0x3000, bytes + 0x5000),
            piece(HUGE + 0x9000, HUGE - 0x9000, bytes + 0x9000),
            piece(0x10_0000_0000, 0x1000, bytes + 0x8000),
        ];
        assert_eq!(out, expected);
        // In order of the page, wherever its parts are.
        let mut order = Vec::new();
        while let Some(next) = pages.first_out(id) {
            order.push((next.addr, next.at));
            if let Some(Stage::Out { from, .. }) = pages.get(id).map(|e| &mut e.stage) {
                *from = next.at + next.len;
            }
        }
        assert_eq!(
            order,
            [
                (HUGE + 0x2000, 0x2000),
                (HUGE + 0x5000, 0x5000),
                (0x10_0000_0000, 0x8000),
                (HUGE + 0x9000, 0x9000)
            ]
        );
        assert!(pages.end(id).is_some());
        assert_eq!(pages.entry_over(0, u64::MAX), None);
    }

    #[test]
    fn a_page_that_is_out_is_dead_when_nothing_of_it_is_left() {
        let mut pages = Pages::default();
        let id = huge_out(&mut pages);
        pages.kill(HUGE + 0x1000, 2 * HUGE);
        assert!(pages.get(id).is_some_and(|e| !e.dead));
        assert_eq!(pages.first_out(id), None);
        pages.kill(0, HUGE + 0x1000);
        assert!(pages.get(id).is_some_and(|e| e.dead));
    }

    #[test]
    fn a_page_in_place_of_which_a_part_changed_is_left_alone() {
        for moves in [false, true] {
            let mut pages = Pages::default();
            let id = pages.begin(HUGE, M2).expect("free");
            if moves {
                pages.follow(HUGE + 0x4000, 8 * HUGE, 0x1000);
            } else {
                pages.kill(HUGE + 0x4000, HUGE + 0x5000);
            }
            assert!(pages.get(id).is_some_and(|e| e.dead && e.dirty));
            assert_eq!(pages.entry_over(0, u64::MAX), None);
        }
    }
}
