// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange: two pages swap their frames. Needs no free page on either node.
//!
//! Both are protected and copied to buffers, then moved out; if they still equal the copies, each
//! frame gets the other's bytes and both are moved in crosswise. The bytes are in the buffers all
//! the time, so nothing is lost if one of the two addresses goes away meanwhile.

use terrace_proto::Outcome;
use terrace_sys::self_memory;
use terrace_sys::self_memory::Piece;

use crate::agent::Agent;
use crate::agent::State;
use crate::clock;
use crate::item::Item;
use crate::memory;
use crate::mover::PutBack;
use crate::mover::mark_out;
use crate::scratch::Scratch;

impl Agent {
    /// Exchanges a pair of pages of one size; the first item carries the outcome.
    pub(crate) fn exchange(&self, pair: &mut [Item; 2], scratch: &mut Scratch) {
        let bytes = pair[0].bytes();
        if pair[0].addr.abs_diff(pair[1].addr) < bytes {
            pair[0].outcome = Some(Outcome::NotManaged);
            return;
        }
        self.look_at_pair(pair);
        if !pair.iter().all(Item::is_open) {
            spread(pair);
            return;
        }
        let copies = scratch.two_pages(bytes);
        self.begin_pair(pair);
        for (item, to) in pair.iter_mut().zip(copies) {
            let piece = Piece {
                from: item.addr,
                to,
                len: bytes,
            };
            // SAFETY: the buffers are this worker's own and of that size.
            if item.id.is_some() && unsafe { self_memory::copy_in(&[piece]) } != Ok(bytes) {
                self.abort(&mut self.state.lock(), item, Outcome::Busy);
            }
        }
        self.commit_pair(pair, copies);
        spread(pair);
        self.unstage(pair);
    }

    fn look_at_pair(&self, pair: &mut [Item; 2]) {
        let targets = [pair[0].node, pair[1].node];
        self.look(pair);
        for (item, target) in pair.iter_mut().zip(targets) {
            // The target of an exchange is where the other page is; being there is no end.
            if item.outcome == Some(Outcome::Done) {
                item.outcome = None;
            }
            item.node = target;
        }
    }

    fn begin_pair(&self, pair: &mut [Item; 2]) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for item in pair.iter_mut() {
            match self.admit(state, item) {
                Ok(()) => {
                    if !self.protect(state, item.addr, item.bytes()) {
                        self.abort(state, item, Outcome::Gone);
                    }
                }
                Err(why) => item.outcome = Some(why),
            }
        }
    }

    fn commit_pair(&self, pair: &mut [Item; 2], copies: [u64; 2]) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.settle_dirty(state, pair);
        if !self.both_or_none(state, pair) {
            return;
        }
        self.take_slots(state, pair);
        if !self.both_or_none(state, pair) {
            return;
        }
        self.move_out(state, pair);
        let both = pair.iter().all(|item| item.out);
        let bytes = pair[0].bytes();
        let slots = [pair[0].slot, pair[1].slot];
        let equal = both
            && slots.iter().zip(copies).all(|(slot, copy)| {
                // SAFETY: the page was moved out unpinned into our slot; the buffer is ours.
                slot.is_some_and(|slot| unsafe { memory::same(slot, copy, bytes) })
            });
        let [Some(x), Some(y)] = slots else {
            self.roll_back(state, pair, Outcome::Busy);
            return;
        };
        if !equal {
            let why = if both {
                Outcome::Dirtied
            } else {
                Outcome::Busy
            };
            self.roll_back(state, pair, why);
            return;
        }
        mark_out(state, &pair[0], copies[0], bytes);
        mark_out(state, &pair[1], copies[1], bytes);
        // SAFETY: slots and buffers are ours, present, and do not overlap.
        unsafe {
            memory::copy(copies[1], x, bytes);
            memory::copy(copies[0], y, bytes);
        }
        self.put(state, &mut pair[0], y, Outcome::Done);
        self.put(state, &mut pair[1], x, Outcome::Done);
        // Each page left its frame in its slot, and that frame is the other's now.
        let [first, second] = pair;
        std::mem::swap(&mut first.slot, &mut second.slot);
        std::mem::swap(&mut first.old_node, &mut second.old_node);
        first.torn |= second.torn;
        second.torn = first.torn;
        self.end_pair(state, pair);
    }

    /// Before anything moved: if one of the two ended, so does the other.
    fn both_or_none(&self, state: &mut State, pair: &mut [Item; 2]) -> bool {
        let whole = pair.iter().all(|item| item.id.is_some());
        if !whole {
            for item in pair.iter_mut() {
                self.abort(state, item, Outcome::Busy);
            }
        }
        whole
    }

    fn roll_back(&self, state: &mut State, pair: &mut [Item; 2], why: Outcome) {
        for item in pair.iter_mut() {
            match (item.out, item.slot) {
                (true, Some(slot)) => self.put(state, item, slot, why),
                _ => self.abort(state, item, why),
            }
        }
        self.end_pair(state, pair);
    }

    /// Brings a page in from a frame; `out` then says whether that frame is still there.
    fn put(&self, state: &mut State, item: &mut Item, from: u64, well: Outcome) {
        match self.put_back(state, item, from) {
            PutBack::Moved => {
                item.torn |= !self.arrived_whole(state, item);
                item.out = false;
                item.outcome.get_or_insert(well);
            }
            PutBack::Copied => {
                item.outcome.get_or_insert(Outcome::Busy);
            }
            PutBack::Dropped => {
                item.outcome.get_or_insert(Outcome::Gone);
            }
        }
    }

    fn end_pair(&self, state: &mut State, pair: &mut [Item; 2]) {
        let outs = [pair[0].out, pair[1].out];
        for (item, frame_left) in pair.iter_mut().zip(outs) {
            let Some(entry) = item.id.take().and_then(|id| state.pages.end(id)) else {
                continue;
            };
            if item.since != 0 {
                item.inaccessible = clock::now().saturating_sub(item.since);
            }
            self.uffd.wake(entry.addr, item.bytes());
            self.uffd.wake(item.addr, item.bytes());
            item.out = frame_left;
            self.free_old(state, item);
        }
    }
}

/// The command is about both pages: the first item says how it ended.
fn spread(pair: &mut [Item; 2]) {
    let [first, second] = pair;
    let good = |outcome: Option<Outcome>| outcome.is_none_or(|o| o == Outcome::Done);
    if good(first.outcome) && !good(second.outcome) {
        first.outcome = second.outcome;
        first.errno = second.errno;
    }
    first.inaccessible = first.inaccessible.max(second.inaccessible);
}
