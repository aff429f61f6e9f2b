// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/sys/devices/system/memory`: which node a physical address belongs to.
//!
//! Kernel contract: memory comes in blocks of `block_size_bytes` (hexadecimal); block `memoryN` begins
//! at N times that and has a link `nodeM` for each node it has memory of. A block of several nodes
//! says nothing about an address. Memory hot-plug changes the blocks; a map is of its moment.

use std::fs;
use std::path::Path;

use terrace_core::NodeId;

/// Blocks by number, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryBlocks {
    block_bytes: u64,
    nodes: Vec<(u64, NodeId)>,
}

impl MemoryBlocks {
    /// Reads them under a root directory (`/` for this machine). Empty where the kernel has none.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let dir = root.join("sys/devices/system/memory");
        let text = fs::read_to_string(dir.join("block_size_bytes")).unwrap_or_default();
        let block_bytes = u64::from_str_radix(text.trim(), 16).unwrap_or(0);
        let entries = fs::read_dir(&dir).into_iter().flatten().flatten();
        let mut nodes: Vec<(u64, NodeId)> = entries
            .filter_map(|entry| {
                let number = number(entry.file_name().to_str()?, "memory")?;
                Some((number, only_node(&entry.path())?))
            })
            .collect();
        nodes.sort_unstable();
        Self { block_bytes, nodes }
    }

    /// The node of a physical address, if it is known.
    #[must_use]
    pub fn node_of(&self, phys: u64) -> Option<NodeId> {
        let block = phys.checked_div(self.block_bytes)?;
        let at = self
            .nodes
            .binary_search_by_key(&block, |&(number, _)| number);
        at.ok().map(|at| self.nodes[at].1)
    }
}

fn number(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn only_node(block: &Path) -> Option<NodeId> {
    let mut nodes = fs::read_dir(block)
        .ok()?
        .flatten()
        .filter_map(|entry| number(entry.file_name().to_str()?, "node"));
    let first = nodes.next()?;
    let id = u16::try_from(first).ok()?;
    nodes.next().is_none().then_some(NodeId(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_nodes_and_mixed_ones_do_not() {
        let root = std::env::temp_dir().join(format!("terrace-blocks-{}", std::process::id()));
        let dir = root.join("sys/devices/system/memory");
        for block in [
            "memory0/node0",
            "memory32/node1",
            "memory33/node1",
            "memory33/node0",
        ] {
            fs::create_dir_all(dir.join(block)).expect("a scratch directory");
        }
        fs::write(dir.join("block_size_bytes"), "8000000\n").expect("a scratch file");
        let blocks = MemoryBlocks::read(&root);
        fs::remove_dir_all(&root).expect("ours");
        assert_eq!(blocks.node_of(5), Some(NodeId(0)));
        assert_eq!(blocks.node_of(32 * 0x800_0000 + 1), Some(NodeId(1)));
        assert_eq!(blocks.node_of(33 * 0x800_0000), None, "of two nodes");
        assert_eq!(blocks.node_of(0x800_0000), None, "no such block");
        assert_eq!(MemoryBlocks::read(&root).node_of(0), None);
    }
}
