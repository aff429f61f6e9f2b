// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as the simulator computes with it: views of nodes by socket, in ns and bytes a ns.

use terrace_core::AccessPath;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_machine_spec::machine::Kind;
use terrace_machine_spec::machine::Machine;

use crate::Setup;
use crate::SimError;

/// Nodes at most: their number stands in four bits of a page's state, one of which means none.
pub(crate) const NODES: usize = 15;

/// What a socket sees of a node; ns, and bytes a ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct View {
    pub(crate) distance: u8,
    pub(crate) read_ns: f64,
    pub(crate) write_ns: f64,
    pub(crate) read_bw: f64,
    pub(crate) write_bw: f64,
    pub(crate) stream_bw: f64,
    /// Bytes that the node reads or writes at once.
    pub(crate) block: f64,
}

impl View {
    /// A missed line of a visit that writes: what is written is first read, and the program waits for
    /// whichever takes longer. Giving the line back later takes bandwidth.
    pub(crate) const fn update_ns(&self) -> f64 {
        self.read_ns.max(self.write_ns)
    }
}

/// A last-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheSize {
    pub(crate) sets: usize,
    pub(crate) ways: usize,
}

/// The machine.
#[derive(Debug, Clone)]
pub(crate) struct Hardware {
    pub(crate) nodes: usize,
    /// `[socket][node]`.
    pub(crate) views: Vec<Vec<View>>,
    /// Processors of each socket.
    pub(crate) cpus: Vec<u32>,
    /// Each socket's cache.
    pub(crate) cache: Option<CacheSize>,
    pub(crate) totals: Vec<u64>,
    /// Whether a node is persistent memory or behind CXL: what the kernel puts into a lower tier.
    lower: Vec<bool>,
    home_cpus: Vec<Vec<u32>>,
    /// By socket: the node that its processors are of.
    pub(crate) homes: Vec<Option<usize>>,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "bandwidths are below 2^53 bytes a second"
)]
impl Hardware {
    pub(crate) fn new(setup: &Setup) -> Result<Self, SimError> {
        let machine: &Machine = &setup.machine;
        let nodes = machine.nodes.len();
        if nodes > NODES {
            return Err(SimError::Limit(format!(
                "'{}' has {nodes} nodes; the simulator has room for {NODES}",
                machine.name
            )));
        }
        let lab = match (setup.lab, machine.lab) {
            (true, None) => return Err(SimError::NoLab(machine.name.clone())),
            (true, lab) => lab,
            (false, _) => None,
        };
        let scale = setup.costs.memory_scale;
        let view = |socket, node| {
            let path = machine.path(socket, node);
            View {
                distance: path.distance,
                read_ns: path.read_ns * scale,
                write_ns: path.write_ns * scale,
                read_bw: path.read_bandwidth as f64 / 1e9 / scale,
                write_bw: path.write_bandwidth as f64 / 1e9 / scale,
                stream_bw: path.stream_bandwidth as f64 / 1e9 / scale,
                block: f64::from(machine.nodes[node].block),
            }
        };
        let sockets = 0..machine.sockets.len();
        let views = sockets
            .map(|socket| (0..nodes).map(|node| view(socket, node)).collect())
            .collect();
        let cpus: Vec<u32> = machine
            .sockets
            .iter()
            .map(|socket| lab.map_or(socket.cpus, |lab| lab.cpus))
            .collect();
        let llc = lab.map_or(machine.sockets[0].llc, |lab| lab.llc);
        let lines = usize::try_from(llc.bytes / u64::from(llc.line.max(1))).unwrap_or(0);
        let ways = llc.ways.max(1) as usize;
        let cache = (setup.cache && lines >= ways).then(|| CacheSize {
            sets: lines / ways,
            ways,
        });
        let mut first = 0;
        let mut home_cpus = vec![Vec::new(); nodes];
        for (socket, &count) in cpus.iter().enumerate() {
            if let Some(home) = machine.home(socket) {
                home_cpus[home] = (first..first + count).collect();
            }
            first += count;
        }
        Ok(Self {
            nodes,
            views,
            cpus,
            cache,
            totals: sizes(setup, lab.is_some())?,
            lower: machine
                .nodes
                .iter()
                .map(|node| matches!(node.kind, Kind::Cxl | Kind::Pmem))
                .collect(),
            home_cpus,
            homes: (0..machine.sockets.len())
                .map(|s| machine.home(s))
                .collect(),
        })
    }

