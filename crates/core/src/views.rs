// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory as each node of processors sees it: its own order of the nodes, and the ways pages may go.
//!
//! Access tier first, locality second (AutoTiering 3.1, figures 1 and 5): remote DRAM comes before local
//! persistent memory. The tier of a node is what it is made of and the same for all ([`Tiers`], or
//! [`classes`] of latencies); within a tier those come first that these processors reach fastest: by latency
//! and then bandwidth where they are known of the whole tier, else by distance, else as the nodes are numbered. Where
//! latencies are not, what reads were measured to take goes before that ([`Views::measured`]).
//!
//! ```text
//! promotion  to a higher tier, the best node first       migration  to a better node of the same tier
//! demotion   to the next lower tier, the best node first
//! ```
//!
//! Promotion and migration lead to better nodes only, demotion to lower tiers only: no way of one kind is a circle.
//! Single ways can be said ([`ways`]).

mod ways;

use std::collections::BTreeMap;

use crate::NodeId;
use crate::TierId;
use crate::Tiers;

pub use self::ways::GivenWay;
pub use self::ways::WayError;
pub use self::ways::WayKind;

/// Latencies this much apart are of different tiers: 5/4, about what the kernel's own rule makes of them
/// (`MEMTIER_CHUNK_SIZE` against the abstract distance of DRAM).
const NEXT_TIER_NUMERATOR: u64 = 5;
const NEXT_TIER_DENOMINATOR: u64 = 4;

/// What the processors of one node see of one memory node; what is not known is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessPath {
    /// The node of the processors.
    pub from: NodeId,
    /// The memory node.
    pub to: NodeId,
    /// Latency of a read, ns.
    pub read_latency_ns: Option<u32>,
    /// Bandwidth of reads, MB/s.
    pub read_bandwidth_mbps: Option<u32>,
    /// As the ACPI SLIT has it: 10 is local.
    pub distance: Option<u32>,
}

/// A memory node in a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The node.
    pub node: NodeId,
    /// Its tier.
    pub tier: TierId,
    /// What is known of the way there.
    pub path: AccessPath,
}

/// The memory nodes as the processors of one node see them, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The node of the processors.
    pub from: NodeId,
    nodes: Vec<Seen>,
    /// Those that are said.
    ways: Vec<GivenWay>,
}

/// A view for each node with processors; at least one where there is memory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Views {
    views: Vec<View>,
}

impl Views {
    /// Of nodes with these tiers, from each of these nodes of processors. Paths may be lacking. Where no node
    /// has processors, the first node of the fastest tier stands for one.
    #[must_use]
    pub fn new(tiers: &Tiers, cpu_nodes: &[NodeId], paths: &[AccessPath]) -> Self {
        let mut from = cpu_nodes.to_vec();
        from.sort_unstable();
        from.dedup();
        if from.is_empty() {
            from.extend(tiers.nodes().first().map(|node| node.id));
        }
        let view = |from| View::new(tiers, from, paths);
        Self {
            views: from.into_iter().map(view).collect(),
        }
    }

    /// Where nothing is known but the tiers: each node with processors is nearest to itself.
    #[must_use]
    pub fn of_tiers(tiers: &Tiers) -> Self {
        let with = tiers.nodes().iter().filter(|node| !node.cpus.is_empty());
        let cpu_nodes: Vec<NodeId> = with.map(|node| node.id).collect();
        Self::new(tiers, &cpu_nodes, &[])
    }

    /// The same by what reads were measured to take, ns, by the nodes of the processors and of the memory: of a tier all
    /// of whose reads were measured, and not all described, those come first that are a class faster ([`classes`]).
    #[must_use]
    pub fn measured(&self, reads: &BTreeMap<(NodeId, NodeId), u32>) -> Self {
        let mut views = self.views.clone();
        for view in &mut views {
            for tier in view.nodes.chunk_by_mut(|one, other| one.tier == other.tier) {
                let read = |seen: &Seen| Some((seen.node, *reads.get(&(view.from, seen.node))?));
                let all: Option<Vec<_>> = tier.iter().map(read).collect();
                let described = tier.iter().all(|seen| seen.path.read_latency_ns.is_some());
                if let Some(all) = all.filter(|_| !described) {
                    let classes: BTreeMap<NodeId, TierId> = classes(&all).into_iter().collect();
                    tier.sort_by_key(|seen| classes.get(&seen.node).copied());
                }
            }
        }
        Self { views }
    }

    /// All of them, by the number of their node.
    #[must_use]
    pub fn all(&self) -> &[View] {
        &self.views
    }

    /// The view of processors of that node; the first one where it has none, or is unknown.
    #[must_use]
    pub fn of(&self, cpu_node: Option<NodeId>) -> Option<&View> {
        self.index_of(cpu_node).and_then(|at| self.views.get(at))
    }

    /// As [`Self::of`]: its place in [`Self::all`].
    #[must_use]
    pub fn index_of(&self, cpu_node: Option<NodeId>) -> Option<usize> {
        let own = cpu_node.and_then(|id| self.views.iter().position(|view| view.from == id));
        own.or_else(|| (!self.views.is_empty()).then_some(0))
    }

