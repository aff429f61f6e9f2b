// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the operator says of the nodes, where the machine does not say it, or says it wrongly.

use std::collections::BTreeMap;

use terrace_core::AccessPath;
use terrace_core::GivenWay;
use terrace_core::NodeId;
use terrace_core::NodeInfo;

use super::TopologyError;

/// The operator's tiers and ways to memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Override {
    /// The nodes of each tier, fastest first, every node with memory once; `None`: as the machine has it.
    pub tiers: Option<Vec<Vec<NodeId>>>,
    /// Ways from nodes of processors to memory nodes, each at most once. What one leaves out is as the machine has it.
    pub paths: Vec<AccessPath>,
    /// Ways of pages, where those that follow from the order of the nodes are not wanted.
    pub ways: Vec<GivenWay>,
}

impl Override {
    /// Whether it fits a machine with memory on these nodes and processors on those.
    pub(super) fn check(&self, have: &[NodeId], cpu_nodes: &[NodeId]) -> Result<(), TopologyError> {
        if let Some(tiers) = &self.tiers {
            check_tiers(tiers, have)?;
        }
        for (at, path) in self.paths.iter().enumerate() {
            let (from, to) = (path.from, path.to);
            if !cpu_nodes.contains(&from) {
                let have = cpu_nodes.to_vec();
                return Err(TopologyError::NoProcessors { from, to, have });
            }
            if !have.contains(&to) {
                let have = have.to_vec();
                return Err(TopologyError::NoMemory { from, to, have });
            }
            let same = |other: &AccessPath| (other.from, other.to) == (from, to);
            if self.paths[..at].iter().any(same) {
                return Err(TopologyError::PathTwice { from, to });
            }
        }
        Ok(())
    }

    /// Puts what is said of the ways to a node into its own figures, which are those of who reaches it best.
    pub(super) fn describe(&self, node: &mut NodeInfo) {
        let paths = || self.paths.iter().filter(|path| path.to == node.id);
        let latency = paths().filter_map(|path| path.read_latency_ns).min();
        let bandwidth = paths().filter_map(|path| path.read_bandwidth_mbps).max();
        node.read_latency_ns = latency.or(node.read_latency_ns);
        node.read_bandwidth_mbps = bandwidth.or(node.read_bandwidth_mbps);
    }

    /// Puts the distances that are said over those of the machine.
    pub(super) fn stretch(&self, distances: &mut BTreeMap<(NodeId, NodeId), u32>) {
        let said = self.paths.iter();
        distances.extend(said.filter_map(|path| Some(((path.from, path.to), path.distance?))));
    }

    /// A way, with what is said of it over what the machine says.
    pub(super) fn over(&self, path: AccessPath) -> AccessPath {
        let same = |said: &&AccessPath| (said.from, said.to) == (path.from, path.to);
        let Some(said) = self.paths.iter().find(same) else {
            return path;
        };
        AccessPath {
            read_latency_ns: said.read_latency_ns.or(path.read_latency_ns),
            read_bandwidth_mbps: said.read_bandwidth_mbps.or(path.read_bandwidth_mbps),
            ..path
        }
    }
}

fn check_tiers(tiers: &[Vec<NodeId>], have: &[NodeId]) -> Result<(), TopologyError> {
    for (tier, nodes) in tiers.iter().enumerate() {
        if let Some(&node) = nodes.iter().find(|node| !have.contains(node)) {
            let have = have.to_vec();
            return Err(TopologyError::NoSuchNode { tier, node, have });
        }
    }
    let times = |node: &NodeId| tiers.iter().flatten().filter(|n| *n == node).count();
    match have.iter().find(|node| times(node) != 1) {
        Some(node) => Err(TopologyError::NotOnce(*node)),
        None => Ok(()),
    }
}
