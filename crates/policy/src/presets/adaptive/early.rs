// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promotion within a pass, while there is room: what pages do is not waited for where a place costs nothing.
//!
//! Pages are queued as they are seen, so those that were seen soonest move first, as fast as the mover goes; the plan at the end of
//! the pass takes the place of what is left.
//!
//! Nothing was measured of a tier while it serves them. So none is filled so that serves no more than the one that pages come from, by
//! what is said of both: how much goes there a plan says, which knows what load does ([`super::balance`]).

use terrace_core::PageBits;

use super::Adaptive;
use super::classes::class_of;
use super::places::PLACES;
use super::places::Place;
use super::queue::Order;
use super::queue::Queue;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;

impl Adaptive {
    /// Pages that were seen within a pass go to the fastest side at once while there is room: the sooner seen, the
    /// sooner they are asked for.
    pub(super) fn promote_early(&mut self, key: Key, pages: PageBits) {
        let Some((process, chunk)) = self.processes.get(&key.0).zip(self.chunks.get(key)) else {
            return;
        };
        let knows = self.memory.is_known() && !self.balance.is_loaded();
        // How much of it is fast a plan says.
        let share = self.shares.get(&key.0).copied().unwrap_or_default();
        if !knows || share.ceiling_bytes.is_some() {
            return;
        }
        let sight = process.sight_of(chunk);
        let queued = |side: usize| self.moves.plan.0.get(side).map_or(0, Queue::queued);
        let spare = |side: usize| self.spare(side) - i128::from(queued(side));
        let fastest =
            (0..self.sides.len()).filter(|side| sight.is_fastest(self.sides.places(*side)[0]));
        // Of several the first with the most room.
        let Some(side) = fastest.rev().max_by_key(|side| spare(*side)) else {
            return;
        };
        let mut room = spare(side);
        let waiting = self
            .moves
            .stays
            .waiting((key, chunk.size()), &self.processes);
        let plan = &mut self.moves.plan.0;
        if plan.len() <= side {
            plan.resize_with(side + 1, Queue::default);
        }
        let size = chunk.size();
        let cost = self.costs.of(size);
        let bytes = i128::from(size.bytes());
        let to = self.sides.places(side)[0];
        let known = self.places.len();
        let serves: [bool; PLACES] =
            std::array::from_fn(|from| from < known && self.serves_more(to, from));
        for page in pages.without(&waiting).pages() {
            if room < bytes {
                break;
            }
            let from = chunk.spread.get(page);
            if !serves[from] {
                continue;
            }
            let saved = sight.saved_ns(from, to);
            if process.values[class_of(chunk.levels[page])] * saved > cost {
                room -= bytes;
                let page = page_of(key, page, size);
                self.moves.plan.0[side].push(Order { page, from });
                self.counters.early += 1;
            }
        }
    }

    /// Whether a place serves more bytes a second than the other, or nobody says.
    fn serves_more(&self, place: Place, other: Place) -> bool {
        let bandwidth = |place: Place| {
            let node = self.places.nodes(place).first()?;
            self.tiers.node(*node)?.read_bandwidth_mbps
        };
        let both = bandwidth(place).zip(bandwidth(other));
        both.is_none_or(|(own, other)| own > other)
    }
}
