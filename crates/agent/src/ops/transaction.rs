// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactional page migration: a batch of pages to another node, accessible nearly all the time.
//!
//! 1. *Begin* (lock): each page gets an entry. A base page is write-protected; a huge page is not, as a
//!    write would split its mapping, unless the supervisor said that writes shall wait (HeMem 3.4).
//! 2. *Copy* (no lock): to a frame on the target node, while the program goes on. A write lifts the
//!    protection, and at the commit that page is aborted: nothing changed. Or it waits until the commit, and
//!    nothing is aborted.
//! 3. *Commit* (lock, few pages at a time): the old page is moved out to a slot. From here on
//!    nobody can write it, so it is compared with the copy, which tells of every write, a device's
//!    too. Equal: the copy is moved in; else the old page goes back. A pin still held makes the kernel refuse
//!    the move.
//! 4. *Verify* (no lock), where the old page is to be the shadow: a page that was moved in is
//!    writable until it is protected again. So after protecting it is compared with the old page,
//!    and only if nothing slipped in, the shadow counts. A device pin taken in that gap and used
//!    later is not seen here; hence demotion compares once more ([`crate::ops::demote`]).
//!
//! Between move out and move in the address is empty. User-mode accesses wait; what the kernel does where it
//! cannot wait fails, which is why [`crate::ops::migrate`] is the default.

use terrace_core::PageSize;
use terrace_proto::Commit;
use terrace_proto::Outcome;
use terrace_sys::self_memory;
use terrace_sys::self_memory::PIECES_MAX;
use terrace_sys::self_memory::Piece;
use terrace_sys::uffd::Protected;
use terrace_sys::uffd::Writers;

use crate::ops::finish::free_source;
use crate::ops::item::Item;
use crate::ops::item::Order;
use crate::ops::item::waiting_runs;
use crate::ops::parallel_copy::Work;
use crate::ops::scratch::Scratch;
use crate::ops::stage::Admitted;
use crate::ops::stage::Kind;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::pages::EntryId;
use crate::state::ranges::For;

/// Bytes that are out of place at the same time at most (but always one page).
const COMMIT_BYTES: u64 = 64 << 10;
/// Changes of mappings that are waited out before a page is left for later.
pub(crate) const PROOFS: u32 = 8;

impl Agent {
    /// Runs a batch of pages of one size; afterwards each item has an outcome.
    pub(crate) fn migrate(&self, items: &mut [Item], scratch: &mut Scratch) {
        let base = items.iter().all(|item| item.order.size == PageSize::Base4K);
        let transaction = match self.options.commit {
            Commit::Transaction => true,
            Commit::Copy => false,
            Commit::Wait => !base,
        };
        if !transaction {
            self.migrate_by_kernel(items);
            return;
        }
        items.sort_unstable_by_key(|item| item.order.addr);
        self.look(items);
        // Where writers wait for the commit, no page waits for another's copy.
        let together = match self.options.commit {
            Commit::Wait => 1,
            _ => items.len().max(1),
        };
        for batch in items.chunks_mut(together) {
            self.migrate_batch(batch, scratch);
        }
    }

    fn migrate_batch(&self, items: &mut [Item], scratch: &mut Scratch) {
        self.stage(items);
        self.begin(items, For::Absence);
        if !self.copies_outside(items) {
            self.copy(items);
        }
        let bytes = items.first().map_or(1, |item| item.order.bytes());
        let step = usize::try_from((COMMIT_BYTES / bytes).max(1)).unwrap_or(1);
        for chunk in items.chunks_mut(step) {
            self.commit(chunk);
            self.verify(chunk, scratch);
        }
    }

    /// Whether the pages are copied while they are out, where nobody can write them.
    fn copies_outside(&self, items: &[Item]) -> bool {
        self.options.streaming && items.iter().all(|item| item.order.size == PageSize::Huge2M)
    }

    /// Whether a page of that size is write-protected while it is copied.
    pub(crate) fn protects(&self, size: PageSize) -> bool {
        size == PageSize::Base4K || self.writers == Writers::Wait
    }

