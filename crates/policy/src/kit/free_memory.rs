// SPDX-License-Identifier: MIT OR Apache-2.0
//! Free memory of the nodes between its samples.
//!
//! ```text
//! room     = free - coming - watermark              what migrations there may still take
//! shortage = mark - free - going                    what demotion has to order away
//! surplus  = sum of (free - coming - watermark)     of several nodes; negative where that much is missing
//! ```
//!
//! A sample is true when it is taken and stale at once: what was ordered since takes or gives memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::Tiers;

/// Which of a node's watermarks is to stay free, bytes.
pub type Mark = fn(&NodeMemory) -> u64;

/// The kernel's reclaim begins under it.
pub const LOW: Mark = |memory| memory.low_bytes;
/// The kernel's reclaim ends at it.
pub const HIGH: Mark = |memory| memory.high_bytes;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    memory: Option<NodeMemory>,
    /// Bytes of migrations on their way here.
    coming: u64,
    /// Bytes of migrations on their way from here.
    going: u64,
    /// An allocation failed since the sample.
    full: bool,
}

impl Node {
    /// Bytes that are free above a mark; none where an allocation has just failed.
    fn above(&self, mark: Mark) -> i128 {
        let above = self.memory.map_or(0, |memory| {
            i128::from(memory.free_bytes) - i128::from(self.coming) - i128::from(mark(&memory))
        });
        if self.full { above.min(0) } else { above }
    }
}

/// All nodes'.
#[derive(Debug, Default)]
pub struct FreeMemory {
    tiers: Tiers,
    nodes: BTreeMap<NodeId, Node>,
    /// Bytes of demotions from the fastest tier of which the node was not told.
    leaving: u64,
}

impl FreeMemory {
    /// Of a machine with these tiers, of which nothing is known yet.
    #[must_use]
    pub fn new(tiers: &Tiers) -> Self {
        Self {
            tiers: tiers.clone(),
            ..Self::default()
        }
    }

    /// A node's memory was sampled.
    pub fn sampled(&mut self, id: NodeId, memory: NodeMemory) {
        let node = self.nodes.entry(id).or_default();
        node.memory = Some(memory);
        node.full = false;
    }

    /// A node's memory was sampled while orders under way may have changed it already, of which nobody has told yet
    /// (a batch of huge pages ends as one): what they can explain of a change is left for their end.
    pub fn sampled_amid_orders(&mut self, id: NodeId, memory: NodeMemory) {
        let top = self.tiers.is_top(id);
        let leaving = if top { self.leaving } else { 0 };
        let node = self.nodes.entry(id).or_default();
        let free = memory.free_bytes;
        // What is gone may have been taken by orders to here, what has come by orders from here.
        let free_bytes = node.memory.map_or(free, |before| {
            let least = free.saturating_sub(node.going + leaving);
            before.free_bytes.clamp(least, free + node.coming)
        });
        self.sampled(
            id,
            NodeMemory {
                free_bytes,
                ..memory
            },
        );
    }

    /// The node's memory as it was sampled, with what moved since.
    #[must_use]
    pub fn sample(&self, id: NodeId) -> Option<NodeMemory> {
        self.nodes.get(&id)?.memory
    }

