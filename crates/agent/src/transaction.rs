// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transactional page migration: a batch of pages to another node, accessible nearly all the time.
//!
//! 1. *Begin* (lock): each page gets an entry and is write-protected.
//! 2. *Copy* (no lock): to a frame on the target node, while the program reads on. A write faults,
//!    marks the entry dirty and goes on: that page is aborted, nothing changed.
//! 3. *Commit* (lock, few pages at a time): the old page is moved out to a slot. From here on
//!    nobody can write it, so it is compared with the copy: a device that wrote through a pin
//!    taken before the protection, and gave it back since, trips no fault. Equal: the copy is moved
//!    in; else the old page goes back. A pin still held makes the kernel refuse the move.
//! 4. *Verify* (no lock), where the old page is to be the shadow: a page that was moved in is
//!    writable until it is protected again. So after protecting it is compared with the old page,
//!    and only if nothing slipped in, the shadow counts. A device pin taken in that gap and used
//!    later is not seen here; hence demotion compares once more ([`crate::demote`]).

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::pagemap::PageKind;
use terrace_sys::self_memory;
use terrace_sys::self_memory::PIECES_MAX;
use terrace_sys::self_memory::Piece;
use terrace_sys::uffd::Stop;

use crate::agent::Agent;
use crate::agent::State;
use crate::agent::frame;
use crate::clock;
use crate::item::Item;
use crate::memory;
use crate::mover::PageMove;
use crate::mover::PutBack;
use crate::mover::current;
use crate::mover::mark_in;
use crate::mover::mark_out;
use crate::mover::refusal;
use crate::pages::Stage;
use crate::scratch::Scratch;

