// SPDX-License-Identifier: MIT OR Apache-2.0
//! Base pages to another node: out, and a copy in that is protected from birth.
//!
//! For a page of 4 KiB a transaction as in [`crate::transaction`] keeps the page accessible while
//! it is copied, but has to compare old page and copy in its commit, because a device may have
//! written meanwhile; and comparing takes as long as copying. So a base page is moved out (the
//! kernel refuses if it is pinned), which ends all writes, and then copied back in on its new node
//! by one `UFFDIO_COPY`, write-protected in the same step if the old page is to be its shadow.
//! Nobody can write the new page unseen, not even a device: the shadow needs no verification, now
//! or when it is used. Who touches the page meanwhile waits for a copy of a few pages.
//!
//! Nothing is lost on the way: until the copy is in, the old page is in its slot; if there is no
//! memory it goes back as it is.

use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::set_mempolicy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::uffd::Stop;

use crate::agent::Agent;
use crate::agent::State;
use crate::agent::frame;
use crate::clock;
use crate::item::Item;
use crate::item::neighbours;
use crate::mover::PutBack;
use crate::mover::current;
use crate::scratch::Scratch;

/// Pages that are out of place at the same time, at most; fewer where they are no neighbours, as
/// then nothing is saved by having more than one out.
const CHUNK: usize = 8;
const BYTES: u64 = PageSize::Base4K.bytes();

impl Agent {
    /// Runs a batch of base pages; afterwards each item has an outcome.
    pub(crate) fn migrate_base(&self, items: &mut [Item], scratch: &mut Scratch) {
        items.sort_unstable_by_key(|item| (item.node, item.addr));
        self.look(items);
        for group in items.chunk_by_mut(|a, b| a.node == b.node) {
            if group.iter().any(Item::is_open) && !allocate_from(group[0].node, scratch) {
                for item in group.iter_mut().filter(|item| item.is_open()) {
                    item.outcome = Some(Outcome::NoMemory);
                }
            }
            for run in neighbours(group) {
                for chunk in run.chunks_mut(CHUNK) {
                    self.migrate_few(chunk);
                }
            }
        }
        if self.many_nodes {
            self.check_nodes(items);
        }
        self.unstage(items);
    }

    fn migrate_few(&self, items: &mut [Item]) {
        if !items.iter().any(Item::is_open) {
            return;
        }
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for item in items.iter_mut().filter(|item| item.is_open()) {
            if let Err(why) = self.admit(state, item) {
                item.outcome = Some(why);
            }
        }
        // Events may have been handled meanwhile, of pages admitted before them too.
        self.settle_dirty(state, items);
        self.take_slots(state, items);
        self.move_out(state, items);
        self.copy_in(state, items);
        let now = clock::now();
        for item in items.iter_mut().filter(|item| item.since != 0) {
            item.inaccessible = now.saturating_sub(item.since);
        }
    }

    /// Copies back in what is out, in as few calls as addresses allow.
    fn copy_in(&self, state: &mut State, items: &mut [Item]) {
        let mut at = 0;
        while at < items.len() {
            let (true, Some(slot)) = (items[at].out, items[at].slot) else {
                at += 1;
                continue;
            };
            let Some((addr, true)) = current(state, &items[at]) else {
                self.drop_in(state, &mut items[at], Outcome::Gone);
                at += 1;
                continue;
            };
            let keep = items[at].keep_shadow;
            let mut run = 1;
            while let Some(next) = items.get(at + run)
                && next.out
                && next.keep_shadow == keep
                && next.slot == Some(slot + run as u64 * BYTES)
                && current(state, next) == Some((addr + run as u64 * BYTES, true))
            {
                run += 1;
            }
            // SAFETY: the slots hold the pages that were moved out, ours alone; their addresses
            // are empty.
            let copied = unsafe { self.uffd.copy(addr, slot, run as u64 * BYTES, keep) };
            let (bytes, stop) = match copied {
                Ok(filled) => (filled.bytes, filled.stop),
                Err(_) => (0, Some(Stop::Refused)),
            };
            let done = usize::try_from(bytes / BYTES).unwrap_or(0).min(run);
            for item in &mut items[at..at + done] {
                self.arrived(state, item);
            }
            at += done;
            match stop {
                None => {}
                Some(Stop::Again) if done == 0 => self.drain_and_yield(state),
                Some(Stop::Again) => {}
                Some(Stop::NoMemory) => {
                    self.back_as_it_was(state, &mut items[at], Outcome::NoMemory);
                    at += 1;
                }
                Some(_) => {
                    self.back_as_it_was(state, &mut items[at], Outcome::Busy);
                    at += 1;
                }
            }
        }
    }

