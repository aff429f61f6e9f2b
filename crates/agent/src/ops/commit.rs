// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a commit, all under the lock: pages out to slots, frames in, protected again.
//!
//! [`crate::ops::transaction`] and [`crate::ops::demote`] say when; here is how, for a few
//! pages at a time. After each step an item's page is where it was, or it is out and its bytes
//! are in the slot, or it is in again ([`crate::ops::stage`]).

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_sys::pagemap::PageKind;
use terrace_sys::uffd::Stop;

use crate::ops::clock;
use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::item::Wish;
use crate::ops::item::waiting_runs;
use crate::ops::mover::PageMove;
use crate::ops::mover::PutBack;
use crate::ops::mover::current;
use crate::ops::mover::mark_in_up_to;
use crate::ops::mover::mark_out;
use crate::ops::mover::refusal;
use crate::ops::parallel_copy::Work;
use crate::ops::stage::In;
use crate::ops::stage::Kind;
use crate::ops::stage::Left;
use crate::ops::stage::Out;
use crate::ops::stage::Slot;
use crate::ops::stage::Stage;
use crate::ops::transaction::PROOFS;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::pages;
use crate::state::pages::EntryId;

impl Agent {
    /// Gets every admitted item a slot.
    pub(crate) fn take_slots(&self, state: &mut State, items: &mut [Item]) {
        let mut at = 0;
        let needs = |item: &Item| matches!(item.stage, Stage::Admitted(_));
        while let Some(first) = items[at..].iter().position(needs).map(|n| n + at) {
            let want = items[first..].iter().filter(|item| needs(item)).count() as u64;
            let size = items[first].order.size;
            let (slot, count) = match state.frames.take_slots(size, want) {
                Ok(run) => run,
                Err(errno) => {
                    let end = match errno {
                        Errno::NOMEM => Outcome::NoMemory.into(),
                        errno => End::from(errno),
                    };
                    self.abort(state, &mut items[first], end);
                    continue;
                }
            };
            let waiting = items[first..].iter_mut().filter(|item| needs(item));
            for (n, item) in (0..count).zip(waiting) {
                item.place(Slot::new(slot + n * size.bytes()));
            }
            at = first + 1;
        }
    }

    /// Aborts what the program has written to or changed up to now, neighbours together.
    ///
    /// Of a page that the program has unmapped the kernel tells, and refuses the move until that is read. Of one whose
    /// mapping was replaced without an event (`shmat` with `SHM_REMAP`), or taken out of our userfaultfd, it does not,
    /// and what moved out of there could not be brought in again. A page whose protection tells of writes is not that
    /// page if it has none. Others are protected, or not, as they are already, which says whether they are registered.
    pub(crate) fn look_again(&self, state: &mut State, items: &mut [Item]) {
        for run in waiting_runs(items) {
            if self.can_have_shadow(&run[0].order) {
                self.settle_written(state, run);
            } else {
                self.protect_run(state, run, self.protects(run[0].order.size));
            }
        }
        self.settle_dirty(state, items);
    }

    /// Moves every item's page to its slot, neighbours together.
    pub(crate) fn move_out(&self, state: &mut State, items: &mut [Item]) {
        let Some(bytes) = items.first().map(|item| item.order.bytes()) else {
            return;
        };
        let is_out = |item: &Item| matches!(item.stage, Stage::Out(_));
        let mut waits = PROOFS;
        if bytes > PageSize::Base4K.bytes() {
            for item in items {
                self.move_out_huge(state, item, waits);
                // Nobody waits for a page while what changes mappings is waited out.
                waits = if is_out(item) { 0 } else { waits };
            }
            return;
        }
        loop {
            let mut routes = Vec::new();
            let mut whose = Vec::new();
            for (at, item) in items.iter().enumerate() {
                if let Stage::Placed(page) = &item.stage
                    && let Some((addr, true)) = current(state, page.id)
                {
                    routes.push((page.slot(), addr));
                    whose.push((at, page.id));
                }
            }
            let now = clock::now();
            let mut again = false;
            let mut refused: Vec<(usize, End, Left)> = Vec::new();
            self.move_runs(&routes, bytes, |n, ended| {
                let (at, id) = whose[n];
                match ended {
                    PageMove::Done => {
                        items[at].go_out(now, true);
                        mark_out(state, id, routes[n].0, bytes);
                    }
                    PageMove::Stopped(Stop::Again) => again = true,
                    PageMove::Stopped(stop) => {
                        let free = stop != Stop::Exists;
                        let left = if free { Left::Nothing } else { Left::Unknown };
                        refused.push((at, refusal(stop).into(), left));
                    }
                    PageMove::Failed(errno) => refused.push((at, errno.into(), Left::Nothing)),
                }
            });
            for (at, end, left) in refused {
                self.abort_with(state, &mut items[at], end, left);
            }
            if !again {
                return;
            }
            // Nobody waits for a page while what changes mappings is waited out.
            if waits == 0 || items.iter().any(is_out) {
                let here = |item: &&mut Item| item.waits_in().is_some();
                let rest = items.iter_mut().filter(here);
                rest.for_each(|item| self.abort(state, item, Outcome::Busy));
                return;
            }
            waits -= 1;
            self.drain_and_yield(state);
            // What was touched is aborted.
            self.look_again(state, items);
        }
    }

