// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion: onto the shadow without a copy where the page has one, else by a transaction, if the
//! supervisor has no better way.
//!
//! A shadow was equal to its page when it was made, and the page has been write-protected since.
//! Two things can still have changed the page without a fault: a device that pinned it in the
//! moment between its move in and its protection, and a mechanism that loses the protection (page
//! merging does). So the protection is looked up first, and the page, once moved out and hence out
//! of everybody's reach, is compared with the shadow. Unequal: it goes back and is migrated by
//! copy. That is a read of both pages, no allocation and no write.

use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::agent::Agent;
use crate::agent::State;
use crate::item::Item;
use crate::item::neighbours;
use crate::scratch::Scratch;

/// Neighbours of one lock section at most.
const CHUNK: usize = 16;

impl Agent {
    /// Runs a batch of pages of one size; afterwards each item has an outcome.
    pub(crate) fn demote(&self, items: &mut [Item], scratch: &mut Scratch) {
        items.sort_unstable_by_key(|item| item.addr);
        let step = if items.first().is_some_and(|i| i.size == PageSize::Base4K) {
            CHUNK
        } else {
            1
        };
        let chunks = neighbours(items).flat_map(|run| run.chunks_mut(step));
        for chunk in chunks {
            {
                let mut state = self.state.lock();
                for item in chunk.iter_mut().filter(|item| item.is_open()) {
                    self.take_up_shadow(&mut state, item);
                }
            }
            self.commit(chunk);
            for item in chunk.iter_mut().filter(|item| item.onto_shadow) {
                item.onto_shadow = false;
                item.certain = false;
                // It was not equal after all, and nothing happened: by copy, then.
                if item.outcome == Some(Outcome::Dirtied) {
                    item.outcome = None;
                }
            }
            for item in chunk.iter_mut().filter(|item| item.shadow_only) {
                item.outcome.get_or_insert(Outcome::NoShadow);
            }
            self.unstage(chunk);
        }
        let mut rest: Vec<Item> = items.iter().filter(|i| i.is_open()).copied().collect();
        if !rest.is_empty() {
            self.migrate(&mut rest, scratch);
            for done in rest {
                if let Some(item) = items.iter_mut().find(|item| item.seq == done.seq) {
                    *item = done;
                }
            }
        }
    }

    /// Makes the page's shadow the frame to move in, if it has one on the target node.
    fn take_up_shadow(&self, state: &mut State, item: &mut Item) {
        let Some(shadow) = state.pages.shadow(item.addr, item.size) else {
            return;
        };
        let usable = shadow.frame.node == item.node
            && self.pagemap.is_write_protected(item.addr)
            && (item.size == PageSize::Base4K || self.has_size(item))
            && !self.is_doomed(state, item.addr, item.end());
        if !usable {
            self.drop_shadows(state, item.addr, item.end());
            return;
        }
        let Some(id) = state.pages.begin(item.addr, item.size) else {
            item.outcome = Some(Outcome::Busy);
            return;
        };
        state.pages.take_shadow_over(item.addr, item.end());
        item.id = Some(id);
        item.staged = Some(shadow.frame.addr);
        item.old_node = shadow.page_node;
        item.onto_shadow = true;
        item.certain = shadow.certain || !self.options.verify;
    }
}