    /// The nodes as a socket's tiers: each read latency is one of its own.
    pub(crate) fn tiers(&self, socket: usize) -> Tiers {
        let order = self.by_latency(socket);
        let mut tier = 0;
        let mut last = self.views[socket][order[0]].read_ns;
        let mut tier_of = vec![0; self.nodes];
        for &node in &order {
            let ns = self.views[socket][node].read_ns;
            if ns > last * 1.01 {
                tier += 1;
                last = ns;
            }
            tier_of[node] = tier;
        }
        self.tiers_by(socket, |node| tier_of[node])
    }

    /// The tiers that the kernel makes: memory of processors above memory behind CXL and persistent
    /// memory.
    pub(crate) fn kernel_tiers(&self, socket: usize) -> Tiers {
        if self.lower.iter().all(|lower| !lower) {
            return self.tiers(socket);
        }
        self.tiers_by(socket, |node| u16::from(self.lower[node]))
    }

    fn tiers_by(&self, socket: usize, tier: impl Fn(usize) -> u16) -> Tiers {
        let info = |node: usize| {
            let view = &self.views[socket][node];
            NodeInfo {
                id: node_id(node),
                tier: TierId(tier(node)),
                capacity_bytes: self.totals[node],
                cpus: self.home_cpus[node].clone(),
                read_latency_ns: Some(whole(view.read_ns)),
                write_latency_ns: Some(whole(view.write_ns)),
                read_bandwidth_mbps: Some(whole(view.read_bw * 1e3)),
            }
        };
        Tiers::new((0..self.nodes).map(info).collect())
    }

    /// The class of latency of each node, 0 the fastest, as its nearest socket sees it.
    fn classes(&self) -> Vec<u16> {
        let nearest = |node: usize| {
            let seen = self.views.iter().map(|views| views[node].read_ns);
            whole(seen.fold(f64::INFINITY, f64::min))
        };
        let latencies: Vec<_> = (0..self.nodes).map(|n| (node_id(n), nearest(n))).collect();
        let classes = terrace_core::classes(&latencies);
        let of = |node| classes.iter().find(|(of, _)| *of == node_id(node));
        (0..self.nodes)
            .map(|node| of(node).map_or(0, |(_, tier)| tier.0))
            .collect()
    }

    /// The fastest tier first, the nearest of its nodes first.
    pub(crate) fn by_tier(&self, socket: usize) -> Vec<usize> {
        let classes = self.classes();
        let mut order = self.by_distance(socket);
        order.sort_by_key(|&node| classes[node]);
        order
    }

    /// Memory as each socket's processors see it: a node's tier is by what its nearest socket sees.
    pub(crate) fn views(&self) -> Views {
        let sockets = || self.homes.iter().zip(&self.views);
        let classes = self.classes();
        let tiers = self.tiers_by(0, |node| classes[node]);
        let homes = sockets().filter_map(|(home, views)| Some(((*home)?, views)));
        let paths = homes.flat_map(|(home, views)| {
            views
                .iter()
                .enumerate()
                .map(move |(node, view)| AccessPath {
                    from: node_id(home),
                    to: node_id(node),
                    read_latency_ns: Some(whole(view.read_ns)),
                    read_bandwidth_mbps: Some(whole(view.read_bw * 1e3)),
                    distance: Some(view.distance.into()),
                })
        });
        let paths: Vec<AccessPath> = paths.collect();
        let homes = self.homes.iter().flatten();
        let cpu_nodes: Vec<NodeId> = homes.map(|home| node_id(*home)).collect();
        Views::new(&tiers, &cpu_nodes, &paths)
    }

    /// Nodes by read latency.
    pub(crate) fn by_latency(&self, socket: usize) -> Vec<usize> {
        let views = &self.views[socket];
        let mut order: Vec<usize> = (0..self.nodes).collect();
        order.sort_by(|&a, &b| {
            views[a]
                .read_ns
                .total_cmp(&views[b].read_ns)
                .then(a.cmp(&b))
        });
        order
    }

