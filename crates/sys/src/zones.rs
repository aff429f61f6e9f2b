// SPDX-License-Identifier: MIT OR Apache-2.0
//! `/proc/zoneinfo`: which page frames belong to which node.
//!
//! Kernel contract: a zone is a span of frames of one node, holes included (`start_pfn`, `spanned`). Zones
//! of two nodes overlap only where their memory is interleaved; then the smaller one is meant, as firmware
//! puts a node's pieces into the holes of another's span. Memory blocks (`memory_blocks`) are of 128 MiB and more,
//! and nodes need not begin with one.

use std::fs;
use std::path::Path;

use terrace_core::NodeId;

/// A span of page frames of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// The node.
    pub node: NodeId,
    /// The first frame.
    pub first: u64,
    /// Frames, holes included.
    pub count: u64,
}

/// The zones that have memory, under a root directory (`/` for this machine); none where the kernel does
/// not say.
#[must_use]
pub fn read(root: &Path) -> Vec<Zone> {
    let text = fs::read_to_string(root.join("proc/zoneinfo"));
    text.as_deref().map(parse).unwrap_or_default()
}

fn parse(text: &str) -> Vec<Zone> {
    let (mut node, mut present, mut count) = (None, 0, 0);
    let mut zones = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let key = words.next().unwrap_or_default();
        let value = words.next().unwrap_or_default();
        let number = value.parse().unwrap_or(0);
        match key {
            "Node" => {
                node = value.trim_end_matches(',').parse().ok().map(NodeId);
                (present, count) = (0, 0);
            }
            "spanned" => count = number,
            "present" => present = number,
            "start_pfn:" if present > 0 => {
                let first = number;
                zones.extend(node.map(|node| Zone { node, first, count }));
            }
            _ => {}
        }
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_with_memory_are_told() {
        let text = "Node 0, zone      DMA\n  per-node stats\n      nr_inactive_anon 1\n  \
            pages free     3840\n        min      4\n        spanned  4095\n        present  3998\n        \
            managed  3840\n  start_pfn:           1\nNode 0, zone  Movable\n        spanned  0\n        \
            present  0\n  start_pfn:           0\nNode 1, zone   Normal\n        spanned  253952\n        \
            present  253952\n  start_pfn:           1079808\n";
        let zone = |node, first, count| Zone {
            node: NodeId(node),
            first,
            count,
        };
        assert_eq!(parse(text), [zone(0, 1, 4095), zone(1, 1_079_808, 253_952)]);
        assert!(parse("").is_empty());
    }

    #[test]
    fn this_machine_has_memory_in_zones() {
        let all: u64 = read(Path::new("/")).iter().map(|zone| zone.count).sum();
        assert!(all > 1_000);
    }
}
