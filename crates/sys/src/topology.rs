// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory nodes, their tiers and their distances, from sysfs.
//!
//! Contract: `Documentation/ABI/stable/sysfs-devices-node` (nodes, distances; `access0` and
//! `access1` are HMAT's view from the best initiator and from the best processor, Linux 5.2, in ns
//! and MB/s), `Documentation/ABI/testing/sysfs-kernel-mm-memory-tiers` (Linux 6.1; the kernel's
//! tiers, a lower number is faster, and they cannot be changed). Everything is readable by
//! everyone and absent files are no error: a kernel without HMAT just says less.
//!
//! Tiers come from the first of these that tells nodes apart: the operator ([`Override`]), the
//! kernel's tiers, HMAT latencies, and at last processors and distances. Where the kernel has all
//! nodes in one tier and we do not, its own tiering does nothing and scan mode 2 marks no page:
//! [`Topology::kernel_tiers`] tells.
//!
//! Paths start at a root directory, `/` but in tests. What changes at run time is in [`memory`].

mod cache;
mod given;
pub mod memory;
mod parse;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use terrace_core::AccessPath;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_core::classes;
use thiserror::Error;

pub use self::given::Override;
pub(crate) use self::parse::counter;
pub(crate) use self::parse::list as node_list;

/// Why the nodes cannot be told.
#[derive(Debug, Error)]
pub enum TopologyError {
    /// A file cannot be read.
    #[error("Cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what the kernel documents.
    #[error("{} has an unexpected form", .0.display())]
    Form(PathBuf),
    /// The operator named a node that is not there.
    #[error(
        "Tier {tier} names node {node}, which has no memory here; nodes with memory: {}",
        list(have)
    )]
    NoSuchNode {
        /// The tier.
        tier: usize,
        /// The node.
        node: NodeId,
        /// What there is.
        have: Vec<NodeId>,
    },
    /// The operator named a node twice, or left one out.
    #[error("Node {0} must be in exactly one of the tiers given")]
    NotOnce(NodeId),
    /// The operator named a way from where no processors are.
    #[error(
        "The path from {from} to {to}: node {from} has no processors here; nodes with processors: {}",
        list(have)
    )]
    NoProcessors {
        /// The node of the processors.
        from: NodeId,
        /// The memory node.
        to: NodeId,
        /// What there is.
        have: Vec<NodeId>,
    },
    /// The operator named a way to where no memory is.
    #[error(
        "The path from {from} to {to}: node {to} has no memory here; nodes with memory: {}",
        list(have)
    )]
    NoMemory {
        /// The node of the processors.
        from: NodeId,
        /// The memory node.
        to: NodeId,
        /// What there is.
        have: Vec<NodeId>,
    },
    /// The operator's way of pages does not fit.
    #[error(transparent)]
    Way(#[from] terrace_core::WayError),
    /// The operator named a path twice.
    #[error("The path from {from} to {to} is given twice")]
    PathTwice {
        /// The node of the processors.
        from: NodeId,
        /// The memory node.
        to: NodeId,
    },
}

fn list(nodes: &[NodeId]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// What the tiers were concluded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TierSource {
    /// The operator said so.
    Override,
    /// The kernel's memory tiers.
    Kernel,
    /// Latencies, of HMAT or the operator's, where the kernel has only one tier.
    Latency,
    /// Nodes without processors are slower, by their distance to the nearest one.
    Distance,
    /// Nothing tells the nodes apart.
    OneTier,
}

/// The nodes of a machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Topology {
    /// Nodes with memory, by tier.
    pub tiers: Tiers,
    /// What the tiers were concluded from.
    pub source: TierSource,
    /// How many tiers the kernel has; `None` where it does not say (before 6.1).
    pub kernel_tiers: Option<usize>,
    /// Distance of each node (of processors or of memory) to each; 10 is local.
    pub distances: BTreeMap<(NodeId, NodeId), u32>,
    /// Nodes with processors, those without memory included.
    pub cpu_nodes: Vec<NodeId>,
    /// Of each node that HMAT tells of: the nodes of processors that reach it best.
    pub initiators: BTreeMap<NodeId, Vec<NodeId>>,
    /// What the operator says of it.
    pub given: Override,
}

