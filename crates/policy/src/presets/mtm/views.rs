// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which node is faster than which, as the processors see it that access a region (6.2, the multi-view of tiers).

use terrace_core::NodeId;
use terrace_core::Tiers;

use super::regions::Region;

/// The nodes as one processor's node sees them: with their tier, the fastest first.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    nodes: Vec<(NodeId, u16)>,
}

impl View {
    fn new(tiers: &Tiers) -> Self {
        let nodes = tiers.nodes().iter().map(|node| (node.id, node.tier.0));
        Self {
            nodes: nodes.collect(),
        }
    }

    fn tier(&self, id: NodeId) -> Option<u16> {
        let found = self.nodes.iter().find(|(node, _)| *node == id);
        found.map(|(_, tier)| *tier)
    }

    /// Nodes of faster tiers, the fastest first.
    pub(super) fn faster(&self, than: NodeId) -> impl Iterator<Item = NodeId> {
        let own = self.tier(than).unwrap_or(0);
        let nodes = self.nodes.iter().filter(move |(_, tier)| *tier < own);
        nodes.map(|(id, _)| *id)
    }

    /// Nodes of slower tiers, the next one first.
    pub(super) fn slower(&self, than: NodeId) -> impl Iterator<Item = NodeId> {
        let own = self.tier(than).unwrap_or(u16::MAX);
        let nodes = self.nodes.iter().filter(move |(_, tier)| *tier > own);
        nodes.map(|(id, _)| *id)
    }
}

/// Every processor node's view.
#[derive(Debug)]
pub(super) struct Views {
    all: Vec<View>,
    ids: Vec<NodeId>,
    slowest: Vec<NodeId>,
    fastest_bytes: u64,
}

impl Views {
    pub(super) fn new(tiers: &Tiers) -> Self {
        let last = tiers.nodes().last().map(|node| node.tier);
        let slowest = tiers.nodes().iter().filter(|node| Some(node.tier) == last);
        Self {
            all: vec![View::new(tiers)],
            ids: tiers.nodes().iter().map(|node| node.id).collect(),
            slowest: slowest.map(|node| node.id).collect(),
            fastest_bytes: tiers.top().map(|node| node.capacity_bytes).sum(),
        }
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.ids
    }

    /// The nodes of the slowest tier.
    pub(super) fn slowest(&self) -> &[NodeId] {
        &self.slowest
    }

    /// Memory of the fastest tier, bytes.
    pub(super) const fn fastest_bytes(&self) -> u64 {
        self.fastest_bytes
    }

    /// The view of the processors that access a region most.
    pub(super) fn of(&self, _region: &Region) -> &View {
        &self.all[0]
    }
}