    /// The page is in; its old frame becomes the shadow, or is dropped.
    fn arrived(&self, state: &mut State, item: &mut Item) {
        let Some(entry) = item.id.take().and_then(|id| state.pages.end(id)) else {
            return;
        };
        item.out = false;
        item.outcome.get_or_insert(Outcome::Done);
        let Some(slot) = item.slot.take() else { return };
        if item.keep_shadow {
            let old = frame(slot, item.old_node);
            state
                .pages
                .add_shadow(entry.addr, item.size, old, item.node, true);
        } else {
            state.frames.bury(&self.uffd, item.size, [slot]);
        }
        // The copy woke those who wait at its address; if the program moved the mapping
        // meanwhile, some wait at the old one.
        if entry.addr != item.addr {
            self.uffd.wake(item.addr, BYTES);
        }
    }

    /// No copy is possible: the old page itself goes back.
    fn back_as_it_was(&self, state: &mut State, item: &mut Item, why: Outcome) {
        let Some(slot) = item.slot else { return };
        match self.put_back(state, item, slot) {
            PutBack::Moved => item.out = false,
            PutBack::Copied => {}
            PutBack::Dropped => {
                item.outcome.get_or_insert(Outcome::Gone);
            }
        }
        self.drop_in(state, item, why);
    }

    /// Ends the transaction of a page that is in again, or gone.
    fn drop_in(&self, state: &mut State, item: &mut Item, why: Outcome) {
        item.outcome.get_or_insert(why);
        if let Some(entry) = item.id.take().and_then(|id| state.pages.end(id)) {
            self.uffd.wake(entry.addr, BYTES);
            self.uffd.wake(item.addr, BYTES);
        }
        self.free_old(state, item);
    }

    /// A full node's pages come from another one: then the move has failed, and a shadow would be
    /// a second copy for nothing. The last page tells of the others: a node fills up, not down.
    fn check_nodes(&self, items: &mut [Item]) {
        let moved = |item: &Item| item.outcome == Some(Outcome::Done) && item.since != 0;
        let Some(last) = items.iter().rev().find(|item| moved(item)) else {
            return;
        };
        let on = move_pages::query(Target::Own, &[last.addr]).unwrap_or_default();
        if on.first() == Some(&PageStatus::On(last.node)) {
            return;
        }
        let addrs: Vec<u64> = items.iter().filter(|i| moved(i)).map(|i| i.addr).collect();
        let statuses = move_pages::query(Target::Own, &addrs).unwrap_or_default();
        for (item, status) in items.iter_mut().filter(|item| moved(item)).zip(statuses) {
            if matches!(status, PageStatus::On(node) if node != item.node) {
                item.outcome = Some(Outcome::NoMemory);
                let mut state = self.state.lock();
                self.drop_shadows(&mut state, item.addr, item.end());
            }
        }
    }
}

/// Makes the calling thread allocate from a node; `false` where it may not.
fn allocate_from(node: NodeId, scratch: &mut Scratch) -> bool {
    if scratch.node == Some(node) {
        return true;
    }
    // Preferred, not bound: a full node must not start the out-of-memory killer.
    let may = set_mempolicy(&Policy::Preferred(node)).is_ok();
    scratch.node = may.then_some(node);
    may
}
