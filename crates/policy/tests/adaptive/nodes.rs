// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes of the machine: a fast one of so many pages, and a slow one with room for all.

use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::TierId;
use terrace_core::Tiers;

pub(crate) const FAST: NodeId = NodeId(0);
pub(crate) const SLOW: NodeId = NodeId(1);
pub(crate) const PAGE: u64 = 4096;

pub(crate) fn tiers(fast_pages: u64) -> Tiers {
    let node = |id, tier, pages: u64, latency| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: Some(latency),
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![
        node(FAST, 0, fast_pages, 80),
        node(SLOW, 1, 1 << 22, 250),
    ])
}
