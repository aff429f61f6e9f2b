// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory nodes and the tiers they form.
//!
//! Tier 0 is the fastest. Which node is in which tier comes from the kernel (HMAT and
//! `memory_tiering` in sysfs), from a machine description, or from the operator; here it is a fact.

use std::fmt;

/// A memory node, by the kernel's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tier; 0 is the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TierId(pub u16);

/// What is fixed about a node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeInfo {
    /// The kernel's number.
    pub id: NodeId,
    /// The tier it belongs to.
    pub tier: TierId,
    /// All of its memory, bytes.
    pub capacity_bytes: u64,
    /// Processors on it; none for CXL and persistent memory.
    pub cpus: Vec<u32>,
    /// Read latency from the nearest processor in ns, where known.
    pub read_latency_ns: Option<u32>,
    /// Write latency from the nearest processor in ns, where known.
    pub write_latency_ns: Option<u32>,
    /// Read bandwidth from the nearest processor in MB/s, where known.
    pub read_bandwidth_mbps: Option<u32>,
}

/// What changes about a node, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeMemory {
    /// Not allocated.
    pub free_bytes: u64,
    /// Below this the kernel reclaims by itself (sum of the zones' low watermarks).
    pub low_bytes: u64,
    /// The kernel's reclaim stops here (sum of the zones' high watermarks).
    pub high_bytes: u64,
    /// All of it.
    pub total_bytes: u64,
}

/// The nodes by tier, fastest first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tiers {
    nodes: Vec<NodeInfo>,
}

impl Tiers {
    /// Takes the nodes in any order.
    #[must_use]
    pub fn new(mut nodes: Vec<NodeInfo>) -> Self {
        nodes.sort_by_key(|n| (n.tier, n.id));
        Self { nodes }
    }

    /// All nodes, fastest tier first.
    #[must_use]
    pub fn nodes(&self) -> &[NodeInfo] {
        &self.nodes
    }

    /// The node with that number.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&NodeInfo> {
        self.nodes.iter().find(|n| n.id == id)
    }

    /// The tier of a node.
    #[must_use]
    pub fn tier_of(&self, id: NodeId) -> Option<TierId> {
        self.node(id).map(|n| n.tier)
    }

    /// Whether the node is in the fastest tier.
    #[must_use]
    pub fn is_top(&self, id: NodeId) -> bool {
        self.top().any(|n| n.id == id)
    }

    /// The nodes of the fastest tier.
    pub fn top(&self) -> impl Iterator<Item = &NodeInfo> + Clone {
        // Asked for every hint fault: they come first.
        let fastest = self.nodes.first().map(|n| n.tier);
        self.nodes
            .iter()
            .take_while(move |n| Some(n.tier) == fastest)
    }

    /// How many tiers there are.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut tiers: Vec<_> = self.nodes.iter().map(|n| n.tier).collect();
        tiers.dedup();
        tiers.len()
    }

    /// The nodes of the next faster tier, if there is one.
    pub fn above(&self, id: NodeId) -> impl Iterator<Item = &NodeInfo> {
        let own = self.tier_of(id).unwrap_or_default();
        let target = self.nodes.iter().map(|n| n.tier).filter(|t| *t < own).max();
        self.nodes.iter().filter(move |n| Some(n.tier) == target)
    }

    /// The nodes of the next slower tier, if there is one.
    pub fn below(&self, id: NodeId) -> impl Iterator<Item = &NodeInfo> {
        let own = self.tier_of(id).unwrap_or_default();
        let target = self.nodes.iter().map(|n| n.tier).filter(|t| *t > own).min();
        self.nodes.iter().filter(move |n| Some(n.tier) == target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: u16, tier: u16) -> NodeInfo {
        NodeInfo {
            id: NodeId(id),
            tier: TierId(tier),
            capacity_bytes: 1 << 30,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        }
    }

    #[test]
    fn neighbours_skip_missing_tiers_and_keep_order() {
        let tiers = Tiers::new(vec![node(2, 7), node(0, 4), node(1, 4), node(3, 9)]);
        assert_eq!(tiers.count(), 3);
        assert!(tiers.is_top(NodeId(1)));
        assert!(!tiers.is_top(NodeId(2)));
        let below: Vec<_> = tiers.below(NodeId(1)).map(|n| n.id).collect();
        assert_eq!(below, [NodeId(2)]);
        let above: Vec<_> = tiers.above(NodeId(3)).map(|n| n.id).collect();
        assert_eq!(above, [NodeId(2)]);
        assert_eq!(tiers.below(NodeId(3)).count(), 0);
    }
}
