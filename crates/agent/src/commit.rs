// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a commit, all under the lock: pages out to slots, frames in, protected again.
//!
//! [`crate::transaction`], [`crate::base`] and [`crate::demote`] say when; here is how, for a few
//! pages at a time. After each step an item's page is where it was, or it is out and its bytes
//! are in the slot, or it is in again and the item has an outcome.

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::pagemap::PageKind;
use terrace_sys::uffd::Stop;

use crate::agent::Agent;
use crate::agent::State;
use crate::agent::frame;
use crate::clock;
use crate::item::Item;
use crate::mover::PageMove;
use crate::mover::PutBack;
use crate::mover::current;
use crate::mover::mark_in;
use crate::mover::mark_out;
use crate::mover::refusal;
use crate::pages::Stage;
use crate::team::Work;

/// Bytes that one wake covers at most.
const WAKE_SPAN: u64 = 4 << 20;

impl Agent {
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
    pub(crate) fn settle_waiting(&self, state: &mut State, items: &mut [Item]) {
        for item in items.iter_mut().filter(|item| !item.out) {
            self.settle_dirty(state, std::slice::from_mut(item));
        }
    }

    /// Brings the copies in where they are true, else the old pages; neighbours together.
    pub(crate) fn move_in(&self, state: &mut State, items: &mut [Item]) {
        let mut sources: Vec<(usize, u64, bool)> = Vec::new();
        for (at, item) in items.iter().enumerate().filter(|(_, item)| item.out) {
            if let (Some(slot), Some(staged)) = (item.slot, item.staged) {
                // SAFETY: both are present frames of ours that only this item refers to; the
                // page in the slot was moved out unpinned, so no device writes it.
                let same = || unsafe { self.team.run(Work::Compare, slot, staged, item.bytes()) };
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
    pub(crate) fn protect_again(&self, state: &mut State, items: &mut [Item]) {
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
    pub(crate) fn finish(&self, state: &mut State, item: &mut Item) {
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
                state
                    .frames
                    .release(&self.uffd, item.size, frame(slot, item.old_node));
            } else {
                state.frames.give_empty(item.size, slot);
            }
        }
        item.out = false;
    }

    pub(crate) fn keep_shadow(&self, state: &mut State, item: &mut Item, addr: u64) {
        if let (Some(id), Some(slot)) = (item.id.take(), item.slot.take()) {
            state.pages.end(id);
            item.out = false;
            let old = frame(slot, item.old_node);
            state
                .pages
                .add_shadow(addr, item.size, old, item.node, false);
        }
    }
}
