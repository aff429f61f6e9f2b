// SPDX-License-Identifier: MIT OR Apache-2.0
//! Free memory of the nodes between its samples.
//!
//! ```text
//! room     = free - promised here - high watermark       what promotions may take
//! shortage = mark - free - demotions under way           what demotion has to order away
//! ```
//!
//! A sample is true when it is taken; what was ordered since takes or gives memory.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::NodeMemory;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    memory: NodeMemory,
    /// Bytes of migrations on their way here.
    coming: u64,
    /// Bytes of demotions on their way from here.
    going: u64,
    /// An allocation failed since the sample.
    full: bool,
}

/// All nodes'.
#[derive(Debug, Default)]
pub struct FreeMemory {
    nodes: BTreeMap<NodeId, Node>,
}

impl FreeMemory {
    /// A node's memory was sampled.
    pub fn sampled(&mut self, id: NodeId, memory: NodeMemory) {
        let node = self.nodes.entry(id).or_default();
        node.memory = memory;
        node.full = false;
    }

    /// Bytes that promotions may still take; 0 where nothing is known.
    #[must_use]
    pub fn room(&self, id: NodeId) -> u64 {
        let node = self.nodes.get(&id).filter(|node| !node.full);
        node.map_or(0, |node| {
            let taken = node.coming + node.memory.high_bytes;
            node.memory.free_bytes.saturating_sub(taken)
        })
    }

    /// Bytes that demotion has to order away; `mark` says of a node how much is to be free.
    pub fn shortage(&self, id: NodeId, mark: impl FnOnce(&NodeMemory) -> u64) -> u64 {
        let node = self.nodes.get(&id);
        node.map_or(0, |node| {
            mark(&node.memory).saturating_sub(node.memory.free_bytes + node.going)
        })
    }

    /// A migration was ordered.
    pub fn ordered(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.nodes.entry(to).or_default().coming += bytes;
        self.nodes.entry(from).or_default().going += bytes;
    }

    /// A migration ended; `took` memory of its target, `gave` some of its source.
    pub fn ended(&mut self, (from, to): (NodeId, NodeId), bytes: u64, took: bool, gave: bool) {
        let node = self.nodes.entry(to).or_default();
        node.coming = node.coming.saturating_sub(bytes);
        if took {
            node.memory.free_bytes = node.memory.free_bytes.saturating_sub(bytes);
        }
        let node = self.nodes.entry(from).or_default();
        node.going = node.going.saturating_sub(bytes);
        if gave {
            node.memory.free_bytes += bytes;
        }
    }

    /// An allocation on the node failed: no room until the next sample.
    pub fn mark_full(&mut self, id: NodeId) {
        self.nodes.entry(id).or_default().full = true;
    }
}