    /// Whether each node of the fastest tier has been sampled.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.tiers.top().all(|node| self.sample(node.id).is_some())
    }

    /// Bytes that migrations to the node may still take, `mark` left free; 0 where nothing is known.
    #[must_use]
    pub fn room(&self, id: NodeId, mark: Mark) -> u64 {
        let node = self.nodes.get(&id);
        node.map_or(0, |node| u64::try_from(node.above(mark)).unwrap_or(0))
    }

    /// Of these nodes the one with the most room, and that room.
    pub fn roomiest(
        &self,
        nodes: impl Iterator<Item = NodeId>,
        mark: Mark,
    ) -> Option<(NodeId, u64)> {
        let rooms = nodes.map(|id| (id, self.room(id, mark)));
        rooms.max_by_key(|(id, room)| (*room, Reverse(*id)))
    }

    /// Bytes that these nodes have free above their marks; less than 0 where they are short of them.
    pub fn above(&self, nodes: impl Iterator<Item = NodeId>, mark: Mark) -> i128 {
        let known = nodes.filter_map(|id| self.nodes.get(&id));
        known.map(|node| node.above(mark)).sum()
    }

    /// The same of the fastest tier.
    #[must_use]
    pub fn surplus(&self, mark: Mark) -> i128 {
        self.above(self.tiers.top().map(|node| node.id), mark)
    }

    /// Bytes that demotions under way will give back to the fastest tier.
    #[must_use]
    pub fn leaving(&self) -> u64 {
        let top = self.tiers.top().filter_map(|node| self.nodes.get(&node.id));
        self.leaving + top.map(|node| node.going).sum::<u64>()
    }

    /// Bytes that demotion has to order away; `mark` says of a node how much is to be free.
    pub fn shortage(&self, id: NodeId, mark: impl FnOnce(&NodeMemory) -> u64) -> u64 {
        let node = self.nodes.get(&id);
        let known = node.and_then(|node| Some((node, node.memory?)));
        known.map_or(0, |(node, memory)| {
            mark(&memory).saturating_sub(memory.free_bytes + node.going)
        })
    }

    /// A migration was ordered. Who does not know where its page is says nothing of `from`.
    pub fn ordered(&mut self, from: impl Into<Option<NodeId>>, to: NodeId, bytes: u64) {
        self.nodes.entry(to).or_default().coming += bytes;
        match from.into() {
            Some(from) => self.nodes.entry(from).or_default().going += bytes,
            None if !self.tiers.is_top(to) => self.leaving += bytes,
            None => {}
        }
    }

    /// A migration ended, ordered with this `from`; `took` memory of its target, `gave` some of its source.
    pub fn ended(
        &mut self,
        (from, to): (impl Into<Option<NodeId>>, NodeId),
        bytes: u64,
        took: bool,
        gave: bool,
    ) {
        let node = self.nodes.entry(to).or_default();
        node.coming = node.coming.saturating_sub(bytes);
        if let Some(memory) = node.memory.as_mut().filter(|_| took) {
            memory.free_bytes = memory.free_bytes.saturating_sub(bytes);
        }
        let from = from.into();
        if let Some(from) = from {
            let node = self.nodes.entry(from).or_default();
            node.going = node.going.saturating_sub(bytes);
        } else if !self.tiers.is_top(to) {
            self.leaving = self.leaving.saturating_sub(bytes);
        }
        let source = from.or_else(|| self.fullest(!self.tiers.is_top(to)));
        let memory = source.and_then(|id| self.nodes.get_mut(&id)?.memory.as_mut());
        if let Some(memory) = memory.filter(|_| gave) {
            memory.free_bytes += bytes;
        }
    }

    /// The node of the fastest tier, or of the others, that has least free: where a page of there probably was.
    fn fullest(&self, top: bool) -> Option<NodeId> {
        let known = self.nodes.iter();
        let known = known.filter_map(|(id, node)| Some((*id, node.memory?.free_bytes)));
        let there = known.filter(|(id, _)| self.tiers.is_top(*id) == top);
        there.min_by_key(|(_, free)| *free).map(|(id, _)| id)
    }

    /// An allocation on the node failed: no room until the next sample.
    pub fn mark_full(&mut self, id: NodeId) {
        self.nodes.entry(id).or_default().full = true;
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeInfo;
    use terrace_core::TierId;

    use super::*;

    const FAST: NodeId = NodeId(0);
    const SLOW: NodeId = NodeId(1);

    fn memory() -> FreeMemory {
        let node = |id, tier| NodeInfo {
            id,
            tier: TierId(tier),
            capacity_bytes: 1000,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        FreeMemory::new(&Tiers::new(vec![node(FAST, 0), node(SLOW, 1)]))
    }

    fn sample(memory: &mut FreeMemory, free_bytes: u64) {
        let sampled = NodeMemory {
            free_bytes,
            low_bytes: 0,
            high_bytes: 0,
            total_bytes: 1000,
        };
        memory.sampled_amid_orders(FAST, sampled);
    }

    fn after_all(memory: &FreeMemory) -> i128 {
        memory.surplus(HIGH) + i128::from(memory.leaving())
    }

    #[test]
    fn what_orders_under_way_have_taken_is_not_reckoned_with_twice() {
        for from in [None, Some(SLOW)] {
            let mut memory = memory();
            sample(&mut memory, 500);
            for _ in 0..3 {
                memory.ordered(from, FAST, 100);
            }
            assert_eq!((memory.surplus(HIGH), memory.room(FAST, HIGH)), (200, 200));
            // Two are done, but nobody has said so.
            sample(&mut memory, 300);
            assert_eq!(memory.surplus(HIGH), 200);
            // 50 are gone that no order explains.
            sample(&mut memory, 150);
            assert_eq!(memory.surplus(HIGH), 150);
            for _ in 0..3 {
                memory.ended((from, FAST), 100, true, true);
            }
            assert_eq!(memory.surplus(HIGH), 150);
            sample(&mut memory, 150);
            assert_eq!(memory.roomiest([FAST].into_iter(), LOW), Some((FAST, 150)));
        }
    }

    #[test]
    fn what_demotions_have_given_back_is_not_given_twice() {
        for from in [None, Some(FAST)] {
            let mut memory = memory();
            sample(&mut memory, 100);
            memory.ordered(from, SLOW, 200);
            assert_eq!((memory.surplus(HIGH), after_all(&memory)), (100, 300));
            sample(&mut memory, 300);
            assert_eq!(after_all(&memory), 300);
            memory.ended((from, SLOW), 200, true, true);
            assert_eq!((after_all(&memory), memory.leaving()), (300, 0));
            // It failed: nothing came back.
            memory.ordered(from, SLOW, 200);
            memory.ended((from, SLOW), 200, false, false);
            assert_eq!(after_all(&memory), 300);
        }
    }

    #[test]
    fn what_was_never_sampled_has_no_room_and_is_short_of_nothing() {
        let mut memory = memory();
        memory.ordered(FAST, SLOW, 100);
        memory.ended((FAST, SLOW), 100, true, true);
        assert_eq!((memory.room(FAST, HIGH), memory.surplus(HIGH)), (0, 0));
        assert_eq!(memory.shortage(FAST, |_| 1000), 0);
        assert!(!memory.is_known() && memory.sample(FAST).is_none());
    }

    #[test]
    fn a_node_whose_allocation_failed_has_no_room_until_it_is_sampled() {
        let mut memory = memory();
        sample(&mut memory, 500);
        memory.mark_full(FAST);
        assert_eq!((memory.room(FAST, HIGH), memory.surplus(HIGH)), (0, 0));
        sample(&mut memory, 500);
        assert_eq!(memory.room(FAST, HIGH), 500);
        assert_eq!(memory.shortage(FAST, |_| 600), 100);
    }
}
