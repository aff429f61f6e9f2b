// SPDX-License-Identifier: MIT OR Apache-2.0
//! Free memory of the nodes, between the samples of it as orders change it.
//!
//! ```text
//! free = sampled - promotions under way        each promotion ordered takes its bytes, one that fails gives them back
//! ```
//!
//! A demotion gives the fast node its bytes only when it has ended. Promotions into room leave the high
//! watermark and the reserve; those that follow a demotion leave the watermark: the kernel's own reclaim
//! begins at the low one, and must not begin for us.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::Tiers;

#[derive(Debug, Clone, Copy, Default)]
struct Room {
    free: i128,
    high: i128,
    /// Bytes of promotions or demotions on their way here.
    coming: i128,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Rooms {
    tiers: Tiers,
    nodes: BTreeMap<NodeId, Room>,
    reserve: Option<u64>,
}

impl Rooms {
    pub(super) fn new(tiers: Tiers, reserve: Option<u64>) -> Self {
        Self {
            tiers,
            nodes: BTreeMap::new(),
            reserve,
        }
    }

    pub(super) fn sampled(&mut self, node: NodeId, memory: NodeMemory) {
        let room = self.nodes.entry(node).or_default();
        room.free = i128::from(memory.free_bytes) - room.coming;
        room.high = i128::from(memory.high_bytes);
    }

    pub(super) fn is_fast(&self, node: NodeId) -> bool {
        self.tiers.is_top(node)
    }

    fn above_high(&self, node: NodeId) -> i128 {
        self.nodes
            .get(&node)
            .map_or(0, |room| room.free - room.high)
    }

    fn reserve(&self) -> i128 {
        let fast = self
            .tiers
            .top()
            .map(|node| node.capacity_bytes)
            .sum::<u64>();
        i128::from(self.reserve.unwrap_or(fast / 1024))
    }

    /// Bytes that promotions can take without a demotion; less than 0 where the reserve is touched.
    pub(super) fn spare(&self) -> i128 {
        let above: i128 = self.tiers.top().map(|node| self.above_high(node.id)).sum();
        above - self.reserve()
    }

    /// Bytes the fast tier is short of its high watermark and the reserve, if it is under the first.
    pub(super) fn shortage(&self) -> i128 {
        let above: i128 = self.tiers.top().map(|node| self.above_high(node.id)).sum();
        if above < 0 { self.reserve() - above } else { 0 }
    }

    /// The fast node with the most room, if that is enough.
    pub(super) fn fast_for(&self, bytes: u64) -> Option<NodeId> {
        self.best(self.tiers.top().map(|node| node.id), bytes)
    }

    /// The node for a demotion: of the first slower tier that has room, the one with the most.
    pub(super) fn slow_for(&self, bytes: u64) -> Option<NodeId> {
        let mut at = self.tiers.top().next()?.id;
        loop {
            let below: Vec<NodeId> = self.tiers.below(at).map(|node| node.id).collect();
            at = *below.first()?;
            if let Some(node) = self.best(below.into_iter(), bytes) {
                return Some(node);
            }
        }
    }

    fn best(&self, nodes: impl Iterator<Item = NodeId>, bytes: u64) -> Option<NodeId> {
        let with_room = nodes.filter(|node| self.above_high(*node) >= i128::from(bytes));
        with_room.max_by_key(|node| (self.above_high(*node), std::cmp::Reverse(*node)))
    }

    pub(super) fn ordered(&mut self, to: NodeId, bytes: u64) {
        let room = self.nodes.entry(to).or_default();
        room.free -= i128::from(bytes);
        room.coming += i128::from(bytes);
    }

    /// An order has ended; `moved` says whether its page is at the target.
    pub(super) fn ended(&mut self, to: NodeId, bytes: u64, moved: bool) {
        let room = self.nodes.entry(to).or_default();
        room.coming -= i128::from(bytes);
        if !moved {
            room.free += i128::from(bytes);
        } else if !self.is_fast(to) {
            // With several fast nodes the next sample says which of them it left.
            let mut top = self.tiers.top();
            if let (Some(only), None) = (top.next(), top.next()) {
                self.nodes.entry(only.id).or_default().free += i128::from(bytes);
            }
        }
    }

    /// Whether there is nothing to move within.
    pub(super) fn unknown(&self) -> bool {
        self.tiers
            .top()
            .any(|node| !self.nodes.contains_key(&node.id))
    }
}
