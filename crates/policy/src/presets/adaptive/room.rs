// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which room promotions and demotions have.
//!
//! ```text
//! spare    = surplus - reserve          what goes up without a demotion
//! shortage = reserve - surplus          what has to go down, once the fast tier is under its high watermarks
//! ```
//!
//! A demotion gives the fast node its bytes only when it has ended. Promotions into room leave the high
//! watermark and the reserve; those that follow a demotion leave the watermark: the kernel's own reclaim
//! begins at the low one, and must not begin for us.

use terrace_core::NodeId;

use super::Adaptive;
use crate::kit::free_memory::HIGH;

impl Adaptive {
    fn reserve(&self) -> i128 {
        let fast = self.tiers.top().map(|node| node.capacity_bytes);
        i128::from(self.params.reserve.unwrap_or(fast.sum::<u64>() / 1024))
    }

    /// Bytes that promotions can take without a demotion; less than 0 where the reserve is touched.
    pub(super) fn spare(&self) -> i128 {
        self.memory.surplus(HIGH) - self.reserve()
    }

    /// Bytes the fast tier is short of its high watermark and the reserve, if it is under the first.
    pub(super) fn shortage(&self) -> i128 {
        let above = self.memory.surplus(HIGH);
        if above < 0 { self.reserve() - above } else { 0 }
    }

    /// The fast node with the most room, if that is enough.
    pub(super) fn fast_for(&self, bytes: u64) -> Option<NodeId> {
        let top = self.tiers.top().map(|node| node.id);
        let (node, room) = self.memory.roomiest(top, HIGH)?;
        (room >= bytes).then_some(node)
    }

    /// The node for a demotion: of the first slower tier that has room, the one with the most.
    pub(super) fn slow_for(&self, bytes: u64) -> Option<NodeId> {
        let mut at = self.tiers.top().next()?.id;
        loop {
            let below = || self.tiers.below(at).map(|node| node.id);
            let next = below().next()?;
            match self.memory.roomiest(below(), HIGH) {
                Some((node, room)) if room >= bytes => return Some(node),
                _ => at = next,
            }
        }
    }
}