    /// Admits and protects pages.
    pub(crate) fn begin(&self, items: &mut [Item], what: For) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for item in items.iter_mut() {
            self.admit(state, item, what);
        }
        for run in waiting_runs(items) {
            if self.protects(run[0].order.size) {
                self.protect_run(state, run, true);
            }
        }
    }

    /// Protects the pages of a run, or lifts that; who is not registered any more is aborted.
    pub(crate) fn protect_run(&self, state: &mut State, run: &mut [Item], on: bool) {
        let (start, bytes) = (run[0].order.addr, run[0].order.bytes());
        // Where the run as a whole does not hold together any more, each page may.
        if self.set_protection(state, start, bytes * run.len() as u64, on) {
            return;
        }
        for item in run {
            if !self.set_protection(state, item.order.addr, bytes, on) {
                self.abort(state, item, Outcome::Gone);
            }
        }
    }

    /// Makes an entry for a staged page, if it may have one; else it ends.
    pub(crate) fn admit(&self, state: &mut State, item: &mut Item, what: For) {
        let order = item.order;
        item.step(|stage| {
            let Stage::Staged(source) = stage else {
                return stage;
            };
            match self.entry(state, &order, what) {
                Ok(id) => Stage::Admitted(Admitted { id, source }),
                Err(why) => {
                    free_source(state, &order, source);
                    Stage::Ended(why.into())
                }
            }
        });
    }

    fn entry(&self, state: &mut State, order: &Order, what: For) -> Result<EntryId, Outcome> {
        let (start, end) = (order.addr, order.end());
        if self.is_pending_drop(state, start, end) {
            return Err(Outcome::NotManaged);
        }
        self.register(state, order, what)?;
        let id = state.pages.begin(start, order.size).ok_or(Outcome::Busy)?;
        // An old shadow is of the node the page is on no more.
        self.drop_shadows(state, start, end);
        if self.is_registered(state, order) {
            return Ok(id);
        }
        state.pages.end(id);
        Err(Outcome::Busy)
    }

    /// Sees to it that the page's mapping is registered for that.
    pub(crate) fn register(
        &self,
        state: &mut State,
        order: &Order,
        what: For,
    ) -> Result<(), Outcome> {
        let State {
            ranges,
            maps,
            threads,
            ..
        } = state;
        ranges.ensure(&self.uffd, (maps, threads), (order.addr, order.end()), what)
    }

    /// Sees that the page's mapping really is registered, by lifting a protection that it does not have.
    /// The record may be out of date: `shmat` with `SHM_REMAP` replaces a mapping and tells nobody.
    /// A page that was moved out of one that is not registered could not be brought in again.
    fn is_registered(&self, state: &mut State, order: &Order) -> bool {
        for _ in 0..PROOFS {
            match self.uffd.write_protect(order.addr, order.bytes(), false) {
                Ok(Protected::Done) => return true,
                Ok(Protected::Again) => self.drain_and_yield(state),
                // The next order for a page of it finds out what is there and registers that.
                Ok(Protected::NotThere) | Err(_) => {
                    state.ranges.unmap(order.addr, order.end());
                    break;
                }
            }
        }
        false
    }

    /// Copies every page to its frame; a page that cannot be read is aborted.
    pub(crate) fn copy(&self, items: &mut [Item]) {
        if items.iter().all(|item| item.order.size == PageSize::Huge2M) {
            for item in items.iter_mut() {
                let Stage::Admitted(page) = &item.stage else {
                    continue;
                };
                let (from, to, len) = (item.order.addr, page.source.addr, item.order.bytes());
                // SAFETY: the frame is present, writable, and belongs to this item alone.
                let copied = unsafe { self.parallel_copy.run(Work::CopyIn, from, to, len) };
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
                if let Stage::Admitted(page) = &item.stage {
                    pieces.push(Piece {
                        from: item.order.addr,
                        to: page.source.addr,
                        len: item.order.bytes(),
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
        if items.iter().all(|item| item.waits_in().is_none()) {
            return;
        }
        let _gate = self.gate.lock();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.settle_dirty(state, items);
        self.take_slots(state, items);
        self.look_again(state, items);
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
        for item in items.iter_mut() {
            let len = item.order.bytes();
            if let Stage::Out(page) = &mut item.stage
                && page.source.kind == Kind::Copied
            {
                // SAFETY: both are present frames that only this item refers to; the page in the
                // slot was moved out unpinned, so nobody writes it.
                let well = unsafe {
                    let work = Work::Stream;
                    self.parallel_copy
                        .run(work, page.slot(), page.source.addr, len)
                };
                if well {
                    page.source.kind = Kind::Streamed;
                }
            }
        }
    }

    /// Aborts what was written to, or is gone, since the copy began.
    pub(crate) fn settle_dirty(&self, state: &mut State, items: &mut [Item]) {
        for item in items.iter_mut() {
            let Some(entry) = item.waits_in().and_then(|id| state.pages.get(id)) else {
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

    /// Aborts what was written to since it was protected, where the page map tells.
    pub(crate) fn settle_written(&self, state: &mut State, items: &mut [Item]) {
        let watched = |item: &Item| item.waits_in().is_some() && self.can_have_shadow(&item.order);
        let runs = items.chunk_by_mut(|one, next| one.order.end() == next.order.addr);
        for run in runs.filter(|run| run.iter().any(watched)) {
            let flags = self.pagemap.flags(run[0].order.addr, run.len());
            for (item, page) in run.iter_mut().zip(flags) {
                if watched(item) && !(page.present && page.write_protected) {
                    self.abort(state, item, Outcome::Dirtied);
                }
            }
        }
    }
}