impl Topology {
    /// Reads the machine.
    ///
    /// # Errors
    ///
    /// Where sysfs has no nodes, or an override does not fit them.
    pub fn discover(root: &Path, given: &Override) -> Result<Self, TopologyError> {
        let nodes = read_nodes(root)?;
        let kernel = read_kernel_tiers(root)?;
        let have: Vec<NodeId> = nodes
            .iter()
            .filter(|n| n.info.capacity_bytes > 0)
            .map(|n| n.info.id)
            .collect();
        let mut distances = distances(&nodes);
        given.stretch(&mut distances);
        let initiators = nodes
            .iter()
            .map(|n| (n.info.id, n.initiators.clone()))
            .collect();
        let cpu_nodes: Vec<NodeId> = nodes
            .iter()
            .filter(|n| !n.info.cpus.is_empty())
            .map(|n| n.info.id)
            .collect();
        let mut infos: Vec<NodeInfo> = nodes
            .into_iter()
            .map(|n| n.info)
            .filter(|n| n.capacity_bytes > 0)
            .collect();
        given.check(&have, &cpu_nodes)?;
        infos.iter_mut().for_each(|node| given.describe(node));

        let by_kernel = |id: NodeId| kernel.iter().position(|tier| tier.contains(&id));
        let kernel_count = kernel
            .iter()
            .filter(|tier| tier.iter().any(|n| have.contains(n)))
            .count();
        let source = if let Some(wanted) = &given.tiers {
            assign(&mut infos, |n| {
                wanted.iter().position(|t| t.contains(&n.id)).unwrap_or(0)
            });
            TierSource::Override
        } else if kernel_count > 1 {
            // A node the kernel has not placed (no memory when it booted) goes last.
            assign(&mut infos, |n| by_kernel(n.id).unwrap_or(kernel.len()));
            TierSource::Kernel
        } else if let Some(ranks) = by_latency(&infos) {
            assign(&mut infos, |n| ranks[&n.id]);
            TierSource::Latency
        } else if let Some(ranks) = by_distance(&infos, &cpu_nodes, &distances) {
            assign(&mut infos, |n| ranks[&n.id]);
            TierSource::Distance
        } else {
            TierSource::OneTier
        };
        let topology = Self {
            tiers: Tiers::new(infos),
            source,
            kernel_tiers: (!kernel.is_empty()).then_some(kernel_count.max(1)),
            distances,
            cpu_nodes,
            initiators,
            given: given.clone(),
        };
        topology.views().check(&given.ways)?;
        Ok(topology)
    }

    /// Whether the kernel's own tiering can see a difference between tiers: otherwise scan mode 2
    /// marks nothing and it neither promotes nor demotes.
    #[must_use]
    pub fn kernel_tells_tiers(&self) -> bool {
        self.kernel_tiers.is_some_and(|count| count > 1)
    }

    /// Memory as each node with processors sees it: by the tiers, then by what the operator says of the way, or HMAT of a
    /// node's best initiators, else by distance.
    #[must_use]
    pub fn views(&self) -> Views {
        let to = self.tiers.nodes();
        let pairs = self
            .cpu_nodes
            .iter()
            .flat_map(|from| to.iter().map(move |to| (*from, to)));
        let path = |(from, to): (NodeId, &NodeInfo)| {
            // Sysfs has the best initiator's figures only.
            let best = self
                .initiators
                .get(&to.id)
                .is_some_and(|nodes| nodes.contains(&from));
            self.given.over(AccessPath {
                from,
                to: to.id,
                read_latency_ns: to.read_latency_ns.filter(|_| best),
                read_bandwidth_mbps: to.read_bandwidth_mbps.filter(|_| best),
                distance: self.distances.get(&(from, to.id)).copied(),
            })
        };
        let paths: Vec<AccessPath> = pairs.map(path).collect();
        Views::new(&self.tiers, &self.cpu_nodes, &paths).with(&self.given.ways)
    }

    /// The distance between two nodes, 10 being local; very far where unknown.
    #[must_use]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances.get(&(from, to)).copied().unwrap_or(u32::MAX)
    }
}

struct Node {
    info: NodeInfo,
    /// To the nodes in the order of their numbers.
    distances: Vec<u32>,
    /// HMAT's best ones.
    initiators: Vec<NodeId>,
}

fn read_nodes(root: &Path) -> Result<Vec<Node>, TopologyError> {
    let directory = root.join("sys/devices/system/node");
    let online = directory.join("online");
    let text = read(&online)?;
    let ids = parse::list(text.trim()).ok_or(TopologyError::Form(online))?;
    ids.into_iter()
        .map(|id| read_node(&directory.join(format!("node{id}")), id))
        .collect()
}

fn read_node(directory: &Path, id: u32) -> Result<Node, TopologyError> {
    let id = u16::try_from(id).map_err(|_| TopologyError::Form(directory.to_owned()))?;
    let meminfo = directory.join("meminfo");
    let memory = parse::meminfo(&read(&meminfo)?).ok_or(TopologyError::Form(meminfo))?;
    let cpulist = directory.join("cpulist");
    let cpus = parse::list(read(&cpulist)?.trim()).ok_or(TopologyError::Form(cpulist))?;
    let distance = directory.join("distance");
    let distances = parse::numbers(&read(&distance)?).ok_or(TopologyError::Form(distance))?;
    // access1 is the view from processors; kernels before 5.10 and some tables only have access0.
    let hmat = |name: &str| {
        ["access1", "access0"].into_iter().find_map(|access| {
            let path = directory.join(access).join("initiators").join(name);
            let value: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
            (value > 0).then_some(value)
        })
    };
    Ok(Node {
        info: NodeInfo {
            id: NodeId(id),
            tier: TierId(0),
            capacity_bytes: memory.total_bytes,
            cpus,
            read_latency_ns: hmat("read_latency"),
            write_latency_ns: hmat("write_latency"),
            read_bandwidth_mbps: hmat("read_bandwidth"),
        },
        distances,
        initiators: initiators(directory),
    })
}

