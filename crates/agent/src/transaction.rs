// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactional page migration: a batch of pages to another node, accessible nearly all the time.
//!
//! 1. *Begin* (lock): each page gets an entry and is write-protected.
//! 2. *Copy* (no lock): to a frame on the target node, while the program reads on. A write faults,
//!    marks the entry dirty and goes on: that page is aborted, nothing changed. Or, if the
//!    supervisor said so, the write waits until the commit, and nothing is aborted (HeMem 3.4).
//! 3. *Commit* (lock, few pages at a time): the old page is moved out to a slot. From here on
//!    nobody can write it, so it is compared with the copy: a device that wrote through a pin
//!    taken before the protection, and gave it back since, trips no fault. Equal: the copy is moved
//!    in; else the old page goes back. A pin still held makes the kernel refuse the move.
//! 4. *Verify* (no lock), where the old page is to be the shadow: a page that was moved in is
//!    writable until it is protected again. So after protecting it is compared with the old page,
//!    and only if nothing slipped in, the shadow counts. A device pin taken in that gap and used
//!    later is not seen here; hence demotion compares once more ([`crate::demote`]).

use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::self_memory;
use terrace_sys::self_memory::PIECES_MAX;
use terrace_sys::self_memory::Piece;
use terrace_sys::uffd::Protected;

use crate::agent::Agent;
use crate::agent::State;
use crate::item::Item;
use crate::scratch::Scratch;
use crate::team::Work;

/// Bytes that are out of place at the same time at most (but always one page).
const COMMIT_BYTES: u64 = 64 << 10;
/// Changes of mappings that are waited out before a page is left for later.
const PROOFS: u32 = 8;

impl Agent {
    /// Runs a batch of pages of one size; afterwards each item has an outcome.
    pub(crate) fn migrate(&self, items: &mut [Item], scratch: &mut Scratch) {
        let base = items.iter().all(|item| item.size == PageSize::Base4K);
        if base && !self.options.compare_base {
            self.migrate_base(items, scratch);
            return;
        }
        items.sort_unstable_by_key(|item| item.addr);
        self.look(items);
        // Where writers wait for the commit, no page waits for another's copy.
        let together = if self.options.writers_wait && !base {
            1
        } else {
            items.len().max(1)
        };
        for batch in items.chunks_mut(together) {
            self.migrate_batch(batch, scratch);
        }
    }

    fn migrate_batch(&self, items: &mut [Item], scratch: &mut Scratch) {
        self.stage(items);
        self.begin(items);
        if !self.copies_outside(items) {
            self.copy(items);
        }
        let bytes = items.first().map_or(1, Item::bytes);
        let step = usize::try_from((COMMIT_BYTES / bytes).max(1)).unwrap_or(1);
        for chunk in items.chunks_mut(step) {
            self.commit(chunk);
            self.verify(chunk, scratch);
        }
        self.unstage(items);
    }

    /// Whether the pages are copied while they are out, where nobody can write them.
    fn copies_outside(&self, items: &[Item]) -> bool {
        self.options.streaming && items.iter().all(|item| item.size == PageSize::Huge2M)
    }

