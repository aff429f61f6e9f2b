// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much room each node has, between two samples of its memory.
//!
//! A sample is true when it is taken and stale at once: migrations under way will take or give
//! memory. So room = last sample - what was promised since.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::NodeMemory;

#[derive(Debug, Clone, Copy, Default)]
struct Node {
    memory: NodeMemory,
    promised: u64,
    full: bool,
}

/// All nodes' room.
#[derive(Debug, Default)]
pub struct Rooms {
    nodes: BTreeMap<NodeId, Node>,
    headroom_1024: u64,
}

impl Rooms {
    /// Keeps `headroom_1024`/1024 of each node free beyond the kernel's high watermark.
    #[must_use]
    pub const fn new(headroom_1024: u64) -> Self {
        Self {
            nodes: BTreeMap::new(),
            headroom_1024,
        }
    }

    /// Takes a sample.
    pub fn sample(&mut self, id: NodeId, memory: NodeMemory) {
        let node = self.nodes.entry(id).or_default();
        node.memory = memory;
        node.full = false;
    }

    /// Free memory that shall stay: the kernel's high watermark and our headroom.
    #[must_use]
    pub fn target(&self, id: NodeId) -> u64 {
        let Some(node) = self.nodes.get(&id) else {
            return 0;
        };
        node.memory.high_bytes + node.memory.total_bytes / 1024 * self.headroom_1024
    }

    /// Bytes that may still be allocated on the node; 0 where nothing is known.
    #[must_use]
    pub fn room(&self, id: NodeId) -> u64 {
        let Some(node) = self.nodes.get(&id) else {
            return 0;
        };
        if node.full {
            return 0;
        }
        node.memory
            .free_bytes
            .saturating_sub(node.promised)
            .saturating_sub(self.target(id))
    }

    /// Bytes that must be freed for the target to be met.
    #[must_use]
    pub fn shortage(&self, id: NodeId) -> u64 {
        let Some(node) = self.nodes.get(&id) else {
            return 0;
        };
        self.target(id).saturating_sub(node.memory.free_bytes)
    }

    /// The last sample.
    #[must_use]
    pub fn memory(&self, id: NodeId) -> Option<NodeMemory> {
        self.nodes.get(&id).map(|node| node.memory)
    }

    /// A migration to the node was ordered.
    pub fn promise(&mut self, id: NodeId, bytes: u64) {
        self.nodes.entry(id).or_default().promised += bytes;
    }

    /// It ended, so or so; `taken` says whether it took the memory.
    pub fn settle(&mut self, id: NodeId, bytes: u64, taken: bool) {
        let node = self.nodes.entry(id).or_default();
        node.promised = node.promised.saturating_sub(bytes);
        if taken {
            node.memory.free_bytes = node.memory.free_bytes.saturating_sub(bytes);
        }
    }

    /// A page left the node and kept no shadow there.
    pub fn released(&mut self, id: NodeId, bytes: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.memory.free_bytes = (node.memory.free_bytes + bytes).min(node.memory.total_bytes);
        }
    }

    /// An allocation on the node failed: no room until the next sample.
    pub fn mark_full(&mut self, id: NodeId) {
        self.nodes.entry(id).or_default().full = true;
    }
}
