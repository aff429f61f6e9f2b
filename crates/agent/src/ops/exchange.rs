// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exchange: two pages swap their frames. Needs no free page on either node.
//!
//! Both are protected and copied to buffers, then moved out; if they still equal the copies, each
//! frame gets the other's bytes and both are moved in crosswise. The bytes are in the buffers all
//! the time, so nothing is lost if one of the two addresses goes away meanwhile.

use terrace_proto::Outcome;
use terrace_sys::uffd::Protected;

use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::memory;
use crate::ops::mover::PutBack;
use crate::ops::mover::mark_out;
use crate::ops::scratch::Scratch;
use crate::ops::stage::Kind;
use crate::ops::stage::Out;
use crate::ops::stage::Source;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::ranges::For;

impl Agent {
    /// Exchanges a pair of pages of one size; the first item carries the outcome.
    pub(crate) fn exchange(&self, pair: &mut [Item; 2], scratch: &mut Scratch) {
        let bytes = pair[0].order.bytes();
        if pair[0].order.addr.abs_diff(pair[1].order.addr) < bytes {
            pair[0].end(Outcome::NotManaged);
            return;
        }
        // The target of an exchange is where the other page is; being there is no end.
        self.look_unless(pair, |_| None);
        if pair.iter().all(Item::is_open) {
            for (item, addr) in pair.iter_mut().zip(scratch.two_pages(bytes)) {
                let kind = Kind::Buffer;
                item.stage = Stage::Staged(Source { addr, kind });
            }
            self.begin_pair(pair);
            self.copy(pair);
            self.commit_pair(pair);
        }
        spread(pair);
    }

    fn begin_pair(&self, pair: &mut [Item; 2]) {
        let mut guard = self.state.lock();
        let state = &mut *guard;
        for item in pair.iter_mut() {
            self.admit(state, item, For::Absence);
            let (start, len) = (item.order.addr, item.order.bytes());
            if item.waits_in().is_some() && !self.protect(state, start, len) {
                self.abort(state, item, Outcome::Gone);
            }
        }
    }

    fn commit_pair(&self, pair: &mut [Item; 2]) {
        let _gate = self.gate.lock();
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
        self.look_again(state, pair);
        if !self.both_or_none(state, pair) {
            return;
        }
        self.move_out(state, pair);
        let well = match pair {
            [
                Item {
                    stage: Stage::Out(one),
                    order,
                    ..
                },
                Item {
                    stage: Stage::Out(other),
                    ..
                },
            ] => self.cross(state, one, other, order.bytes()),
            _ => Outcome::Busy,
        };
        for item in pair.iter_mut() {
            self.bring_in(state, item, well);
            self.abort(state, item, well);
        }
        self.wake_all(state, pair);
        for item in pair {
            self.finish(state, item);
        }
    }

    /// Before anything moved: if one of the two ended, so does the other.
    fn both_or_none(&self, state: &mut State, pair: &mut [Item; 2]) -> bool {
        let whole = pair.iter().all(|item| item.waits_in().is_some());
        if !whole {
            for item in pair.iter_mut() {
                self.abort(state, item, Outcome::Busy);
            }
        }
        whole
    }

    /// Brings the page of an item that is out in from its slot.
    fn bring_in(&self, state: &mut State, item: &mut Item, well: Outcome) {
        let size = item.order.size;
        item.step(|stage| {
            let Stage::Out(page) = stage else {
                return stage;
            };
            Stage::In(match self.put_back(state, page.id, page.slot()) {
                PutBack::Moved => {
                    let whole = self.arrived_whole(state, page.id, size);
                    page.back(whole, well)
                }
                PutBack::Copied => page.stays_in_part(size, Outcome::Busy),
                PutBack::Dropped => page.stays(Outcome::Gone),
            })
        });
    }

    /// Gives each frame the other page's bytes, if both pages still equal their copies: each slot is the other
    /// page's then.
    fn cross(&self, state: &mut State, one: &mut Out, other: &mut Out, bytes: u64) -> Outcome {
        let true_copy = |page: &Out| {
            // SAFETY: the page was moved out unpinned into our slot; the buffer is ours.
            unsafe { memory::same(page.slot(), page.source.addr, bytes) }
        };
        if !true_copy(one) || !true_copy(other) {
            return Outcome::Dirtied;
        }
        // What was on a swap device keeps its protection on the way.
        let writable = |page: &Out| self.uffd.write_protect(page.slot(), bytes, false);
        if [&*one, &*other].map(writable) != [Ok(Protected::Done); 2] {
            return Outcome::Busy;
        }
        mark_out(state, one.id, one.source.addr, bytes);
        mark_out(state, other.id, other.source.addr, bytes);
        one.exchange(other);
        // SAFETY: slots and buffers are ours, present, and do not overlap.
        unsafe {
            memory::copy(one.source.addr, one.slot(), bytes);
            memory::copy(other.source.addr, other.slot(), bytes);
        }
        Outcome::Done
    }
}

/// The command is about both pages: the first item says how it ended.
fn spread(pair: &mut [Item; 2]) {
    let [first, second] = pair;
    let good = |item: &Item| item.outcome().is_none_or(|o| o == Outcome::Done);
    let span = |item: &Item| item.ended().map(|end| end.inaccessible);
    let inaccessible = span(first).max(span(second)).unwrap_or_default();
    let worse = if good(first) { second } else { &*first };
    if let Some(end) = worse.ended().or_else(|| first.ended()) {
        first.stage = Stage::Ended(End {
            inaccessible,
            ..end
        });
    }
}
