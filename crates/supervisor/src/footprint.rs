// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Terrace itself takes of the fast tier: as little as it can.

use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_sys::mempolicy;
use terrace_sys::mempolicy::Policy;

/// A fast node spends one byte in so many on the ring of hint faults, which the kernel allocates.
const RING_SHARE: u64 = 64;
const RING_BYTES_MIN: u32 = 2 << 20;

/// Size of the ring of hint faults: 1/64 of the smallest fast node, between 2 MiB (some 37,000
/// records) and `most`.
#[must_use]
pub(crate) fn ring_bytes(tiers: &Tiers, most: u32) -> u32 {
    let smallest = tiers
        .top()
        .map(|node| node.capacity_bytes)
        .min()
        .unwrap_or(0);
    u32::try_from(smallest / RING_SHARE)
        .unwrap_or(most)
        .clamp(RING_BYTES_MIN.min(most), most)
}

/// Where what Terrace needs itself comes from.
pub(crate) fn slowest(tiers: &Tiers) -> Option<NodeId> {
    tiers.nodes().last().map(|node| node.id)
}

/// Moves this process to the slowest node: what it has, the pages of its program's file included,
/// goes there, and what this thread and those it starts take from now on comes from there while it
/// has some. To be called when the program has been started: it would inherit this.
pub(crate) fn live_in_the_slow_tier(tiers: &Tiers) {
    let Some(slowest) = slowest(tiers).filter(|_| tiers.count() > 1) else {
        return;
    };
    if let Err(error) = mempolicy::set_mempolicy(&Policy::Preferred(slowest)) {
        tracing::warn!("Terrace's own memory stays where it is: {error}");
        return;
    }
    let fast: Vec<NodeId> = tiers.top().map(|node| node.id).collect();
    match mempolicy::migrate_own_pages(&fast, slowest) {
        Ok(left) => tracing::debug!("{left} pages of Terrace's own stay in the fast tier"),
        Err(error) => tracing::warn!("What Terrace has in the fast tier stays there: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeInfo;
    use terrace_core::TierId;

    use super::*;

    fn tiers(fast: u64) -> Tiers {
        let node = |id: u16, capacity_bytes| NodeInfo {
            id: NodeId(id),
            tier: TierId(id),
            capacity_bytes,
            cpus: Vec::new(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        Tiers::new(vec![node(0, fast), node(1, 1 << 40)])
    }

    #[test]
    fn the_ring_is_a_small_share_of_the_fast_node() {
        assert_eq!(ring_bytes(&tiers(512 << 20), 16 << 20), 8 << 20);
        assert_eq!(ring_bytes(&tiers(64 << 20), 16 << 20), 2 << 20);
        assert_eq!(ring_bytes(&tiers(64 << 30), 16 << 20), 16 << 20);
    }
}
