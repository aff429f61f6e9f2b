// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Terrace itself takes of the fast tier: as little as it can.

use rustix::process::Resource;
use rustix::process::Rlimit;
use rustix::process::getrlimit;
use rustix::process::setrlimit;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_policy::FirstPlacement;
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

/// Sets this process up for what it is from now on. To be called when the program has been started: it would inherit this.
pub(crate) fn settle(tiers: &Tiers) {
    open_more_files();
    live_in_the_slow_tier(tiers);
}

/// A process that is managed takes some descriptors, and a program can have thousands.
fn open_more_files() {
    let limits = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("No more descriptors than {:?}: {error}", limits.current);
    }
}

/// Moves this process to the slowest node: what it has, the pages of its program's file included,
/// goes there, and what this thread and those it starts take from now on comes from there while it
/// has some.
fn live_in_the_slow_tier(tiers: &Tiers) {
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

/// What a program is started with, so that its memory comes from where the policy would have it first; nothing where
/// that is what the kernel does anyway.
pub(crate) fn first_placement(tiers: &Tiers, wanted: FirstPlacement) -> Option<Policy> {
    let with_processors = tiers.nodes().iter().filter(|node| !node.cpus.is_empty());
    let top: Vec<NodeId> = tiers.top().map(|node| node.id).collect();
    match wanted {
        FirstPlacement::AsIs | FirstPlacement::FirstTouch => None,
        // From one node of processors the nearest memory is the fastest.
        FirstPlacement::FastFirst if with_processors.count() < 2 => None,
        FirstPlacement::FastFirst => Some(Policy::PreferredMany(top)),
        FirstPlacement::SlowLocal => {
            let ids = tiers.nodes().iter().map(|node| node.id);
            Some(Policy::PreferredMany(
                ids.filter(|id| !top.contains(id)).collect(),
            ))
        }
    }
}

/// Starts something with that memory policy, which is its own and its children's from then on; with what there is
/// where the kernel refuses it.
pub(crate) fn started_with<T>(policy: Option<Policy>, start: impl FnOnce() -> T) -> T {
    let Some(policy) = policy else {
        return start();
    };
    if let Err(error) = mempolicy::set_mempolicy(&policy) {
        tracing::warn!(
            "New memory goes where the kernel puts it: set_mempolicy: {error} (Linux 6.9 is needed)"
        );
        return start();
    }
    let started = start();
    if let Err(error) = mempolicy::set_mempolicy(&Policy::Default) {
        tracing::warn!("Terrace's own memory goes where the program's does: {error}");
    }
    started
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use terrace_core::NodeInfo;
    use terrace_core::TierId;

    use super::*;

    #[test]
    fn the_ring_is_a_small_share_of_the_fast_node() {
        assert_eq!(ring_bytes(&tiers(512 << 20), 16 << 20), 8 << 20);
        assert_eq!(ring_bytes(&tiers(64 << 20), 16 << 20), 2 << 20);
        assert_eq!(ring_bytes(&tiers(64 << 30), 16 << 20), 16 << 20);
    }

    fn tiers(fast: u64) -> Tiers {
        let fast = NodeInfo {
            capacity_bytes: fast,
            ..node(0, 0, &[])
        };
        Tiers::new(vec![fast, node(1, 1, &[])])
    }

    fn node(id: u16, tier: u16, cpus: &[u32]) -> NodeInfo {
        NodeInfo {
            id: NodeId(id),
            tier: TierId(tier),
            capacity_bytes: 1 << 30,
            cpus: cpus.to_vec(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        }
    }

    #[test]
    fn any_fast_node_comes_before_a_slow_one_where_there_are_several_sockets() {
        let slow = [node(2, 1, &[]), node(5, 1, &[])];
        let two = Tiers::new([vec![node(0, 0, &[0]), node(1, 0, &[1])], slow.to_vec()].concat());
        let of = |tiers, wanted| first_placement(tiers, wanted);
        let fast = Policy::PreferredMany(vec![NodeId(0), NodeId(1)]);
        assert_eq!(of(&two, FirstPlacement::FastFirst), Some(fast));
        let slow = Policy::PreferredMany(vec![NodeId(2), NodeId(5)]);
        assert_eq!(of(&two, FirstPlacement::SlowLocal), Some(slow));
        assert_eq!(of(&two, FirstPlacement::AsIs), None);
        let one = Tiers::new(vec![node(0, 0, &[0]), node(1, 1, &[])]);
        assert_eq!(of(&one, FirstPlacement::FastFirst), None);
    }

    #[test]
    fn a_program_has_the_policy_that_it_is_started_with_and_its_starter_does_not() {
        let nodes = mempolicy::allowed_nodes().expect("NUMA in the kernel");
        let said = |policy| {
            let program = || Command::new("cat").arg("/proc/self/numa_maps").output();
            let output = started_with(policy, program).expect("cat is there");
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let policy = Policy::PreferredMany(nodes);
        // A kernel before 6.9.
        if mempolicy::set_mempolicy(&policy).is_err() {
            return;
        }
        mempolicy::set_mempolicy(&Policy::Default).expect("the default");
        assert!(said(Some(policy)).contains(" prefer (many)"));
        assert!(!said(None).contains(" prefer (many)"));
    }
}
