// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses of ours for pages of one size: which are empty, how they are made usable, and how they become empty again.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_sys::arena;
use terrace_sys::pagemap::PageKind;
use terrace_sys::pagemap::Pagemap;
use terrace_sys::uffd::Uffd;

use crate::ops::relocate::relocate;
use crate::state::area::Area;
use crate::state::layout::Layout;
use crate::state::layout::Zone;

const BASE: u64 = PageSize::Base4K.bytes();

/// All addresses for pages of one size.
#[derive(Debug)]
pub(super) struct Addresses {
    pub(super) size: PageSize,
    pub(super) slots: Area,
    /// Where what was in slots goes.
    pub(super) old: Area,
    /// By node; the position is the zone's index.
    pub(super) stages: Vec<(NodeId, Area)>,
    pub(super) pools: BTreeMap<NodeId, Vec<u64>>,
    /// Slots and old addresses whose pages are to be dropped, together with others.
    pub(super) dead: Vec<u64>,
}

/// What makes addresses usable, and empties them.
#[derive(Debug)]
pub(crate) struct Grounds {
    pub(crate) layout: &'static Layout,
    /// The program's context.
    pub(crate) uffd: Arc<Uffd>,
    /// Reports nothing.
    pub(crate) quiet: Uffd,
    pub(crate) pagemap: Arc<Pagemap>,
}

impl Addresses {
    pub(super) fn new(layout: &Layout, size: PageSize) -> Self {
        Self {
            size,
            slots: Area::new(layout.slots(size), size),
            old: Area::new(layout.old(size), size),
            stages: Vec::new(),
            pools: BTreeMap::new(),
            dead: Vec::new(),
        }
    }

    /// Addresses that old pages can be moved to, at most `want` in a row.
    pub(super) fn take_old(&mut self, grounds: &Grounds, want: u64) -> Result<(u64, u64), Errno> {
        self.old
            .take(want, |part| grounds.make(part, &grounds.quiet))
    }

    fn area_of(&mut self, addr: u64) -> Option<&mut Area> {
        let stages = self.stages.iter_mut().map(|(_, area)| area);
        [&mut self.slots, &mut self.old]
            .into_iter()
            .chain(stages)
            .find(|area| area.contains(addr))
    }

    /// The address is empty again.
    pub(super) fn give(&mut self, addr: u64) {
        if let Some(area) = self.area_of(addr) {
            area.give(addr);
        }
    }

    /// Gives a staging frame's memory back to the system.
    pub(super) fn drop_frame(&mut self, addr: u64) {
        debug_assert!(!self.slots.contains(addr), "that would be reported to us");
        // SAFETY: a staging page that nobody uses any more, in a range that reports no events.
        let _ = unsafe { arena::discard(addr, self.size.bytes()) };
        self.give(addr);
    }

    /// Empties an address by mapping it anew. One where that fails is not used again.
    pub(super) fn renew(&mut self, grounds: &Grounds, addr: u64) {
        let through = match addr {
            _ if self.slots.contains(addr) => Some(&*grounds.uffd),
            _ if self.old.contains(addr) => Some(&grounds.quiet),
            _ => None,
        };
        let part = Zone {
            start: addr,
            len: self.size.bytes(),
        };
        if through.is_some_and(|uffd| uffd.unregister(part.start, part.len).is_err()) {
            return;
        }
        // SAFETY: the caller gives up what is there; no userfaultfd reports it any more.
        let renewed = unsafe { grounds.layout.renew(part) };
        let register = |uffd: &Uffd| uffd.register(part.start, part.len, false);
        if renewed.is_ok() && through.is_none_or(|uffd| register(uffd).is_ok()) {
            self.give(addr);
        }
    }

    /// Drops what is dead, neighbours in one call.
    pub(super) fn bury_dead(&mut self, grounds: &Grounds) {
        let mut dead = std::mem::take(&mut self.dead);
        dead.sort_unstable();
        let bytes = self.size.bytes();
        let is_slot = |addr: u64| self.slots.contains(addr);
        let runs =
            dead.chunk_by(|one, next| *next == one + bytes && is_slot(*one) == is_slot(*next));
        let runs: Vec<(u64, u64)> = runs.map(|run| (run[0], run.len() as u64)).collect();
        for (first, pages) in runs {
            if self.slots.contains(first) {
                self.empty_slots(grounds, first, pages);
            } else {
                self.drop_old(grounds, first, pages);
            }
        }
    }

    /// Drops the pages of neighbouring slots, by way of old addresses.
    fn empty_slots(&mut self, grounds: &Grounds, first: u64, pages: u64) {
        let bytes = self.size.bytes();
        let (mut at, end) = (first, first + pages * bytes);
        let mut most = if bytes > BASE { 1 } else { pages };
        while at < end {
            let want = most.min((end - at) / bytes);
            let (to, room) = self.take_old(grounds, want).unwrap_or_default();
            let moved = match grounds.carry(at, to, room * bytes) / bytes {
                // A huge page in parts: it leaves page tables at both ends.
                1 if bytes > BASE && !grounds.pagemap.kind(to).is_ok_and(|kind| kind.huge) => 0,
                moved => moved,
            };
            self.drop_old(grounds, to, moved);
            (0..moved).for_each(|page| self.give(at + page * bytes));
            (moved..room).for_each(|page| self.unused(grounds, to + page * bytes));
            at += moved * bytes;
            match moved {
                // A call for many can fail because of one.
                0 if want > 1 => most = 1,
                0 => {
                    self.renew(grounds, at);
                    at += bytes;
                }
                _ => {}
            }
        }
    }

    /// Nothing was moved there. Still it need not be empty: mlockall(2) fills what is mapped.
    pub(super) fn unused(&mut self, grounds: &Grounds, old: u64) {
        let empty = self.size == PageSize::Base4K
            && grounds.pagemap.kind(old).is_ok_and(PageKind::is_empty);
        if empty {
            self.give(old);
        } else {
            self.renew(grounds, old);
        }
    }

    /// Drops neighbouring pages at old addresses.
    fn drop_old(&mut self, grounds: &Grounds, first: u64, pages: u64) {
        let bytes = self.size.bytes();
        if pages == 0 {
            return;
        }
        // SAFETY: nothing refers to old pages that are dead, and their userfaultfd reports nothing.
        let dropped = unsafe { arena::discard(first, pages * bytes) }.is_ok();
        for page in (0..pages).map(|page| first + page * bytes) {
            if dropped {
                self.give(page);
            } else {
                // Locked.
                self.renew(grounds, page);
            }
        }
    }
}

impl Grounds {
    /// Maps a part that is to be a destination of moves through that context.
    pub(super) fn make(&self, part: Zone, through: &Uffd) -> Result<(), Errno> {
        self.layout.commit(part)?;
        through.register(part.start, part.len, false)
    }

    /// Moves what is in slots to old addresses; how many bytes of it.
    pub(super) fn carry(&self, slot: u64, to: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        // SAFETY: both are ours, `to` empty, and nothing refers to what is in the slot by its address.
        let moved = unsafe { relocate(&self.quiet, &self.pagemap, (to, slot), len) };
        moved.map_or(0, |moved| moved.bytes)
    }
}

#[cfg(test)]
#[path = "addresses_tests.rs"]
mod tests;