    /// The view of the processors that are nearest to a memory node: those to which it is best of its tier, of
    /// several such the fastest way.
    #[must_use]
    pub fn nearest(&self, node: NodeId) -> Option<&View> {
        let key = |view: &&View| {
            let seen = view.seen(node)?;
            let place = view.better_of_tier(node).count();
            let far = |value: Option<u32>| value.map_or((true, 0), |value| (false, value));
            let path = seen.path;
            Some((
                place,
                far(path.read_latency_ns),
                far(path.distance),
                view.from != node,
                view.from,
            ))
        };
        let seeing = self.views.iter().filter(|view| view.seen(node).is_some());
        seeing.min_by_key(key)
    }
}

impl View {
    fn new(tiers: &Tiers, from: NodeId, paths: &[AccessPath]) -> Self {
        let mut nodes: Vec<Seen> = Vec::new();
        for node in tiers.nodes().iter().filter(|node| node.capacity_bytes > 0) {
            let known = paths
                .iter()
                .find(|path| path.from == from && path.to == node.id);
            let path = known.copied().unwrap_or(AccessPath {
                from,
                to: node.id,
                // Nobody is nearer than who is on the node.
                distance: (node.id == from).then_some(10),
                ..AccessPath::default()
            });
            nodes.push(Seen {
                node: node.id,
                tier: node.tier,
                path,
            });
        }
        let mut start = 0;
        while start < nodes.len() {
            let tier = nodes[start].tier;
            let same = nodes[start..].iter().take_while(|seen| seen.tier == tier);
            let end = start + same.count();
            sort_tier(&mut nodes[start..end]);
            start = end;
        }
        Self {
            from,
            nodes,
            ways: Vec::new(),
        }
    }

    /// All memory nodes, the best first.
    #[must_use]
    pub fn nodes(&self) -> &[Seen] {
        &self.nodes
    }

    /// A memory node as it is seen.
    #[must_use]
    pub fn seen(&self, node: NodeId) -> Option<&Seen> {
        self.nodes.iter().find(|seen| seen.node == node)
    }

    /// Its place in the order, 0 being the best.
    #[must_use]
    pub fn rank(&self, node: NodeId) -> Option<usize> {
        self.nodes.iter().position(|seen| seen.node == node)
    }

    /// Where a page may go up from a node: nodes of higher tiers, the best first.
    pub fn promotion(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let tier = self.seen(node).map(|seen| seen.tier);
        let higher = self.nodes.iter().filter(move |seen| Some(seen.tier) < tier);
        self.said_or(WayKind::Promotion, node, higher.map(|seen| seen.node))
    }

    /// Where it may go within its tier: better nodes, the best first.
    pub fn migration(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.said_or(WayKind::Migration, node, self.better_of_tier(node))
    }

    fn better_of_tier(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let tier = self.seen(node).map(|seen| seen.tier);
        let better = self.nodes.iter().take_while(move |seen| seen.node != node);
        let same = better.filter(move |seen| Some(seen.tier) == tier);
        same.map(|seen| seen.node)
    }

    /// Where it may go to be better, the best first: promotion, then migration.
    pub fn better(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        self.promotion(node).chain(self.migration(node))
    }

    /// Where it may go down: nodes of the next lower tier, the best first.
    pub fn demotion(&self, node: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let tier = self.seen(node).map(|seen| seen.tier);
        let lower = self.nodes.iter().map(|seen| seen.tier);
        let next = lower.filter(|of| tier.is_some_and(|tier| *of > tier)).min();
        let those = self
            .nodes
            .iter()
            .filter(move |seen| Some(seen.tier) == next);
        self.said_or(WayKind::Demotion, node, those.map(|seen| seen.node))
    }
}

/// The nodes of one tier, the best first, by what is known of all of them.
fn sort_tier(nodes: &mut [Seen]) {
    let all = |known: fn(&AccessPath) -> Option<u32>| {
        nodes.iter().all(|seen| known(&seen.path).is_some())
    };
    let latencies = all(|path| path.read_latency_ns);
    let bandwidths = all(|path| path.read_bandwidth_mbps);
    nodes.sort_by_key(|seen| {
        let path = seen.path;
        let latency = path.read_latency_ns.filter(|_| latencies);
        let bandwidth = path.read_bandwidth_mbps.filter(|_| bandwidths);
        // A distance that is not known is the farthest.
        let distance = path.distance.unwrap_or(u32::MAX);
        (
            latency,
            bandwidth.map(std::cmp::Reverse),
            distance,
            seen.node,
        )
    });
}

/// The tiers that latencies make, from the fastest: each starts where one is a quarter above its tier's first. Gives
/// each node its tier, the fastest node first.
#[must_use]
pub fn classes(latencies: &[(NodeId, u32)]) -> Vec<(NodeId, TierId)> {
    let mut order = latencies.to_vec();
    order.sort_by_key(|(node, latency)| (*latency, *node));
    let mut first = order.first().map_or(0, |(_, latency)| u64::from(*latency));
    let mut tier = 0;
    let of = |(node, latency): (NodeId, u32)| {
        let latency = u64::from(latency);
        if latency * NEXT_TIER_DENOMINATOR > first * NEXT_TIER_NUMERATOR {
            tier += 1;
            first = latency;
        }
        (node, TierId(tier))
    };
    order.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests;
