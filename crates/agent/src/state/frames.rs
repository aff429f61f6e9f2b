// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the agent's own pages are: staged for a move in, moved out, or waiting to be used again.
//!
//! A *frame* is a present page at an address of ours; a *slot* is an empty address that a page of
//! the program can be moved out to. Slots are registered with a userfaultfd of their own, because MOVE
//! wants its destination registered; it reports nothing, so what is in a slot can be dropped.
//!
//! A page that was the program's is never written by us and never used again: somebody may still have
//! a reference to it (vmsplice(2), MSG_ZEROCOPY). Only frames that the kernel gave us are pooled.
//!
//! Staging zones carry the policy `Preferred(node)`: a full node hands out a page of another one,
//! which we notice, and never starts the out-of-memory killer.

use std::collections::BTreeMap;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_sys::arena;
use terrace_sys::uffd::Uffd;

use crate::ops::memory::size_index;
use crate::state::extents::Extents;
use crate::state::layout::Layout;
use crate::state::layout::NODES;
use crate::state::layout::Zone;

/// Frames kept for reuse, by size.
const POOL_MAX: [usize; 2] = [256, 2];
/// Slots that wait for their pages to be dropped together, by size: the more, the more are neighbours.
const BURY_AT: [usize; 2] = [64, 16];
/// Bytes made usable at a time.
const GROW: u64 = 4 << 20;

/// A present page of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) addr: u64,
    pub(crate) node: NodeId,
}

/// A zone cut into pages.
#[derive(Debug)]
struct Area {
    zone: Zone,
    size: PageSize,
    extents: Extents,
    usable: u64,
}

impl Area {
    const fn new(zone: Zone, size: PageSize) -> Self {
        Self {
            zone,
            size,
            extents: Extents::new(zone.len / size.bytes()),
            usable: 0,
        }
    }

    /// Empty addresses, at most `want` pages in a row: (first address, pages).
    fn take(
        &mut self,
        want: u64,
        mut grow: impl FnMut(Zone) -> Result<(), Errno>,
    ) -> Result<(u64, u64), Errno> {
        let (first, count) = self.extents.take(want).ok_or(Errno::NOMEM)?;
        let needed = self.extents.grown_to() * self.size.bytes();
        while self.usable < needed {
            let len = GROW.min(self.zone.len - self.usable);
            let part = Zone {
                start: self.zone.start + self.usable,
                len,
            };
            if let Err(error) = grow(part) {
                for page in first..first + count {
                    self.extents.give(page);
                }
                return Err(error);
            }
            self.usable += len;
        }
        Ok((self.zone.start + first * self.size.bytes(), count))
    }

    fn give(&mut self, addr: u64) {
        self.extents
            .give((addr - self.zone.start) / self.size.bytes());
    }
}

/// All frames of one size.
#[derive(Debug)]
struct Sized {
    size: PageSize,
    slots: Area,
    /// By node; the position is the zone's index.
    stages: Vec<(NodeId, Area)>,
    pools: BTreeMap<NodeId, Vec<u64>>,
    /// Slots with a page that is to be dropped, together with others.
    dead: Vec<u64>,
}

/// The agent's frames.
#[derive(Debug)]
pub(crate) struct Frames {
    sizes: [Sized; 2],
    layout: &'static Layout,
}

impl Frames {
    pub(crate) fn new(layout: &'static Layout) -> Self {
        let sized = |size| Sized {
            size,
            slots: Area::new(layout.slots(size), size),
            stages: Vec::new(),
            pools: BTreeMap::new(),
            dead: Vec::new(),
        };
        Self {
            sizes: [sized(PageSize::Base4K), sized(PageSize::Huge2M)],
            layout,
        }
    }

    fn sized(&mut self, size: PageSize) -> &mut Sized {
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
        let layout = self.layout;
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
    pub(crate) fn take_slots(
        &mut self,
        quiet: &Uffd,
        size: PageSize,
        want: u64,
    ) -> Result<(u64, u64), Errno> {
        let layout = self.layout;
        self.sized(size).slots.take(want, |part| {
            layout.commit(part)?;
            quiet.register(part.start, part.len, false)
        })
    }

    /// The address is empty again, whatever zone it is of.
    pub(crate) fn give_empty(&mut self, size: PageSize, addr: u64) {
        let sized = self.sized(size);
        if sized.slots.zone.contains(addr) {
            sized.slots.give(addr);
        } else if let Some((_, area)) = sized
            .stages
            .iter_mut()
            .find(|(_, area)| area.zone.contains(addr))
        {
            area.give(addr);
        }
    }

    /// What is at the address is not a whole huge page, or its page table was split: drops what
    /// is there and makes the address fit for a huge page again.
    pub(crate) fn renew(&mut self, quiet: &Uffd, size: PageSize, addr: u64) {
        let layout = self.layout;
        let sized = self.sized(size);
        let part = Zone {
            start: addr,
            len: size.bytes(),
        };
        let is_slot = sized.slots.zone.contains(addr);
        // An address that cannot be renewed is not used again.
        if is_slot && quiet.unregister(part.start, part.len).is_err() {
            return;
        }
        // SAFETY: the caller gives up what is there; no userfaultfd reports it any more.
        if unsafe { layout.renew(part) }.is_err() {
            return;
        }
        if is_slot && quiet.register(part.start, part.len, false).is_err() {
            return;
        }
        self.give_empty(size, addr);
    }

    /// The frame is not needed any more: kept for reuse if it never was the program's, else dropped.
    pub(crate) fn release(&mut self, size: PageSize, frame: Frame) {
        let most = POOL_MAX[size_index(size)];
        let sized = self.sized(size);
        if sized.slots.zone.contains(frame.addr) {
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

    /// The pages in the slots are not needed any more and give their memory back, many at a time.
    pub(crate) fn bury(&mut self, size: PageSize, slots: impl IntoIterator<Item = u64>) {
        let (sized, most) = (self.sized(size), BURY_AT[size_index(size)]);
        sized.dead.extend(slots);
        if sized.dead.len() >= most {
            sized.bury_dead();
        }
    }

    /// Gives pooled frames back to the system, down to `keep` base pages of each node, and what waits
    /// to be dropped.
    pub(crate) fn trim(&mut self, keep: usize) {
        for sized in &mut self.sizes {
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
            sized.bury_dead();
        }
    }
}

impl Sized {
    /// Gives a staging frame's memory back to the system.
    fn drop_frame(&mut self, addr: u64) {
        // SAFETY: a staging page that nobody uses any more, in a range that reports no events.
        let _ = unsafe { arena::discard(addr, self.size.bytes()) };
        if let Some((_, area)) = self
            .stages
            .iter_mut()
            .find(|(_, area)| area.zone.contains(addr))
        {
            area.give(addr);
        }
    }

    /// Drops what is in dead slots, neighbours in one call: each takes a TLB shootdown.
    fn bury_dead(&mut self) {
        let mut dead = std::mem::take(&mut self.dead);
        dead.sort_unstable();
        let bytes = self.size.bytes();
        for run in dead.chunk_by(|one, next| *next == one + bytes) {
            // SAFETY: nothing refers to the pages of dead slots, and their userfaultfd reports nothing.
            let dropped = unsafe { arena::discard(run[0], run.len() as u64 * bytes) };
            // What could not be dropped is not empty: such a slot is not used again.
            if dropped.is_ok() {
                run.iter().for_each(|addr| self.slots.give(*addr));
            }
        }
    }
}
