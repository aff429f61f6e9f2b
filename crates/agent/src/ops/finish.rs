// SPDX-License-Identifier: MIT OR Apache-2.0
//! The end of a commit: who waits is woken, frames and slots are given back, old pages become shadows.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::ops::clock;
use crate::ops::item::End;
use crate::ops::item::Item;
use crate::ops::item::Order;
use crate::ops::scratch::Scratch;
use crate::ops::stage::Kind;
use crate::ops::stage::Left;
use crate::ops::stage::Slot;
use crate::ops::stage::Source;
use crate::ops::stage::Stage;
use crate::ops::stage::Verifying;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::agent::frame;
use crate::state::pages::Entry;
use crate::state::pages::Stage as Progress;

/// Bytes that one wake covers at most.
const WAKE_SPAN: u64 = 4 << 20;

impl Agent {
    /// Wakes who waits for a page of the chunk, in one call where they lie together. Waking too
    /// many is harmless: they look again.
    pub(crate) fn wake_all(&self, state: &State, items: &[Item]) {
        let mut span: Option<(u64, u64)> = None;
        for item in items {
            let Stage::In(page) = &item.stage else {
                continue;
            };
            // Waiters of a page whose mapping the program moved wait at its old address.
            let old = (item.order.addr, item.order.bytes());
            let places = state.pages.pieces(page.id).map(|p| (p.addr, p.len));
            for (start, len) in std::iter::once(old).chain(places) {
                let end = start + len;
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

    /// Notes how long a page that is in was inaccessible, frees what is free. Only pages that are about
    /// to be verified keep their entry and their old frame.
    pub(crate) fn finish(&self, state: &mut State, item: &mut Item) {
        let (order, from) = (item.order, item.from);
        item.step(|stage| {
            let Stage::In(page) = stage else {
                return stage;
            };
            let inaccessible = clock::now().saturating_sub(page.since);
            let entry = state.pages.get(page.id).copied();
            let page = match entry.filter(|entry| entry.stage == Progress::Verifying) {
                None => page,
                Some(entry) => match page.verify(inaccessible) {
                    Ok(page) if self.options.verify => return Stage::Verifying(page),
                    Ok(page) => return self.keep_shadow(state, &order, from, page, entry),
                    Err(page) => page,
                },
            };
            state.pages.end(page.id);
            if let Some(entry) = entry
                && page.left == Left::Pieces
                && !entry.dead
            {
                // What never moved is still protected.
                self.unprotect(state, entry.addr, order.bytes());
            }
            self.free_slot(state, order.size, page.slot, page.left);
            if let Some(source) = page.unused {
                free_source(state, &order, source);
            }
            Stage::Ended(End {
                inaccessible: Nanos(inaccessible),
                ..page.end
            })
        });
    }

    /// The old page, of the node `from`, is the shadow of the page.
    fn keep_shadow(
        &self,
        state: &mut State,
        order: &Order,
        from: NodeId,
        page: Verifying,
        entry: Entry,
    ) -> Stage {
        let Some(kept) = state.frames.keep(order.size, page.slot()) else {
            return self.shadow_stale(state, order, page, Some(entry));
        };
        state.pages.end(page.id);
        // The slot went back when it was emptied.
        let (ended, _) = page.end(Outcome::Done);
        self.add_shadow(state, entry.addr, frame(kept, from));
        ended
    }

    /// Compares the protected pages with their old frames; what is equal is a shadow.
    pub(crate) fn verify(&self, items: &mut [Item], scratch: &mut Scratch) {
        for item in items.iter_mut() {
            let (order, from) = (item.order, item.from);
            item.step(|stage| {
                let Stage::Verifying(page) = stage else {
                    return stage;
                };
                let equal = scratch.program_page_equals(order.addr, page.slot(), order.bytes());
                let mut guard = self.state.lock();
                let state = &mut *guard;
                let entry = state.pages.get(page.id).copied();
                let alive = entry.filter(|entry| !entry.dead);
                let unwritten = |addr| self.pagemap.is_write_protected(addr);
                match alive {
                    Some(entry) if equal && !entry.dirty && unwritten(entry.addr) => {
                        self.keep_shadow(state, &order, from, page, entry)
                    }
                    alive => self.shadow_stale(state, &order, page, alive),
                }
            });
        }
    }

    /// The page has moved all the same; its old one is nothing.
    fn shadow_stale(
        &self,
        state: &mut State,
        order: &Order,
        page: Verifying,
        alive: Option<Entry>,
    ) -> Stage {
        let mut outcome = Outcome::Done;
        if let Some(entry) = alive {
            outcome = Outcome::DoneShadowStale;
            self.unprotect(state, entry.addr, order.bytes());
        }
        state.pages.end(page.id);
        let (ended, slot) = page.end(outcome);
        self.free_slot(state, order.size, slot, Left::Page);
        ended
    }

    /// The page is done with its slot.
    pub(crate) fn free_slot(&self, state: &mut State, size: PageSize, slot: Slot, left: Left) {
        let addr = slot.give_away();
        match left {
            Left::Nothing => state.frames.give_empty(size, addr),
            Left::Page => state.frames.bury(size, [addr]),
            Left::Pieces => state.frames.renew(size, addr),
            // Its address is not used again.
            Left::Unknown => {}
        }
    }
}

/// The page does without the frame.
pub(crate) fn free_source(state: &mut State, order: &Order, source: Source) {
    if source.kind != Kind::Buffer {
        let frame = frame(source.give_away(), order.node);
        state.frames.release(order.size, frame);
    }
}
