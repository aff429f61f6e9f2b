// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of the machine: a fast one of so many pages, and a slow one with room for all; or two sockets with DRAM and
//! persistent memory at each.

use terrace_core::AccessPath;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
pub(crate) const PAGE: u64 = 4096;

fn node(id: NodeId, tier: u16, pages: u64, latency: u32) -> NodeInfo {
    NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: Some(latency),
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    }
}

pub(crate) fn tiers(fast_pages: u64) -> Tiers {
    serving(fast_pages, [None; 2])
}

/// The same, where they serve so many MB a second.
pub(crate) fn serving(fast_pages: u64, bandwidths: [Option<u32>; 2]) -> Tiers {
    let nodes = [node(FAST, 0, fast_pages, 80), node(SLOW, 1, 1 << 22, 250)];
    let nodes = nodes.into_iter().zip(bandwidths);
    let nodes = nodes.map(|(node, read_bandwidth_mbps)| NodeInfo {
        read_bandwidth_mbps,
        ..node
    });
    Tiers::new(nodes.collect())
}

/// DRAM of so many pages at either socket, nodes 0 and 1, and persistent memory, 2 and 3, as MTM's Table 1 has them.
pub(crate) fn two_sockets(dram_pages: u64) -> (Tiers, Views) {
    let tiers = Tiers::new(vec![
        node(NodeId(0), 0, dram_pages, 90),
        node(NodeId(1), 0, dram_pages, 90),
        node(NodeId(2), 1, 1 << 22, 275),
        node(NodeId(3), 1, 1 << 22, 275),
    ]);
    let sockets = [[90, 145, 275, 340], [145, 90, 340, 275]];
    let paths = (0..).zip(sockets).flat_map(|(from, reads)| {
        (0..).zip(reads).map(move |(to, read)| AccessPath {
            from: NodeId(from),
            to: NodeId(to),
            read_latency_ns: Some(read),
            ..AccessPath::default()
        })
    });
    let paths: Vec<AccessPath> = paths.collect();
    let views = Views::new(&tiers, &[NodeId(0), NodeId(1)], &paths);
    (tiers, views)
}