    /// Brings the copies in where they are true, else the old pages; neighbours together.
    pub(crate) fn move_in(&self, state: &mut State, items: &mut [Item]) {
        let mut whose: Vec<(usize, EntryId, bool)> = Vec::new();
        let mut routes = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let Stage::Out(page) = &item.stage else {
                continue;
            };
            let equal = self.is_true(page, item.order.bytes());
            whose.push((at, page.id, equal));
            // Where the program gave the page back there is no route, which ends the run.
            let place = current(state, page.id).filter(|(_, alive)| *alive);
            let from = if equal { page.source.addr } else { page.slot() };
            routes.push((place.map_or(0, |(addr, _)| addr), from));
        }
        let mut moved = vec![false; whose.len()];
        let bytes = PageSize::Base4K.bytes();
        if items.first().is_some_and(|i| i.order.bytes() == bytes) && whose.len() > 1 {
            self.move_runs(&routes, bytes, |n, ended| {
                moved[n] = ended == PageMove::Done;
                if moved[n] {
                    mark_in_up_to(state, whose[n].1, bytes);
                }
            });
        }
        for ((n, (at, id, equal)), moved) in whose.into_iter().enumerate().zip(moved) {
            let size = items[at].order.size;
            items[at].step(|stage| {
                let Stage::Out(page) = stage else {
                    return stage;
                };
                let from = routes[n].1;
                // Should a frame of ours ever be empty, the page itself is still in the slot.
                let lost = !moved && self.pagemap.kind(from).is_ok_and(PageKind::is_empty);
                let from = if lost { page.slot() } else { from };
                let put = if moved {
                    PutBack::Moved
                } else {
                    self.put_back(state, id, from)
                };
                Stage::In(self.settle_in(state, page, size, equal && !lost, put))
            });
        }
    }

    /// Whether the copy of a page that is out is true.
    fn is_true(&self, page: &Out, bytes: u64) -> bool {
        match page.source.kind {
            Kind::Streamed => true,
            Kind::Shadow if !self.options.verify => true,
            // SAFETY: both are present frames of ours that only this item refers to; the page in
            // the slot was moved out unpinned, so no device writes it.
            _ => unsafe {
                let work = Work::Compare;
                self.parallel_copy
                    .run(work, page.slot(), page.source.addr, bytes)
            },
        }
    }

    fn settle_in(
        &self,
        state: &mut State,
        page: Out,
        size: PageSize,
        equal: bool,
        put: PutBack,
    ) -> In {
        match (equal, put) {
            (true, PutBack::Moved) => {
                let whole = self.arrived_whole(state, page.id, size);
                let (page, source) = page.arrived();
                let addr = source.give_away();
                // The address it was moved in from is empty; a huge page that went page by page
                // leaves a page table there.
                if whole {
                    state.frames.give_empty(size, addr);
                } else {
                    state.frames.renew(size, addr);
                }
                page
            }
            // A copy of the copy, on whatever node, or a part: not where it was sent, but nothing lost.
            (true, PutBack::Copied) => page.stays(Outcome::Busy),
            (false, PutBack::Moved) => {
                let whole = self.arrived_whole(state, page.id, size);
                page.back(whole, Outcome::Dirtied)
            }
            (false, PutBack::Copied) => page.stays_in_part(size, Outcome::Dirtied),
            (_, PutBack::Dropped) => page.stays(Outcome::Gone),
        }
    }

    pub(crate) fn arrived_whole(&self, state: &mut State, id: EntryId, size: PageSize) -> bool {
        size == PageSize::Base4K
            || current(state, id)
                .is_some_and(|(addr, _)| self.pagemap.kind(addr).is_ok_and(|kind| kind.huge))
    }

    /// Protects the pages that are to keep a shadow, neighbours together.
    pub(crate) fn protect_again(&self, state: &mut State, items: &[Item]) {
        let keeps = |item: &Item| {
            let Stage::In(page) = &item.stage else {
                return None;
            };
            let wanted = item.order.wish == Wish::KeepShadow && self.can_have_shadow(&item.order);
            (wanted && page.can_keep_shadow()).then_some(page.id)
        };
        let mut at = 0;
        while at < items.len() {
            let Some(id) = keeps(&items[at]) else {
                at += 1;
                continue;
            };
            let mut run = vec![id];
            let bytes = items[at].order.bytes();
            let start = current(state, id);
            while let Some(next) = items.get(at + run.len()).and_then(keeps)
                && start.is_some_and(|(addr, _)| {
                    let offset = bytes * run.len() as u64;
                    current(state, next) == Some((addr + offset, true))
                })
            {
                run.push(next);
            }
            at += run.len();
            let len = bytes * run.len() as u64;
            if start.is_some_and(|(addr, alive)| alive && self.protect(state, addr, len)) {
                for id in run {
                    // Events may have been handled meanwhile: only an untouched entry goes on.
                    if let Some(entry) = state.pages.get(id)
                        && !entry.dead
                        && !entry.dirty
                    {
                        entry.stage = pages::Stage::Verifying;
                    }
                }
            }
        }
    }
}
