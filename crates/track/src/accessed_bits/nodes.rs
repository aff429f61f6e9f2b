// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which node a page is on, by its frame: ranges of frames that the walk tells apart.
//!
//! The node with most ranges has none: what is in none of the others' is its. So two nodes of which one is
//! in a single piece take one range, whatever holes the other has.

use terrace_bpf::FrameRange;
use terrace_bpf::RawChunk;
use terrace_bpf::page_tables::FRAME_RANGES;
use terrace_core::NodeId;
use terrace_core::PageBits;

/// The ranges that are told apart, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nodes {
    /// Frames, by range.
    pub(super) ranges: Vec<FrameRange>,
    nodes: Vec<NodeId>,
    rest: Option<NodeId>,
}

impl Nodes {
    /// Of a machine with these pieces of memory. Of more pieces than can be told apart the smallest count as
    /// the rest's.
    pub(super) fn new(pieces: &[(u64, u64, NodeId)]) -> Self {
        let count = |node: NodeId| pieces.iter().filter(|(.., of)| *of == node).count();
        let rest = pieces.iter().map(|(.., node)| *node);
        let rest = rest.max_by_key(|node| (count(*node), node.0));
        let mut told: Vec<_> = pieces.iter().filter(|(.., of)| Some(*of) != rest).collect();
        told.sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
        told.truncate(FRAME_RANGES);
        let frames = |first: u64, bytes: u64| FrameRange {
            first: first >> 12,
            count: bytes >> 12,
        };
        Self {
            ranges: told
                .iter()
                .map(|(first, bytes, _)| frames(*first, *bytes))
                .collect(),
            nodes: told.iter().map(|(.., node)| *node).collect(),
            rest,
        }
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
        let piece = |first: u64, count: u64, node| (first << 12, count << 12, NodeId(node));
        let nodes = Nodes::new(&[piece(0, 10, 0), piece(20, 5, 0), piece(100, 50, 1)]);
        assert_eq!(nodes.rest, Some(NodeId(0)));
        assert_eq!(nodes.nodes, [NodeId(1)]);
        let many: Vec<_> = (0..40)
            .map(|i| piece(i * 10, i + 1, 1 + (i % 2) as u16))
            .collect();
        let nodes = Nodes::new(&many);
        assert_eq!(nodes.ranges.len(), FRAME_RANGES);
        assert!(nodes.ranges.iter().all(|range| range.count > 20));
        assert!(Nodes::new(&[]).ranges.is_empty());
    }
}
