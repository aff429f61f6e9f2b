// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the agent's own pages are: staged for a move in, moved out, or waiting to be used again.
//!
//! A *frame* is a present page at an address of ours; a *slot* is an empty address that a page of
//! the program can be moved out to. MOVE wants its destination registered, and refuses while the context that
//! it goes through has changes of mappings to report. So slots are registered with the program's own: nothing
//! moves out while what we know of the program's mappings is out of date.
//!
//! For the same reason a slot's page cannot be dropped there: that would be reported to us, and waits until we have
//! read it. What is to be dropped, or may be by the kernel, as a shadow, moves on to an *old* address first. Those
//! are registered with a context that reports nothing.
//!
//! A page that was the program's is never written by us and never used again: somebody may still have
//! a reference to it (vmsplice(2), MSG_ZEROCOPY). Only frames that the kernel gave us are pooled.
//!
//! Staging zones carry the policy `Preferred(node)`: a full node hands out a page of another one,
//! which we notice, and never starts the out-of-memory killer.

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageSize;

use crate::ops::memory::size_index;
use crate::state::addresses::Addresses;
use crate::state::addresses::Grounds;
use crate::state::area::Area;
use crate::state::layout::NODES;

/// Frames kept for reuse, by size.
const POOL_MAX: [usize; 2] = [256, 2];
/// Pages that wait to be dropped together, by size: the more, the more are neighbours, which one call drops.
const BURY_AT: [usize; 2] = [64, 1];

/// A present page of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) addr: u64,
    pub(crate) node: NodeId,
}

/// The agent's frames.
#[derive(Debug)]
pub(crate) struct Frames {
    sizes: [Addresses; 2],
    grounds: Grounds,
}

impl Frames {
    pub(crate) fn new(grounds: Grounds) -> Self {
        let sizes = [PageSize::Base4K, PageSize::Huge2M];
        Self {
            sizes: sizes.map(|size| Addresses::new(grounds.layout, size)),
            grounds,
        }
    }

    fn sized(&mut self, size: PageSize) -> &mut Addresses {
        &mut self.sizes[size_index(size)]
    }

    /// Frames of the node that wait for reuse, at most `want`, in address order.
    pub(crate) fn take_pooled(&mut self, size: PageSize, node: NodeId, want: usize) -> Vec<u64> {
        let Some(pool) = self.sized(size).pools.get_mut(&node) else {
            return Vec::new();
        };
        let mut taken = pool.split_off(pool.len().saturating_sub(want));
        taken.sort_unstable();
        taken
    }

    /// Empty staging addresses of the node, at most `want` in a row: the caller populates them.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where the zone is full, `EINVAL` where the node cannot be used.
    pub(crate) fn take_staging(
        &mut self,
        size: PageSize,
        node: NodeId,
        want: u64,
    ) -> Result<(u64, u64), Errno> {
        let layout = self.grounds.layout;
        let stages = &mut self.sized(size).stages;
        let at = if let Some(at) = stages.iter().position(|(n, _)| *n == node) {
            at
        } else {
            let index = stages.len() as u64;
            if index >= NODES {
                return Err(Errno::NOMEM);
            }
            let zone = layout.stage(size, index);
            layout.prefer(zone, node);
            stages.push((node, Area::new(zone, size)));
            stages.len() - 1
        };
        stages[at].1.take(want, |part| layout.commit(part))
    }

    /// Slots to move pages out to, at most `want` in a row.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there are no more.
    pub(crate) fn take_slots(&mut self, size: PageSize, want: u64) -> Result<(u64, u64), Errno> {
        let Self { sizes, grounds } = self;
        let slots = &mut sizes[size_index(size)].slots;
        slots.take(want, |part| grounds.make(part, &grounds.uffd))
    }

    /// Moves a page that nobody needs any more out of its slot, to where it can be a shadow. `None` where that
    /// fails: it is still in the slot.
    pub(crate) fn keep(&mut self, size: PageSize, slot: u64) -> Option<u64> {
        let Self { sizes, grounds } = self;
        let sized = &mut sizes[size_index(size)];
        let (to, _) = sized.take_old(grounds, 1).ok()?;
        let moved = grounds.carry(slot, to, size.bytes()) == size.bytes();
        if moved {
            sized.give(slot);
        } else {
            sized.unused(grounds, to);
        }
        moved.then_some(to)
    }

    /// The address is empty again, whatever zone it is of.
    pub(crate) fn give_empty(&mut self, size: PageSize, addr: u64) {
        self.sized(size).give(addr);
    }

    /// Drops what is at the address by mapping it anew: what is not a whole huge page, or whose page table was split,
    /// leaves an address that no huge page fits into.
    pub(crate) fn renew(&mut self, size: PageSize, addr: u64) {
        let Self { sizes, grounds } = self;
        sizes[size_index(size)].renew(grounds, addr);
    }

    /// The frame is not needed any more: kept for reuse if it never was the program's, else dropped.
    pub(crate) fn release(&mut self, size: PageSize, frame: Frame) {
        let most = POOL_MAX[size_index(size)];
        let sized = self.sized(size);
        if sized.old.contains(frame.addr) {
            self.bury(size, [frame.addr]);
            return;
        }
        let pool = sized.pools.entry(frame.node).or_default();
        if pool.len() < most {
            pool.push(frame.addr);
        } else {
            sized.drop_frame(frame.addr);
        }
    }

    /// The pages in slots or at old addresses are not needed any more and give their memory back, some at a time.
    pub(crate) fn bury(&mut self, size: PageSize, pages: impl IntoIterator<Item = u64>) {
        let Self { sizes, grounds } = self;
        let sized = &mut sizes[size_index(size)];
        sized.dead.extend(pages);
        if sized.dead.len() >= BURY_AT[size_index(size)] {
            sized.bury_dead(grounds);
        }
    }

    /// Gives pooled frames back to the system, down to `keep` base pages of each node, and what waits
    /// to be dropped.
    pub(crate) fn trim(&mut self, keep: usize) {
        let Self { sizes, grounds } = self;
        for sized in sizes {
            let keep = if sized.size == PageSize::Base4K {
                keep
            } else {
                0
            };
            let mut surplus = Vec::new();
            for pool in sized.pools.values_mut() {
                surplus.extend(pool.split_off(pool.len().min(keep)));
            }
            for addr in surplus {
                sized.drop_frame(addr);
            }
            sized.bury_dead(grounds);
        }
    }
}
