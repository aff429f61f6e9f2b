// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines as the tests have them: what each socket sees of memory, and the order that this makes, drawn by hand.

use terrace_core::AccessPath;
use terrace_core::GivenWay;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_core::WayKind;

/// See the module.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Memory nodes by their numbers, and their tiers.
    pub(crate) nodes: &'static [(u16, u16)],
    /// Nodes with processors, and the read latency of each memory node from there, ns.
    sockets: &'static [(u16, &'static [u32])],
    /// By socket: the memory nodes, the best first (figure 1).
    pub(crate) orders: &'static [&'static [u16]],
    /// By memory node: the socket it is nearest to, by its place.
    pub(crate) near: &'static [usize],
    /// Ways that the operator says: of which socket, by its place, and node, and where they lead.
    said: &'static [(usize, u16, WayKind, &'static [u16])],
}

/// The paper's (figure 1): DRAM 0 and 1, slow memory 2 and 3; latencies of MTM's table 1.
pub(crate) static TWO: Layout = Layout {
    nodes: &[(0, 0), (1, 0), (2, 1), (3, 1)],
    sockets: &[(0, &[90, 145, 275, 340]), (1, &[145, 90, 340, 275])],
    orders: &[&[0, 1, 2, 3], &[1, 0, 3, 2]],
    near: &[0, 1, 0, 1],
    said: &[],
};

/// The same, on which somebody wants other ways.
pub(crate) static SAID: Layout = Layout {
    said: &[
        (0, 2, WayKind::Promotion, &[1, 0]),
        (1, 3, WayKind::Promotion, &[0]),
        (1, 0, WayKind::Migration, &[]),
        (1, 2, WayKind::Promotion, &[]),
        (0, 0, WayKind::Demotion, &[3]),
    ],
    ..TWO
};

/// Three sockets in a ring: to one neighbour the way is shorter than to the other.
pub(crate) static THREE: Layout = Layout {
    nodes: &[(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)],
    sockets: &[
        (0, &[90, 145, 160, 275, 340, 360]),
        (1, &[160, 90, 145, 360, 275, 340]),
        (2, &[145, 160, 90, 340, 360, 275]),
    ],
    orders: &[
        &[0, 1, 2, 3, 4, 5],
        &[1, 2, 0, 4, 5, 3],
        &[2, 0, 1, 5, 3, 4],
    ],
    near: &[0, 1, 2, 0, 1, 2],
    said: &[],
};

/// Numbers with holes, and fast memory without processors (6), nearer to socket 4 than to 1.
pub(crate) static HOLES: Layout = Layout {
    nodes: &[(1, 0), (4, 0), (6, 0), (9, 1), (13, 1)],
    sockets: &[
        (1, &[90, 145, 150, 275, 340]),
        (4, &[145, 90, 110, 340, 275]),
    ],
    orders: &[&[1, 4, 6, 9, 13], &[4, 6, 1, 13, 9]],
    near: &[0, 1, 1, 0, 1],
    said: &[],
};

impl Layout {
    pub(crate) fn ids(&self) -> impl Iterator<Item = u16> + use<> {
        self.nodes.iter().map(|(id, _)| *id)
    }

    /// Places for what is kept by a node's number.
    pub(crate) fn numbers(&self) -> usize {
        self.ids().max().map_or(0, |id| usize::from(id) + 1)
    }

    /// The number of a socket's node.
    pub(crate) fn cpu(&self, socket: usize) -> u16 {
        self.sockets[socket % self.sockets.len()].0
    }

    /// The place of a socket by its node; the first where it is not known.
    pub(crate) fn socket(&self, cpu: Option<u16>) -> usize {
        let place = self.sockets.iter().position(|(id, _)| Some(*id) == cpu);
        place.unwrap_or(0)
    }

    pub(crate) fn tier(&self, node: u16) -> u16 {
        let found = self.nodes.iter().find(|(id, _)| *id == node);
        found.expect("a node").1
    }

    /// Nodes that have slower ones below them.
    pub(crate) fn fast(&self) -> impl Iterator<Item = u16> + use<> {
        let fast = self.nodes.iter().filter(|(_, tier)| *tier == 0);
        fast.map(|(id, _)| *id)
    }

    fn way(&self, socket: usize, node: u16, kind: WayKind, order: Vec<u16>) -> Vec<u16> {
        let same = |way: &&(usize, u16, WayKind, _)| (way.0, way.1, way.2) == (socket, node, kind);
        let said = self.said.iter().find(same);
        said.map_or(order, |way| way.3.to_vec())
    }

    /// Where a page goes that this socket accesses: to a higher tier, then to a better node of its own.
    pub(crate) fn better(&self, socket: usize, node: u16) -> Vec<u16> {
        let order = self.orders[socket].iter().copied();
        let better = order.take_while(|other| *other != node);
        let (same, higher) = better.partition(|other| self.tier(*other) == self.tier(node));
        let mut all = self.way(socket, node, WayKind::Promotion, higher);
        all.extend(self.way(socket, node, WayKind::Migration, same));
        all
    }

    /// Where a page of a fast node goes that this socket accessed last.
    pub(crate) fn lower(&self, socket: usize, node: u16) -> Vec<u16> {
        let order = self.orders[socket].iter().copied();
        let lower = order.filter(|other| self.tier(*other) > self.tier(node));
        self.way(socket, node, WayKind::Demotion, lower.collect())
    }

    pub(crate) fn views(&self) -> Views {
        self.views_by(|path, read| AccessPath {
            read_latency_ns: Some(read),
            ..path
        })
    }

    /// Where no latencies are known, and distances are in their proportion.
    pub(crate) fn views_by_distance(&self) -> Views {
        self.views_by(|path, read| AccessPath {
            distance: Some(read),
            ..path
        })
    }

    fn views_by(&self, known: fn(AccessPath, u32) -> AccessPath) -> Views {
        let node = |(id, tier): &(u16, u16)| NodeInfo {
            id: NodeId(*id),
            tier: TierId(*tier),
            capacity_bytes: 1 << 20,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        let tiers = Tiers::new(self.nodes.iter().map(node).collect());
        let paths = self.sockets.iter().flat_map(|(from, seen)| {
            self.ids().zip(*seen).map(move |(to, read)| {
                let path = AccessPath {
                    from: NodeId(*from),
                    to: NodeId(to),
                    ..AccessPath::default()
                };
                known(path, *read)
            })
        });
        let paths: Vec<AccessPath> = paths.collect();
        let cpus: Vec<NodeId> = self.sockets.iter().map(|(id, _)| NodeId(*id)).collect();
        let views = Views::new(&tiers, &cpus, &paths);
        let given = self.said.iter().map(|(socket, node, kind, to)| GivenWay {
            from: NodeId(self.sockets[*socket].0),
            node: NodeId(*node),
            kind: *kind,
            to: to.iter().copied().map(NodeId).collect(),
        });
        let given: Vec<GivenWay> = given.collect();
        assert_eq!(views.check(&given), Ok(()));
        views.with(&given)
    }
}
