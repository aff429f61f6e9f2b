// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an access saves in fast memory: as measured under the present load, else as the machine says.
//!
//! ```text
//! read(node) = 7/8 read(node) + 1/8 measured        the first measurement counts whole
//! saved      = mean over the slower nodes - mean over the fastest tier's, at least 0
//! ```
//!
//! So the value of a move goes to 0 as a loaded fast tier comes to be as slow as the other, and migration stops.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::Tiers;

/// ns a read takes where nobody knows: DRAM's, and memory's behind CXL.
const FAST_NS: f64 = 100.0;
const SLOW_NS: f64 = 250.0;

/// Of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    tiers: Tiers,
    measured: BTreeMap<NodeId, f64>,
}

impl Latencies {
    pub(super) const fn new(tiers: Tiers) -> Self {
        Self {
            tiers,
            measured: BTreeMap::new(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a time of microseconds at most")]
    pub(super) fn measured(&mut self, node: NodeId, read: Nanos) {
        let now = read.0 as f64;
        let kept = self.measured.entry(node).or_insert(now);
        *kept += (now - *kept) / 8.0;
    }

    /// What a read takes of slow memory, and of fast memory, ns.
    pub(super) fn reads_ns(&self) -> [f64; 2] {
        let slow = self.tiers.nodes().iter();
        let slow = slow.filter(|node| !self.tiers.is_top(node.id));
        [
            self.mean(slow, SLOW_NS),
            self.mean(self.tiers.top(), FAST_NS),
        ]
    }

    /// What an access saves, ns.
    pub(super) fn saved_ns(&self) -> f64 {
        let [slow, fast] = self.reads_ns();
        (slow - fast).max(0.0)
    }

    fn mean<'a>(&self, nodes: impl Iterator<Item = &'a NodeInfo>, default: f64) -> f64 {
        let said = |node: &NodeInfo| node.read_latency_ns.map(f64::from);
        let known = |node: &NodeInfo| self.measured.get(&node.id).copied().or(said(node));
        let (sum, count) = nodes
            .filter_map(known)
            .fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
        if count > 0.0 { sum / count } else { default }
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::TierId;

    use super::*;

    #[test]
    fn what_is_measured_counts_before_what_is_said() {
        let node = |id: u16, read_latency_ns| NodeInfo {
            id: NodeId(id),
            tier: TierId(id),
            capacity_bytes: 1 << 30,
            cpus: Vec::new(),
            read_latency_ns,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        let unknown = Latencies::new(Tiers::new(vec![node(0, None), node(1, None)]));
        assert!((unknown.saved_ns() - 150.0).abs() < 1e-9);
        let mut known = Latencies::new(Tiers::new(vec![node(0, Some(80)), node(1, Some(250))]));
        assert!((known.saved_ns() - 170.0).abs() < 1e-9);
        known.measured(NodeId(0), Nanos(1_600));
        known.measured(NodeId(1), Nanos(5_000));
        assert!((known.saved_ns() - 3_400.0).abs() < 1e-9);
        // Loaded until it is no faster.
        for _ in 0..100 {
            known.measured(NodeId(0), Nanos(9_000));
        }
        assert!(known.saved_ns() < 1e-9);
    }
}
