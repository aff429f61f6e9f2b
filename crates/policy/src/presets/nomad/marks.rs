// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Nomad keeps of pages beside where they are: bits for its queues and for shadows.

use terrace_core::PageBits;

use crate::kit::pages::Own;

/// Of 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// In the candidate queue.
    pub(super) candidate: PageBits,
    /// In the pending queue.
    pub(super) pending: PageBits,
    /// With a shadow.
    pub(super) shadow: PageBits,
}

impl Own for Marks {
    fn forget(&mut self, pages: &PageBits) {
        for bits in [&mut self.candidate, &mut self.pending, &mut self.shadow] {
            *bits = bits.without(pages);
        }
    }
}
