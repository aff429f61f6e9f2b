// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which node a page is on, by its frame: ranges of frames that the walk tells apart.
//!
//! The node with most zones has none: what is in none of the others' is its. So two nodes of which one is
//! in a single piece take one range, whatever holes the other has.

use terrace_bpf::FrameRange;
use terrace_bpf::RawChunk;
use terrace_bpf::page_tables::FRAME_RANGES;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_sys::zones::Zone;

/// The ranges that are told apart, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    /// Frames, by range.
    pub(super) ranges: Vec<FrameRange>,
    nodes: Vec<NodeId>,
    rest: Option<NodeId>,
}

impl Nodes {
    /// Of a machine with these zones. Of more than can be told apart the smallest count as
    /// the rest's.
    pub(super) fn new(zones: &[Zone]) -> Self {
        let count = |node: NodeId| zones.iter().filter(|zone| zone.node == node).count();
        let rest = zones.iter().map(|zone| zone.node);
        let rest = rest.max_by_key(|node| (count(*node), node.0));
        let told = zones.iter().filter(|zone| Some(zone.node) != rest);
        let mut told: Vec<Zone> = told.copied().collect();
        told.sort_by_key(|zone| std::cmp::Reverse(zone.count));
        told.truncate(FRAME_RANGES);
        // Where two overlap, the smaller is meant.
        told.reverse();
        let frames = |zone: &Zone| FrameRange {
            first: zone.first,
            count: zone.count,
        };
        Self {
            ranges: told.iter().map(frames).collect(),
            nodes: told.iter().map(|zone| zone.node).collect(),
            rest,
        }
    }

    /// Whether some of them is none of these.
    pub(super) fn are_beyond(&self, nodes: &[NodeId]) -> bool {
        let mut all = self.nodes.iter().chain(&self.rest);
        all.any(|node| !nodes.contains(node))
    }

    /// The pages of a chunk that are present and of interest, by node.
    pub(super) fn of(&self, chunk: &RawChunk, wanted: &PageBits) -> Vec<(NodeId, PageBits)> {
        let mut left = chunk.present().and(wanted);
        let mut found: Vec<(NodeId, PageBits)> = Vec::with_capacity(2);
        for (index, node) in self.nodes.iter().enumerate() {
            let here = chunk.within(index).and(&left);
            if here.is_empty() {
                continue;
            }
            left = left.without(&here);
            match found.iter_mut().find(|(of, _)| of == node) {
                Some((_, pages)) => *pages = pages.or(&here),
                None => found.push((*node, here)),
            }
        }
        found.extend(
            self.rest
                .filter(|_| !left.is_empty())
                .map(|rest| (rest, left)),
        );
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_in_most_pieces_is_the_rest() {
        let zone = |first, count, node| Zone {
            node: NodeId(node),
            first,
            count,
        };
        let nodes = Nodes::new(&[zone(0, 10, 0), zone(20, 5, 0), zone(100, 50, 1)]);
        assert_eq!(nodes.rest, Some(NodeId(0)));
        assert_eq!(nodes.nodes, [NodeId(1)]);
        let many: Vec<Zone> = (0..40_u16)
            .map(|i| zone(u64::from(i) * 10, u64::from(i) + 1, 1 + i % 2))
            .collect();
        let nodes = Nodes::new(&many);
        assert_eq!(nodes.ranges.len(), FRAME_RANGES);
        assert!(nodes.ranges.iter().all(|range| range.count > 20));
        assert!(nodes.ranges.windows(2).all(|w| w[0].count <= w[1].count));
        assert!(Nodes::new(&[]).ranges.is_empty());
    }
}