/// The nodes of processors that reach this one best, as links beside its attributes: those of the class of which
/// the latencies are.
fn initiators(directory: &Path) -> Vec<NodeId> {
    let classes = ["access1", "access0"].map(|access| directory.join(access).join("initiators"));
    let told = classes
        .iter()
        .find(|path| path.join("read_latency").exists());
    let entries = told.and_then(|path| fs::read_dir(path).ok());
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?
            .strip_prefix("node")?
            .parse()
            .ok()
            .map(NodeId)
    };
    let mut nodes: Vec<NodeId> = entries
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(number)
        .collect();
    nodes.sort_unstable();
    nodes
}

/// What is free on a node now; nothing where there is no such node.
pub(crate) fn free_bytes(root: &Path, node: NodeId) -> Option<u64> {
    Some(meminfo(root, node).ok()?.free_bytes)
}

fn meminfo(root: &Path, node: NodeId) -> Result<parse::Meminfo, TopologyError> {
    let path = node_file(root, node, "meminfo");
    parse::meminfo(&read(&path)?).ok_or(TopologyError::Form(path))
}

fn node_file(root: &Path, node: NodeId, name: &str) -> PathBuf {
    root.join(format!("sys/devices/system/node/node{node}/{name}"))
}

/// How many tiers the kernel has; none where it does not say.
pub(crate) fn kernel_tiers(root: &Path) -> Option<usize> {
    let tiers = read_kernel_tiers(root).ok()?;
    (!tiers.is_empty()).then_some(tiers.len())
}

/// The kernel's tiers with their nodes, fastest first; empty where it has none.
fn read_kernel_tiers(root: &Path) -> Result<Vec<Vec<NodeId>>, TopologyError> {
    let directory = root.join("sys/devices/virtual/memory_tiering");
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut tiers = BTreeMap::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|n| n.strip_prefix("memory_tier"));
        let Some(number) = number.and_then(|n| n.parse::<u32>().ok()) else {
            continue;
        };
        let path = entry.path().join("nodelist");
        let nodes = parse::list(read(&path)?.trim()).ok_or(TopologyError::Form(path))?;
        let nodes = nodes
            .into_iter()
            .filter_map(|n| u16::try_from(n).ok().map(NodeId));
        tiers.insert(number, nodes.collect::<Vec<_>>());
    }
    Ok(tiers.into_values().collect())
}

fn read(path: &Path) -> Result<String, TopologyError> {
    fs::read_to_string(path).map_err(|source| TopologyError::Read {
        path: path.to_owned(),
        source,
    })
}

fn distances(nodes: &[Node]) -> BTreeMap<(NodeId, NodeId), u32> {
    let pairs = nodes.iter().flat_map(|from| {
        let to = nodes.iter().map(|n| n.info.id);
        to.zip(&from.distances)
            .map(|(to, d)| ((from.info.id, to), *d))
    });
    pairs.collect()
}

/// Gives each node its rank as its tier, ranks closed up to 0, 1, 2...
fn assign(nodes: &mut [NodeInfo], rank: impl Fn(&NodeInfo) -> usize) {
    let mut ranks: Vec<usize> = nodes.iter().map(&rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for node in nodes {
        let tier = ranks.iter().position(|r| *r == rank(node)).unwrap_or(0);
        node.tier = TierId(u16::try_from(tier).unwrap_or(u16::MAX));
    }
}

/// Ranks by read latency, if it is known of all nodes and tells them apart.
fn by_latency(nodes: &[NodeInfo]) -> Option<BTreeMap<NodeId, usize>> {
    let latencies = nodes.iter().map(|n| Some((n.id, n.read_latency_ns?)));
    let classes = classes(&latencies.collect::<Option<Vec<_>>>()?);
    let several = classes.last()?.1 > TierId(0);
    let ranks = classes.into_iter();
    several.then(|| ranks.map(|(id, tier)| (id, usize::from(tier.0))).collect())
}

/// Nodes with processors first, the others by distance to the nearest of them, if there are both.
fn by_distance(
    nodes: &[NodeInfo],
    cpu_nodes: &[NodeId],
    distances: &BTreeMap<(NodeId, NodeId), u32>,
) -> Option<BTreeMap<NodeId, usize>> {
    let rank = |node: &NodeInfo| {
        if !node.cpus.is_empty() {
            return 0;
        }
        let nearest = cpu_nodes
            .iter()
            .filter_map(|cpu| distances.get(&(*cpu, node.id)))
            .min();
        nearest.map_or(usize::MAX, |d| usize::try_from(*d).unwrap_or(usize::MAX))
    };
    let ranks: BTreeMap<NodeId, usize> = nodes.iter().map(|n| (n.id, rank(n))).collect();
    let first = *ranks.values().next()?;
    ranks.values().any(|r| *r != first).then_some(ranks)
}

#[cfg(test)]
pub(crate) mod tests;
