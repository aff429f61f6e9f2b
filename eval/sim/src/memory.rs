// SPDX-License-Identifier: MIT OR Apache-2.0
//! The nodes' free memory, the kernel's watermarks, and where an allocation goes.
//!
//! Watermarks as in `mm/page_alloc.c` (`init_per_zone_wmark_min`, `__setup_per_zone_wmarks`), with
//! each node one zone: the sum of all minima is `4 * sqrt(KiB of memory)` KiB, a node has its share
//! by size; low, high and promo follow each a quarter of the minimum, or 0.1 % of the node, higher. A
//! kernel with huge pages raises the sum (`set_recommended_min_free_kbytes` in `mm/khugepaged.c`); who
//! knows by how much says so.

use terrace_core::NodeMemory;

/// One node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) total: u64,
    pub(crate) free: u64,
    pub(crate) min: u64,
    pub(crate) low: u64,
    pub(crate) high: u64,
    /// Of which shadows take.
    pub(crate) shadows: u64,
}

/// All nodes.
#[derive(Debug, Clone)]
pub(crate) struct Memory {
    pub(crate) nodes: Vec<Node>,
}

/// How deep an allocation may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Down to the low watermark: what does not reclaim.
    Low,
    /// Down to the minimum: after reclaim, or for a migration.
    Min,
}

impl Memory {
    /// Nodes of these sizes with so much free; the minima of all are `min_free` bytes, if given.
    pub(crate) fn new(sizes: &[(u64, u64)], min_free: Option<u64>) -> Self {
        let all: u64 = sizes.iter().map(|(total, _)| total).sum();
        let usual = ((all >> 10) * 16).isqrt().clamp(128, 262_144) << 10;
        let min_all = min_free.unwrap_or(usual).min(all / 4);
        let nodes = sizes
            .iter()
            .map(|&(total, free)| {
                let share = u128::from(min_all) * u128::from(total) / u128::from(all.max(1));
                let min = u64::try_from(share).unwrap_or(u64::MAX);
                let step = (min / 4).max(total / 1000);
                Node {
                    total,
                    free,
                    min,
                    low: min + step,
                    high: min + 2 * step,
                    shadows: 0,
                }
            })
            .collect();
        Self { nodes }
    }

    /// As the policy is told.
    pub(crate) fn sample(&self, node: usize) -> NodeMemory {
        let node = &self.nodes[node];
        NodeMemory {
            free_bytes: node.free,
            low_bytes: node.low,
            high_bytes: node.high,
            total_bytes: node.total,
        }
    }

    /// Takes memory of one node, if it has it.
    pub(crate) fn take(&mut self, node: usize, bytes: u64, depth: Depth) -> bool {
        let node = &mut self.nodes[node];
        let floor = match depth {
            Depth::Low => node.low,
            Depth::Min => node.min,
        };
        if node.free < floor + bytes {
            return false;
        }
        node.free -= bytes;
        true
    }

    /// Takes memory of the first node in `order` that has it: down to the low watermark first, as
    /// the kernel's fast path, then down to the minimum.
    pub(crate) fn allocate(&mut self, order: &[usize], bytes: u64) -> Option<usize> {
        [Depth::Low, Depth::Min].into_iter().find_map(|depth| {
            order
                .iter()
                .copied()
                .find(|&node| self.take(node, bytes, depth))
        })
    }

    /// Gives memory back.
    pub(crate) fn give(&mut self, node: usize, bytes: u64) {
        let node = &mut self.nodes[node];
        node.free = (node.free + bytes).min(node.total);
    }

    /// What programs can get in all.
    pub(crate) fn available(&self) -> u64 {
        self.nodes
            .iter()
            .map(|n| n.free.saturating_sub(n.min))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_falls_back_by_distance_and_keeps_watermarks() {
        let gib = 1 << 30;
        let mut memory = Memory::new(&[(gib, gib), (gib, gib)], None);
        let low = memory.nodes[0].low;
        let order = [1, 0];
        let mut on = [0_u64; 2];
        while let Some(node) = memory.allocate(&order, 4096) {
            on[node] += 4096;
            if on[0] == 0 {
                assert!(memory.nodes[1].free >= low);
            }
        }
        // Node 1 first down to low, then node 0 down to low, then both to min.
        assert!(
            memory
                .nodes
                .iter()
                .all(|n| n.free < n.min + 4096 && n.free >= n.min)
        );
        assert_eq!(on[0], on[1]);
        memory.give(1, 8192);
        assert_eq!(memory.allocate(&order, 4096), Some(1));
    }

    #[test]
    fn watermarks_are_those_of_the_kernel_for_16_gib() {
        // 16 GiB: min_free_kbytes = 4 * sqrt(16 Mi) = 16 MiB.
        let memory = Memory::new(&[(16 << 30, 0)], None);
        assert_eq!(memory.nodes[0].min >> 10, 16 << 10);
        assert!(memory.nodes[0].low - memory.nodes[0].min >= (16 << 30) / 1000);
    }

    #[test]
    fn nodes_share_the_minima_that_are_given_by_size() {
        let mib = 1 << 20;
        let memory = Memory::new(&[(250 * mib, 0), (750 * mib, 0)], Some(20 * mib));
        assert_eq!(
            (memory.nodes[0].min, memory.nodes[1].min),
            (5 * mib, 15 * mib)
        );
        assert_eq!(memory.nodes[0].high, 5 * mib + 2 * (5 * mib / 4));
    }
}
