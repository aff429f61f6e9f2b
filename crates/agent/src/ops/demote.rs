// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion: onto the shadow without a copy where the page has one, else by a transaction, if the
//! supervisor has no better way.
//!
//! A shadow was equal to its page when it was made, and counts while the page is write-protected. That is
//! looked up first. A write can come right after, a device that pinned the page trips no protection, and page
//! merging loses it: so the page, once moved out and hence out of everybody's reach, is compared with the
//! shadow. Unequal: it goes back and is migrated by copy. That is a read of both pages, no allocation and no
//! write.
//!
//! Until then the kernel may have taken the shadow's memory back ([`Agent::add_shadow`]). So it is written to first,
//! without a change: from then on the kernel leaves it, and if it was gone, it is a page of zeros, which the
//! comparison finds.
//!
//! Between move out and move in, two calls and a comparison, the address is empty.

use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::ops::item::Item;
use crate::ops::item::Wish;
use crate::ops::item::neighbours;
use crate::ops::memory;
use crate::ops::scratch::Scratch;
use crate::ops::stage::Admitted;
use crate::ops::stage::Kind;
use crate::ops::stage::Source;
use crate::ops::stage::Stage;
use crate::state::agent::Agent;
use crate::state::agent::State;
use crate::state::ranges::For;

/// Neighbours of one lock section at most.
const CHUNK: usize = 16;

impl Agent {
    /// Runs a batch of pages of one size; afterwards each item has an outcome.
    pub(crate) fn demote(&self, items: &mut [Item], scratch: &mut Scratch) {
        items.sort_unstable_by_key(|item| item.order.addr);
        let small = |item: &Item| item.order.size == PageSize::Base4K;
        let step = if items.first().is_some_and(small) {
            CHUNK
        } else {
            1
        };
        for chunk in neighbours(items).flat_map(|run| run.chunks_mut(step)) {
            self.demote_onto_shadows(chunk);
        }
        items.sort_by_key(|item| !item.is_open());
        let open = items.partition_point(Item::is_open);
        if open > 0 {
            self.migrate(&mut items[..open], scratch);
        }
    }

    /// What stays open can go by copy.
    fn demote_onto_shadows(&self, items: &mut [Item]) {
        {
            let mut state = self.state.lock();
            for item in items.iter_mut().filter(|item| item.is_open()) {
                self.take_up_shadow(&mut state, item);
            }
        }
        let tried: Vec<bool> = items.iter().map(|i| i.waits_in().is_some()).collect();
        self.commit(items);
        for (item, tried) in items.iter_mut().zip(tried) {
            // It was not equal after all, and nothing happened.
            if tried && item.outcome() == Some(Outcome::Dirtied) {
                item.stage = Stage::Waiting;
            }
            if item.order.wish == Wish::OntoShadow {
                item.end(Outcome::NoShadow);
            }
        }
    }

    /// Makes the page's shadow the frame to move in, if it has one on the target node.
    fn take_up_shadow(&self, state: &mut State, item: &mut Item) {
        let order = item.order;
        let shadow = match state.shadows.of(order.addr) {
            Some(shadow) if order.size == PageSize::Base4K => shadow,
            _ => return,
        };
        let usable = shadow.frame.node == order.node
            && self.pagemap.is_write_protected(order.addr)
            && !self.is_pending_drop(state, order.addr, order.end())
            && self.register(state, &order, For::Absence).is_ok();
        if !usable {
            self.drop_shadows(state, order.addr, order.end());
            return;
        }
        let Some(id) = state.pages.begin(order.addr, order.size) else {
            item.end(Outcome::Busy);
            return;
        };
        state.shadows.take_over(order.addr, order.end());
        // SAFETY: a frame of ours that nothing refers to.
        unsafe { memory::take_back(shadow.frame.addr) };
        let source = Source {
            addr: shadow.frame.addr,
            kind: Kind::Shadow,
        };
        item.stage = Stage::Admitted(Admitted { id, source });
    }
}
