// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much memory the two tiers have free, between two samples of it.
//!
//! HeMem knows two memories. Here the fastest tier is the one, all others are the other, and each may
//! be several nodes: a migration goes to the roomiest. A sample is true when it is taken and stale at
//! once, so what was ordered since is reckoned with: memory promised to promotions, and memory that
//! demotions under way will give back. Orders that are done but not yet told of (a batch of huge pages
//! ends as one) have changed the free memory already; they must not be reckoned with twice, so what
//! orders under way can explain of a change is left for their end.

use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::Tiers;

#[derive(Debug)]
struct Node {
    id: NodeId,
    fast: bool,
    /// As sampled, but `free_bytes` is what would be free if no order under way had moved anything.
    memory: Option<NodeMemory>,
    promised: u64,
    /// An allocation failed since the last sample.
    full: bool,
}

impl Node {
    /// Free bytes above the kernel's low watermark that nobody was promised.
    fn room(&self) -> u64 {
        let Some(memory) = self.memory.filter(|_| !self.full) else {
            return 0;
        };
        memory
            .free_bytes
            .saturating_sub(self.promised)
            .saturating_sub(memory.low_bytes)
    }
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Pool {
    nodes: Vec<Node>,
    /// What demotions under way will give back.
    leaving: u64,
    fast_bytes: u64,
}

impl Pool {
    pub(super) fn new(tiers: &Tiers) -> Self {
        let node = |info: &terrace_core::NodeInfo| Node {
            id: info.id,
            fast: tiers.is_top(info.id),
            memory: None,
            promised: 0,
            full: false,
        };
        Self {
            nodes: tiers.nodes().iter().map(node).collect(),
            leaving: 0,
            fast_bytes: tiers
                .nodes()
                .iter()
                .filter(|info| tiers.is_top(info.id))
                .map(|info| info.capacity_bytes)
                .sum(),
        }
    }

    fn node(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.iter_mut().find(|node| node.id == id)
    }

    pub(super) fn is_fast(&self, id: NodeId) -> bool {
        self.nodes.iter().any(|node| node.id == id && node.fast)
    }

    pub(super) fn sample(&mut self, id: NodeId, memory: NodeMemory) {
        let leaving = if self.is_fast(id) { self.leaving } else { 0 };
        let Some(node) = self.node(id) else { return };
        let free = memory.free_bytes;
        // What is gone may have been taken by promotions under way, what has come by demotions.
        let settled = node.memory.map_or(free, |before| {
            let (least, most) = (free.saturating_sub(leaving), free + node.promised);
            before.free_bytes.clamp(least, most)
        });
        node.memory = Some(NodeMemory {
            free_bytes: settled,
            ..memory
        });
        node.full = false;
    }

    fn fast(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| node.fast)
    }

    /// Whether the fast tier's memory has been sampled.
    pub(super) fn is_known(&self) -> bool {
        self.fast().any(|node| node.memory.is_some())
    }

    /// The fast tier's size.
    pub(super) const fn fast_bytes(&self) -> u64 {
        self.fast_bytes
    }

    /// The node of the fast (or else the slow) tier with most room, if `bytes` fit there now.
    pub(super) fn roomiest(&self, fast: bool, bytes: u64) -> Option<NodeId> {
        let nodes = self.nodes.iter().filter(|node| node.fast == fast);
        let best = nodes.max_by_key(|node| (node.room(), std::cmp::Reverse(node.id)))?;
        (best.room() >= bytes).then_some(best.id)
    }

    /// Free bytes of the fast tier once all orders under way have ended, less the kernel's high
    /// watermarks and the reserve; negative where that much is missing.
    pub(super) fn surplus(&self, reserve: u64) -> i128 {
        let known = self.fast().filter_map(|node| Some((node, node.memory?)));
        let free: i128 = known
            .map(|(node, memory)| {
                i128::from(memory.free_bytes)
                    - i128::from(node.promised)
                    - i128::from(memory.high_bytes)
            })
            .sum();
        free + i128::from(self.leaving) - i128::from(reserve)
    }

    /// A migration was ordered.
    pub(super) fn ordered(&mut self, to: NodeId, bytes: u64) {
        if !self.is_fast(to) {
            self.leaving += bytes;
        }
        if let Some(node) = self.node(to) {
            node.promised += bytes;
        }
    }

    /// It ended.
    pub(super) fn ended(&mut self, to: NodeId, bytes: u64, moved: bool) {
        let to_fast = self.is_fast(to);
        if !to_fast {
            self.leaving = self.leaving.saturating_sub(bytes);
        }
        if let Some(node) = self.node(to) {
            node.promised = node.promised.saturating_sub(bytes);
            if let Some(memory) = node.memory.as_mut().filter(|_| moved) {
                memory.free_bytes = memory.free_bytes.saturating_sub(bytes);
            }
        }
        // Where it came from: the other tier's node that has least, of which there mostly is one.
        let from = self.nodes.iter_mut().filter(|node| node.fast != to_fast);
        let from = from.min_by_key(|node| node.memory.map_or(u64::MAX, |m| m.free_bytes));
        if let Some(memory) = from.filter(|_| moved).and_then(|node| node.memory.as_mut()) {
            memory.free_bytes = (memory.free_bytes + bytes).min(memory.total_bytes);
        }
    }

    /// An allocation failed there: no room until the next sample.
    pub(super) fn mark_full(&mut self, id: NodeId) {
        if let Some(node) = self.node(id) {
            node.full = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeInfo;
    use terrace_core::TierId;

    use super::*;

    const FAST: NodeId = NodeId(0);
    const SLOW: NodeId = NodeId(1);

    fn pool() -> Pool {
        let node = |id, tier| NodeInfo {
            id,
            tier: TierId(tier),
            capacity_bytes: 1000,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        Pool::new(&Tiers::new(vec![node(FAST, 0), node(SLOW, 1)]))
    }

    fn sample(pool: &mut Pool, free_bytes: u64) {
        let memory = NodeMemory {
            free_bytes,
            low_bytes: 0,
            high_bytes: 0,
            total_bytes: 1000,
        };
        pool.sample(FAST, memory);
    }

    #[test]
    fn what_orders_under_way_have_taken_is_not_reckoned_with_twice() {
        let mut pool = pool();
        sample(&mut pool, 500);
        for _ in 0..3 {
            pool.ordered(FAST, 100);
        }
        assert_eq!(pool.surplus(0), 200);
        // Two are done, but nobody has said so.
        sample(&mut pool, 300);
        assert_eq!(pool.surplus(0), 200);
        // 50 are gone that no order explains.
        sample(&mut pool, 150);
        assert_eq!(pool.surplus(0), 150);
        for _ in 0..3 {
            pool.ended(FAST, 100, true);
        }
        assert_eq!(pool.surplus(0), 150);
        sample(&mut pool, 150);
        assert_eq!((pool.surplus(0), pool.roomiest(true, 151)), (150, None));
    }

    #[test]
    fn what_demotions_have_given_back_is_not_given_twice() {
        let mut pool = pool();
        sample(&mut pool, 100);
        pool.ordered(SLOW, 200);
        assert_eq!(pool.surplus(0), 300);
        sample(&mut pool, 300);
        assert_eq!(pool.surplus(0), 300);
        pool.ended(SLOW, 200, true);
        assert_eq!(pool.surplus(0), 300);
        // It failed: nothing came back.
        pool.ordered(SLOW, 200);
        pool.ended(SLOW, 200, false);
        assert_eq!(pool.surplus(0), 300);
    }
}
