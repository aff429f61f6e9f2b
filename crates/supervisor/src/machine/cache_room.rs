// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page cache counts as room: a server that has been up for a day has no free memory, and needs none.
//!
//! How much the kernel gives back is `terrace_sys::topology`'s business; here is when it counts. On a
//! slower node it does not while the node is under its low watermark: shadows go first there (Nomad
//! 3.2). After a migration by `move_pages`, for which the kernel does reclaim, failed for want of memory,
//! it does not count on that node for [`DISTRUST`]. Nor where it is missed: while what the kernel dropped is read again
//! so soon that it takes it for part of a working set. Who sees free memory as it is: `terrace status`.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;

/// The kernel tries hard before it says that there is no memory, so not too often; and a read from a disk is as dear as hundreds
/// of accesses to slow memory.
const DISTRUST: Nanos = Nanos::from_secs(10);

/// Which nodes have room in their page cache.
#[derive(Debug, Default)]
pub struct CacheRoom {
    counted: BTreeSet<NodeId>,
    distrusted: BTreeMap<NodeId, Nanos>,
    /// Pages of it that were missed, when last looked at.
    missed: BTreeMap<NodeId, u64>,
}

impl CacheRoom {
    /// What the policy is told of a node with that memory, so many bytes of cache to give back, and so many pages of it missed since
    /// the start of the machine, as far as that is known.
    pub fn sample(
        &mut self,
        now: Nanos,
        (node, is_top): (NodeId, bool),
        memory: NodeMemory,
        (cache_bytes, missed): (u64, Option<u64>),
    ) -> NodeMemory {
        let before = missed.and_then(|missed| self.missed.insert(node, missed));
        if before.zip(missed).is_some_and(|(before, now)| now > before) {
            self.distrusted.insert(node, now + DISTRUST);
        }
        let shadows_first = !is_top && memory.free_bytes < memory.low_bytes;
        let distrusted = self.distrusted.get(&node).is_some_and(|end| now < *end);
        if cache_bytes == 0 || shadows_first || distrusted {
            self.counted.remove(&node);
            return memory;
        }
        self.counted.insert(node);
        let free_bytes = memory.free_bytes.saturating_add(cache_bytes);
        NodeMemory {
            free_bytes: free_bytes.min(memory.total_bytes),
            ..memory
        }
    }

    /// Whether a node's last sample counted on its cache.
    #[must_use]
    pub fn counts(&self, node: NodeId) -> bool {
        self.counted.contains(&node)
    }

    /// The kernel had no memory on the node, for all its reclaiming.
    pub fn failed(&mut self, now: Nanos, node: NodeId) {
        if self.counted.remove(&node) {
            self.distrusted.insert(node, now + DISTRUST);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn memory(free_bytes: u64) -> NodeMemory {
        NodeMemory {
            free_bytes,
            low_bytes: 10,
            high_bytes: 20,
            total_bytes: 1000,
        }
    }

    fn free(room: &mut CacheRoom, now: u64, top: bool, free: u64, cache: u64) -> u64 {
        let now = Nanos::from_secs(now);
        room.sample(now, (NODE, top), memory(free), (cache, None))
            .free_bytes
    }

    #[test]
    fn cache_is_room_but_not_before_a_slow_node_s_shadows_are_gone() {
        let mut room = CacheRoom::default();
        assert_eq!(free(&mut room, 0, true, 5, 100), 105);
        assert!(room.counts(NODE));
        assert_eq!(free(&mut room, 0, false, 5, 100), 5);
        assert!(!room.counts(NODE));
        assert_eq!(free(&mut room, 0, false, 10, 100), 110);
        assert_eq!(free(&mut room, 0, true, 950, 100), 1000);
        assert_eq!(free(&mut room, 0, true, 950, 0), 950);
        assert!(!room.counts(NODE));
    }

    #[test]
    fn cache_that_the_kernel_did_not_give_back_does_not_count_for_a_while() {
        let mut room = CacheRoom::default();
        // Not counted on, so its failure says nothing about the cache.
        room.failed(Nanos::ZERO, NODE);
        assert_eq!(free(&mut room, 0, true, 5, 100), 105);
        room.failed(Nanos::from_secs(1), NODE);
        assert!(!room.counts(NODE));
        assert_eq!(free(&mut room, 10, true, 5, 100), 5);
        assert_eq!(free(&mut room, 11, true, 5, 100), 105);
    }

    #[test]
    fn cache_that_is_missed_does_not_count_for_a_while() {
        let mut room = CacheRoom::default();
        let mut free = |second: u64, missed: u64| {
            let now = Nanos::from_secs(second);
            let sample = room.sample(now, (NODE, true), memory(5), (100, Some(missed)));
            sample.free_bytes
        };
        // Before us.
        assert_eq!(free(0, 70), 105);
        assert_eq!(free(1, 70), 105);
        assert_eq!(free(2, 71), 5);
        assert_eq!(free(9, 80), 5);
        assert_eq!(free(18, 80), 5);
        assert_eq!(free(19, 80), 105);
    }
}