    /// The kernel's order of fallback: by distance.
    pub(crate) fn by_distance(&self, socket: usize) -> Vec<usize> {
        let mut order = self.by_latency(socket);
        order.sort_by_key(|&node| self.views[socket][node].distance);
        order
    }

    /// What a line takes of each node that is read alone, where lines wait so long.
    pub(crate) fn loaded(
        &self,
        socket: usize,
        waits: &[f64; NODES],
    ) -> impl Iterator<Item = (NodeId, Nanos)> {
        let views = self.views[socket].iter().zip(waits).enumerate();
        views.map(|(node, (view, wait))| {
            let read = whole(view.read_ns + wait);
            (node_id(node), Nanos(read.into()))
        })
    }

    /// How long copying `bytes` takes, ns: at the slower of both streams, and at what is left of
    /// both nodes' bandwidth (`busy`: utilisation by everything else), but a tenth of it always.
    pub(crate) fn copy_ns(&self, bytes: u64, from: usize, to: usize, busy: [f64; 2]) -> f64 {
        self.copy_by(1.0, bytes, from, to, busy)
    }

    /// The same by several threads, each with streams of its own.
    pub(crate) fn copy_by(
        &self,
        threads: f64,
        bytes: u64,
        from: usize,
        to: usize,
        busy: [f64; 2],
    ) -> f64 {
        let best = |f: &dyn Fn(&View) -> f64, node: usize| {
            self.views
                .iter()
                .map(|views| f(&views[node]))
                .fold(0.0, f64::max)
        };
        let left = |busy: f64| (1.0 - busy).max(0.1);
        let stream = best(&|v| v.stream_bw, from).min(best(&|v| v.stream_bw.min(v.write_bw), to));
        let shared = (best(&|v| v.read_bw, from) * left(busy[0]))
            .min(best(&|v| v.write_bw, to) * left(busy[1]));
        bytes as f64 / (stream * threads).min(shared)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "latencies and MB/s are far below 2^32 and not negative"
)]
const fn whole(number: f64) -> u32 {
    number as u32
}

/// The nodes' sizes, bytes.
fn sizes(setup: &Setup, lab: bool) -> Result<Vec<u64>, SimError> {
    let machine = &setup.machine;
    let named = setup.free.keys().chain(setup.reserved.keys());
    if let Some(&node) = named.max().filter(|node| **node >= machine.nodes.len()) {
        return Err(SimError::Node {
            machine: machine.name.clone(),
            node,
            last: machine.nodes.len() - 1,
        });
    }
    let size = |(index, node): (usize, &terrace_machine_spec::machine::Node)| {
        let bytes = node.lab_bytes.filter(|_| lab).unwrap_or(node.bytes);
        let wanted = setup.free.get(&index).copied().unwrap_or(bytes);
        let reserved = setup.reserved.get(&index).copied().unwrap_or(0);
        if wanted > bytes || reserved > wanted {
            return Err(SimError::Free {
                machine: machine.name.clone(),
                node: index,
                bytes,
                free: wanted.max(reserved),
            });
        }
        Ok(wanted)
    };
    machine.nodes.iter().enumerate().map(size).collect()
}

/// As the policy names it.
pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId(u16::try_from(node).expect("at most NODES"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use terrace_machine_spec::Machine;
    use terrace_workload::Sizes;
    use terrace_workload::Workload;

    use super::*;

    #[test]
    fn remote_dram_comes_after_local_slow_memory_by_distance_and_before_it_by_tier() {
        let text = include_str!("../../../machines/autotiering-2socket.toml");
        let machine = Machine::parse(text, Path::new("autotiering-2socket.toml")).expect("checked");
        let workload = Workload::named("gups", &Sizes::fast_free(1 << 24)).expect("known");
        let hardware = Hardware::new(&Setup::new(machine, workload)).expect("fine");
        assert_eq!(hardware.by_distance(0), [0, 2, 1, 3]);
        assert_eq!(hardware.by_tier(0), [0, 1, 2, 3]);
        assert_eq!(hardware.by_distance(1), [1, 3, 0, 2]);
        assert_eq!(hardware.by_tier(1), [1, 0, 3, 2]);
    }
}
