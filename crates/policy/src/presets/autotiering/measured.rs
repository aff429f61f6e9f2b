// SPDX-License-Identifier: MIT OR Apache-2.0
//! What reads of each node were measured to take, from each socket: the order of the nodes by it, where the machine does not
//! describe every way ([`terrace_core::Views::measured`]; sysfs has a node's best initiators only).
//!
//! The least of all measurements counts, which is what a read takes where nothing else waits: an order that followed the
//! load would have pages go back and forth.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Views;

/// Measurements of a way before it counts: the first may all have met some load.
const ENOUGH: u32 = 8;

/// Of a way.
#[derive(Debug, Clone, Copy)]
struct Way {
    least: u32,
    count: u32,
}

/// Of all ways, by the nodes of the processors and of the memory.
#[derive(Debug)]
pub(super) struct Measured {
    described: Views,
    ways: BTreeMap<(NodeId, NodeId), Way>,
}

impl Measured {
    /// Nothing yet, of a machine that is described so.
    pub(super) const fn new(described: Views) -> Self {
        Self {
            described,
            ways: BTreeMap::new(),
        }
    }

    /// A read took so long. Gives the views, where they may be others by that.
    pub(super) fn took(&mut self, from: NodeId, node: NodeId, read: Nanos) -> Option<Views> {
        let read = u32::try_from(read.0).unwrap_or(u32::MAX);
        let way = self.ways.entry((from, node)).or_insert(Way {
            least: u32::MAX,
            count: 0,
        });
        let faster = read < way.least;
        way.least = way.least.min(read);
        way.count = way.count.saturating_add(1);
        if way.count < ENOUGH || way.count > ENOUGH && !faster {
            return None;
        }
        let known = self.ways.iter().filter(|(_, way)| way.count >= ENOUGH);
        let least = known.map(|(ends, way)| (*ends, way.least)).collect();
        Some(self.described.measured(&least))
    }
}