/// Bytes that are out of place at the same time at most (but always one page).
const COMMIT_BYTES: u64 = 64 << 10;
/// Bytes that one wake covers at most.
const WAKE_SPAN: u64 = 4 << 20;

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
        self.stage(items);
        self.begin(items);
        self.copy(items);
        let bytes = items.first().map_or(1, Item::bytes);
        let step = usize::try_from((COMMIT_BYTES / bytes).max(1)).unwrap_or(1);
        for chunk in items.chunks_mut(step) {
            self.commit(chunk);
            self.verify(chunk, scratch);
        }
        self.unstage(items);
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
        Ok(())
    }

    /// Copies every page to its frame; a page that cannot be read is aborted.
    fn copy(&self, items: &mut [Item]) {
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
        self.move_in(state, items);
        self.protect_again(state, items);
        self.wake_all(state, items);
        for item in items.iter_mut() {
            self.finish(state, item);
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

    /// Gets every item that is still in a slot.
    pub(crate) fn take_slots(&self, state: &mut State, items: &mut [Item]) {
        let mut at = 0;
        let needs = |item: &Item| item.id.is_some() && item.slot.is_none();
        while let Some(first) = items[at..].iter().position(needs).map(|n| n + at) {
            let want = items[first..].iter().filter(|item| needs(item)).count() as u64;
            let size = items[first].size;
            let (mut slot, count) = match state.frames.take_slots(&self.uffd, size, want) {
                Ok(run) => run,
                Err(Errno::NOMEM) => {
                    self.abort(state, &mut items[first], Outcome::NoMemory);
                    continue;
                }
                Err(errno) => {
                    items[first].fail(errno);
                    self.abort(state, &mut items[first], Outcome::Failed);
                    continue;
                }
            };
            for item in items[first..]
                .iter_mut()
                .filter(|item| needs(item))
                .take(usize::try_from(count).unwrap_or(0))
            {
                item.slot = Some(slot);
                slot += size.bytes();
            }
            at = first + 1;
        }
    }

    /// Moves every item's page to its slot.
    pub(crate) fn move_out(&self, state: &mut State, items: &mut [Item]) {
        let Some(bytes) = items.first().map(Item::bytes) else {
            return;
        };
        if bytes > PageSize::Base4K.bytes() {
            for item in items.iter_mut().filter(|item| item.slot.is_some()) {
                self.move_out_huge(state, item);
            }
            return;
        }
        loop {
            let mut routes = Vec::new();
            let mut whose = Vec::new();
            for (at, item) in items.iter().enumerate() {
                if let (false, Some(slot), Some((addr, true))) =
                    (item.out, item.slot, current(state, item))
                {
                    routes.push((slot, addr));
                    whose.push(at);
                }
            }
            let now = clock::now();
            let mut again = false;
            let mut refused = Vec::new();
            self.move_runs(&routes, bytes, |at, ended| {
                let item = &mut items[whose[at]];
                match ended {
                    PageMove::Done => {
                        item.out = true;
                        item.since = now;
                        mark_out(state, item, routes[at].0, bytes);
                    }
                    PageMove::Stopped(Stop::Again) => again = true,
                    PageMove::Stopped(stop) => refused.push((whose[at], stop)),
                    PageMove::Failed(errno) => {
                        item.fail(errno);
                        refused.push((whose[at], Stop::Busy));
                    }
                }
            });
            for (at, stop) in refused {
                if stop == Stop::Exists {
                    // Something got into the slot: it is no use any more.
                    items[at].slot = None;
                }
                self.abort(state, &mut items[at], refusal(stop));
            }
            if !again {
                return;
            }
            self.drain_and_yield(state);
            self.settle_waiting(state, items);
        }
    }

    /// After events: what has not moved yet and was touched is aborted.
    fn settle_waiting(&self, state: &mut State, items: &mut [Item]) {
        for item in items.iter_mut().filter(|item| !item.out) {
            self.settle_dirty(state, std::slice::from_mut(item));
        }
    }

    /// Brings the copies in where they are true, else the old pages; neighbours together.
    fn move_in(&self, state: &mut State, items: &mut [Item]) {
        let mut sources: Vec<(usize, u64, bool)> = Vec::new();
        for (at, item) in items.iter().enumerate().filter(|(_, item)| item.out) {
            if let (Some(slot), Some(staged)) = (item.slot, item.staged) {
                // SAFETY: both are present frames of ours that only this item refers to; the
                // page in the slot was moved out unpinned, so no device writes it.
                let same = || unsafe { memory::same(slot, staged, item.bytes()) };
                let equal = item.certain || same();
                sources.push((at, if equal { staged } else { slot }, equal));
            }
        }
        let mut routes = Vec::new();
        for (at, source, _) in &sources {
            // Where the program gave the page back there is no route, which ends the run.
            let place = current(state, &items[*at]).filter(|(_, alive)| *alive);
            routes.push((place.map_or(0, |(addr, _)| addr), *source));
        }
        let mut moved = vec![false; sources.len()];
        if items.first().is_some_and(|i| i.size == PageSize::Base4K) && sources.len() > 1 {
            self.move_runs(&routes, PageSize::Base4K.bytes(), |at, ended| {
                moved[at] = ended == PageMove::Done;
                if moved[at] {
                    mark_in(state, &items[sources[at].0]);
                }
            });
        }
        for ((at, source, equal), moved) in sources.into_iter().zip(moved) {
            let put = if moved {
                PutBack::Moved
            } else {
                // Should a frame of ours ever be empty, the page itself is still in the slot.
                let lost = self.pagemap.kind(source).is_ok_and(PageKind::is_empty);
                let whole = items[at].slot.filter(|_| lost).unwrap_or(source);
                self.put_back(state, &items[at], whole)
            };
            self.settle_in(state, &mut items[at], equal, put);
        }
    }

    fn settle_in(&self, state: &mut State, item: &mut Item, equal: bool, put: PutBack) {
        match (equal, put) {
            (true, PutBack::Moved) => {
                if let Some(staged) = item.staged.take() {
                    self.give_source(state, item, staged);
                }
                item.outcome = Some(if item.onto_shadow {
                    Outcome::ShadowHit
                } else {
                    Outcome::Done
                });
            }
            // A copy of the copy, on whatever node: not where it was sent, but nothing lost.
            (true, PutBack::Copied) => item.outcome = Some(Outcome::Busy),
            (false, PutBack::Moved) => {
                item.torn |= !self.arrived_whole(state, item);
                item.out = false;
                item.outcome = Some(Outcome::Dirtied);
            }
            (false, PutBack::Copied) => item.outcome = Some(Outcome::Dirtied),
            (_, PutBack::Dropped) => item.outcome = Some(Outcome::Gone),
        }
    }

    /// The address a page was moved in from is empty; a huge page that went page by page leaves
    /// a page table there.
    fn give_source(&self, state: &mut State, item: &mut Item, from: u64) {
        if self.arrived_whole(state, item) {
            state.frames.give_empty(item.size, from);
        } else {
            state.frames.renew(&self.uffd, item.size, from);
            item.keep_shadow = false;
        }
    }

    pub(crate) fn arrived_whole(&self, state: &mut State, item: &Item) -> bool {
        item.size == PageSize::Base4K
            || current(state, item)
                .is_some_and(|(addr, _)| self.pagemap.kind(addr).is_ok_and(|kind| kind.huge))
    }

    /// Protects the pages that are to keep a shadow, neighbours together.
    fn protect_again(&self, state: &mut State, items: &mut [Item]) {
        let keeps = |item: &Item| {
            item.keep_shadow && item.out && !item.torn && item.outcome == Some(Outcome::Done)
        };
        let mut at = 0;
        while at < items.len() {
            if !keeps(&items[at]) {
                at += 1;
                continue;
            }
            let first = at;
            let start = current(state, &items[at]);
            at += 1;
            while at < items.len()
                && keeps(&items[at])
                && start.is_some_and(|(addr, _)| {
                    let offset = items[at].bytes() * (at - first) as u64;
                    current(state, &items[at]) == Some((addr + offset, true))
                })
            {
                at += 1;
            }
            let len = items[first].bytes() * (at - first) as u64;
            let protected =
                start.is_some_and(|(addr, alive)| alive && self.protect(state, addr, len));
            for item in &mut items[first..at] {
                // Events may have been handled meanwhile: only an untouched entry goes on.
                let entry = item.id.and_then(|id| state.pages.get(id));
                match entry {
                    Some(entry) if protected && !entry.dead && !entry.dirty => {
                        entry.stage = Stage::Verifying;
                    }
                    _ => item.keep_shadow = false,
                }
            }
        }
    }

    /// Wakes who waits for a page of the chunk, in one call where they lie together. Waking too
    /// many is harmless: they look again.
    pub(crate) fn wake_all(&self, state: &mut State, items: &[Item]) {
        let mut span: Option<(u64, u64)> = None;
        for item in items.iter().filter(|item| item.since != 0) {
            // Waiters of a page whose mapping the program moved wait at its old address.
            let place = current(state, item).map_or(item.addr, |(addr, _)| addr);
            for addr in [item.addr, place] {
                let (start, end) = (addr, addr + item.bytes());
                span = match span {
                    Some((low, high)) if high.max(end) - low.min(start) <= WAKE_SPAN => {
                        Some((low.min(start), high.max(end)))
                    }
                    Some((low, high)) => {
                        self.uffd.wake(low, high - low);
                        Some((start, end))
                    }
                    None => Some((start, end)),
                };
            }
        }
        if let Some((low, high)) = span {
            self.uffd.wake(low, high - low);
        }
    }

    /// Notes how long, frees what is free. Only pages that are about to be
    /// verified keep their entry and their old frame.
    fn finish(&self, state: &mut State, item: &mut Item) {
        let Some(id) = item.id else { return };
        let Some(entry) = state.pages.get(id).copied() else {
            return;
        };
        if item.since != 0 {
            item.inaccessible = clock::now().saturating_sub(item.since);
        }
        let verifying = entry.stage == Stage::Verifying;
        if verifying && self.options.verify {
            return;
        }
        if verifying {
            self.keep_shadow(state, item, entry.addr);
            return;
        }
        state.pages.end(id);
        item.id = None;
        if item.torn && !entry.dead {
            // What never moved is still protected.
            self.unprotect(state, entry.addr, item.bytes());
        }
        self.free_old(state, item);
    }

    /// The page in the slot is needed no more.
    pub(crate) fn free_old(&self, state: &mut State, item: &mut Item) {
        if let Some(slot) = item.slot.take() {
            if item.torn {
                state.frames.renew(&self.uffd, item.size, slot);
            } else if item.out {
                state.frames.release(item.size, frame(slot, item.old_node));
            } else {
                state.frames.give_empty(item.size, slot);
            }
        }
        item.out = false;
    }

    fn keep_shadow(&self, state: &mut State, item: &mut Item, addr: u64) {
        if let (Some(id), Some(slot)) = (item.id.take(), item.slot.take()) {
            state.pages.end(id);
            item.out = false;
            let old = frame(slot, item.old_node);
            state
                .pages
                .add_shadow(addr, item.size, old, item.node, false);
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
