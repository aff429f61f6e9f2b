// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which room there is on a side.
//!
//! ```text
//! spare    = surplus - reserve          what comes without that a page goes
//! shortage = reserve - surplus          what has to go, once the side is under its high watermarks
//! ```
//!
//! A page that goes gives its node the bytes only when it has moved. Pages that come into room leave the high
//! watermark and the reserve; those that change places leave the watermark: the kernel's own reclaim
//! begins at the low one, and must not begin for us.

use terrace_core::NodeId;

use super::Adaptive;
use crate::kit::free_memory::HIGH;

impl Adaptive {
    fn reserve(&self, side: usize) -> i128 {
        let nodes = self.nodes_of(side).filter_map(|id| self.tiers.node(id));
        let bytes: u64 = nodes.map(|node| node.capacity_bytes).sum();
        i128::from(self.params.reserve.unwrap_or(bytes / 1024))
    }

    /// Bytes that can come to a side before a page must go; less than 0 where the reserve is touched.
    pub(super) fn spare(&self, side: usize) -> i128 {
        self.memory.above(self.nodes_of(side), HIGH) - self.reserve(side)
    }

    /// Bytes a side is short of its high watermark and the reserve, if it is under the first.
    pub(super) fn shortage(&self, side: usize) -> i128 {
        let above = self.memory.above(self.nodes_of(side), HIGH);
        if above < 0 {
            self.reserve(side) - above
        } else {
            0
        }
    }

    /// The node of a side with the most room, if that is enough.
    pub(super) fn node_with_room(&self, side: usize, bytes: u64) -> Option<NodeId> {
        let (node, room) = self.memory.roomiest(self.nodes_of(side), HIGH)?;
        (room >= bytes).then_some(node)
    }

    /// Where a page goes that has to leave a side: the first of a lower tier, or farther, that has room.
    pub(super) fn below_with_room(&self, side: usize, bytes: u64) -> Option<usize> {
        let mut below = side + 1..self.sides.len();
        below.find(|below| self.node_with_room(*below, bytes).is_some())
    }
}