    fn begin(&self, items: &mut [Item]) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for item in items.iter_mut().filter(|item| item.is_open()) {
            if let Err(why) = self.admit(state, item) {
                item.outcome = Some(why);
            }
        }
        let mut at = 0;
        while at < items.len() {
            if items[at].id.is_none() {
                at += 1;
                continue;
            }
            let mut run = 1;
            while items
                .get(at + run)
                .is_some_and(|next| next.id.is_some() && next.addr == items[at + run - 1].end())
            {
                run += 1;
            }
            let len = items[at].bytes() * run as u64;
            // Where the run as a whole does not hold together any more, each page may.
            let together = self.protect(state, items[at].addr, len);
            for item in &mut items[at..at + run] {
                if !together && !self.protect(state, item.addr, item.bytes()) {
                    self.abort(state, item, Outcome::Gone);
                }
            }
            at += run;
        }
    }

    /// Makes an entry for a page, if it may have one.
    pub(crate) fn admit(&self, state: &mut State, item: &mut Item) -> Result<(), Outcome> {
        let (start, end) = (item.addr, item.end());
        if self.is_doomed(state, start, end) {
            return Err(Outcome::NotManaged);
        }
        let State { ranges, maps, .. } = state;
        ranges.ensure(&self.uffd, maps, start, end)?;
        let id = state.pages.begin(start, item.size).ok_or(Outcome::Busy)?;
        item.id = Some(id);
        // An old shadow is of the node the page is on no more.
        self.drop_shadows(state, start, end);
        self.prove(state, item)
    }

    /// Sees that the page's mapping really is registered, by lifting a protection that it does not have.
    /// The record may be out of date: `shmat` with `SHM_REMAP` replaces a mapping and tells nobody.
    /// A page that was moved out of one that is not registered could not be brought in again.
    fn prove(&self, state: &mut State, item: &mut Item) -> Result<(), Outcome> {
        for _ in 0..PROOFS {
            match self.uffd.write_protect(item.addr, item.bytes(), false) {
                Ok(Protected::Done) => return Ok(()),
                Ok(Protected::Again) => self.drain_and_yield(state),
                // The next order for a page of it finds out what is there and registers that.
                Ok(Protected::NotThere) | Err(_) => {
                    state.ranges.unmap(item.addr, item.end());
                    break;
                }
            }
        }
        item.id.take().and_then(|id| state.pages.end(id));
        Err(Outcome::Busy)
    }

    /// Copies every page to its frame; a page that cannot be read is aborted.
    fn copy(&self, items: &mut [Item]) {
        if items.iter().all(|item| item.size == PageSize::Huge2M) {
            for item in items.iter_mut() {
                let (Some(_), Some(to)) = (item.id, item.staged) else {
                    continue;
                };
                // SAFETY: the frame is present, writable, and belongs to this item alone.
                let copied = unsafe { self.team.run(Work::CopyIn, item.addr, to, item.bytes()) };
                if !copied {
                    self.abort(&mut self.state.lock(), item, Outcome::Busy);
                }
            }
            return;
        }
        let mut at = 0;
        while at < items.len() {
            let mut pieces = Vec::new();
            let mut whose = Vec::new();
            while let Some(item) = items.get(at)
                && pieces.len() < PIECES_MAX
            {
                if let (Some(_), Some(to)) = (item.id, item.staged) {
                    pieces.push(Piece {
                        from: item.addr,
                        to,
                        len: item.bytes(),
                    });
                    whose.push(at);
                }
                at += 1;
            }
            let mut from = 0;
            while from < pieces.len() {
                // SAFETY: the frames are present, writable, and belong to these items alone.
                let copied = unsafe { self_memory::copy_in(&pieces[from..]) };
                let whole = copied.unwrap_or(0) / pieces[from].len;
                from += usize::try_from(whole).unwrap_or(0);
                if from < pieces.len() {
                    let item = &mut items[whose[from]];
                    self.abort(&mut self.state.lock(), item, Outcome::Busy);
                    from += 1;
                }
            }
        }
    }

    pub(crate) fn commit(&self, items: &mut [Item]) {
        if items.iter().all(|item| item.id.is_none()) {
            return;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.settle_dirty(state, items);
        self.take_slots(state, items);
        self.move_out(state, items);
        if self.copies_outside(items) {
            self.copy_out(items);
        }
        self.move_in(state, items);
        self.protect_again(state, items);
        self.wake_all(state, items);
        for item in items.iter_mut() {
            self.finish(state, item);
        }
    }

    /// Copies pages that are out to their frames, past the caches.
    fn copy_out(&self, items: &mut [Item]) {
        for item in items
            .iter_mut()
            .filter(|item| item.out && !item.onto_shadow)
        {
            if let (Some(slot), Some(staged)) = (item.slot, item.staged) {
                // SAFETY: both are present frames that only this item refers to; the page in the
                // slot was moved out unpinned, so nobody writes it.
                item.certain = unsafe { self.team.run(Work::Stream, slot, staged, item.bytes()) };
            }
        }
    }

    /// Aborts what was written to, or is gone, since the copy began.
    pub(crate) fn settle_dirty(&self, state: &mut State, items: &mut [Item]) {
        for item in items.iter_mut() {
            let Some(entry) = item.id.and_then(|id| state.pages.get(id)) else {
                continue;
            };
            let why = if entry.dead {
                Outcome::Gone
            } else {
                Outcome::Dirtied
            };
            if entry.dirty {
                self.abort(state, item, why);
            }
        }
    }

    /// Compares the protected pages with their old frames; what is equal is a shadow.
    fn verify(&self, items: &mut [Item], scratch: &mut Scratch) {
        for item in items.iter_mut() {
            let (Some(_), Some(slot)) = (item.id, item.slot) else {
                continue;
            };
            let equal = scratch.program_page_equals(item.addr, slot, item.bytes());
            let mut guard = self.state.lock();
            let state = &mut *guard;
            let Some(entry) = item.id.and_then(|id| state.pages.get(id)).copied() else {
                continue;
            };
            if equal && !entry.dirty && !entry.dead {
                self.keep_shadow(state, item, entry.addr);
                continue;
            }
            if !entry.dead {
                item.outcome = Some(Outcome::DoneShadowStale);
                self.unprotect(state, entry.addr, item.bytes());
            }
            if let Some(id) = item.id.take() {
                state.pages.end(id);
            }
            self.free_old(state, item);
        }
    }
}
