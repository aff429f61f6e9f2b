// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the agent's own pages are: staged for a move in, moved out, or waiting to be used again.
//!
//! A *frame* is a present page at an address of ours; a *slot* is an empty address that a page of
//! the program can be moved out to. Slots are registered with the main userfaultfd, because MOVE
//! wants its destination there. Dropping a page from a slot would raise an event that nobody could
//! answer, so a dead frame is used as the next staging page of its node, and what is too much is
//! moved with a second userfaultfd, which reports no events, into the trash zone and dropped there; neighbours are taken out of the
//! main one for the moment of dropping them.
//!
//! Staging zones carry the policy `Preferred(node)`: a full node hands out a page of another one,
//! which we notice, and never starts the out-of-memory killer.

use std::collections::BTreeMap;

use rustix::io::Errno;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_sys::arena;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::mbind;
use terrace_sys::uffd::DONT_WAKE;
use terrace_sys::uffd::Uffd;

use crate::extents::Extents;
use crate::layout::Layout;
use crate::layout::NODES;
use crate::layout::Zone;
use crate::memory::size_index;

/// Frames kept for reuse, by size.
const POOL_MAX: [usize; 2] = [256, 2];
/// Frames that wait to be dropped together, by size: the more, the more are neighbours.
const BURY_AT: [usize; 2] = [192, 64];
/// So many of them may go one by one at a time, which takes a TLB shootdown each.
const BURY_ALONE: usize = 64;
/// Neighbours among them that are dropped where they are.
const BURY_IN_PLACE: usize = 3;
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
    trash: Zone,
    trashed: u64,
    /// Slots with a page that is to be dropped, together with others.
    dead: Vec<u64>,
}

/// The agent's frames.
#[derive(Debug)]
pub(crate) struct Frames {
    sizes: [Sized; 2],
    layout: &'static Layout,
    trash_uffd: Uffd,
    pool_max: [usize; 2],
}

impl Frames {
    /// Prepares the trash zones; nothing is allocated yet. Without `pool_base` dead base pages are
    /// of no use, as what a page is copied to comes from the kernel.
    ///
    /// # Errors
    ///
    /// What mprotect(2) and the registration say.
    pub(crate) fn new(
        layout: &'static Layout,
        trash_uffd: Uffd,
        pool_base: bool,
    ) -> Result<Self, Errno> {
        let sized = |size: PageSize| {
            let trash = layout.trash(size);
            layout.commit(trash)?;
            trash_uffd.register(trash.start, trash.len, false)?;
            Ok(Sized {
                size,
                slots: Area::new(layout.slots(size), size),
                stages: Vec::new(),
                pools: BTreeMap::new(),
                trash,
                trashed: 0,
                dead: Vec::new(),
            })
        };
        Ok(Self {
            sizes: [sized(PageSize::Base4K)?, sized(PageSize::Huge2M)?],
            layout,
            trash_uffd,
            pool_max: if pool_base {
                POOL_MAX
            } else {
                [0, POOL_MAX[1]]
            },
        })
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
            mbind(zone.start, zone.len, &Policy::Preferred(node))?;
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
        uffd: &Uffd,
        size: PageSize,
        want: u64,
    ) -> Result<(u64, u64), Errno> {
        let layout = self.layout;
        self.sized(size).slots.take(want, |part| {
            layout.commit(part)?;
            uffd.register(part.start, part.len, false)
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
    pub(crate) fn renew(&mut self, uffd: &Uffd, size: PageSize, addr: u64) {
        let layout = self.layout;
        let sized = self.sized(size);
        let part = Zone {
            start: addr,
            len: size.bytes(),
        };
        let is_slot = sized.slots.zone.contains(addr);
        let node = sized
            .stages
            .iter()
            .find(|(_, area)| area.zone.contains(addr))
            .map(|(node, _)| *node);
        let policy = node.map_or(Policy::Local, Policy::Preferred);
        // An address that cannot be renewed is not used again.
        if is_slot && uffd.unregister(part.start, part.len).is_err() {
            return;
        }
        // SAFETY: the caller gives up what is there; no userfaultfd reports it any more.
        if unsafe { layout.renew(part, &policy) }.is_err() {
            return;
        }
        if is_slot && uffd.register(part.start, part.len, false).is_err() {
            return;
        }
        self.give_empty(size, addr);
    }

    /// The frame is not needed any more: kept for reuse, or dropped.
    pub(crate) fn release(&mut self, uffd: &Uffd, size: PageSize, frame: Frame) {
        let most = self.pool_max[size_index(size)];
        let sized = self.sized(size);
        let pool = sized.pools.entry(frame.node).or_default();
        if pool.len() < most {
            pool.push(frame.addr);
        } else if sized.slots.zone.contains(frame.addr) {
            self.bury(uffd, size, [frame.addr]);
        } else {
            self.drop_frame(size, frame.addr);
        }
    }

    /// The slots' frames are not needed any more and give their memory back, many at a time.
    pub(crate) fn bury(
        &mut self,
        uffd: &Uffd,
        size: PageSize,
        slots: impl IntoIterator<Item = u64>,
    ) {
        let (sized, most) = (self.sized(size), BURY_AT[size_index(size)]);
        sized.dead.extend(slots);
        if sized.dead.len() >= most {
            self.bury_dead(uffd, size, most - BURY_ALONE);
        }
    }

    /// Drops dead frames, neighbours together; so many that have no neighbours may stay.
    fn bury_dead(&mut self, uffd: &Uffd, size: PageSize, stay: usize) {
        let mut dead = std::mem::take(&mut self.sized(size).dead);
        dead.sort_unstable();
        let mut alone = Vec::new();
        for run in dead.chunk_by(|one, next| *next == one + size.bytes()) {
            // Taken out for a moment a range reports no events: its pages go all at once, with one
            // TLB shootdown, where a move takes one for each.
            let whole = size == PageSize::Base4K && run.len() >= BURY_IN_PLACE;
            if whole && self.sized(size).discard_slots(uffd, run) {
                continue;
            }
            alone.extend_from_slice(run);
        }
        let gone = alone.split_off(alone.len().min(stay));
        self.sized(size).dead = alone;
        for addr in gone {
            self.drop_frame(size, addr);
        }
    }

    /// Gives the frame's memory back to the system.
    pub(crate) fn drop_frame(&mut self, size: PageSize, addr: u64) {
        let sized = &mut self.sizes[size_index(size)];
        if !sized.slots.zone.contains(addr) {
            // SAFETY: a staging page that nobody uses any more, in a range that reports no events.
            let _ = unsafe { arena::discard(addr, size.bytes()) };
            self.give_empty(size, addr);
            return;
        }
        if sized.trashed + size.bytes() > sized.trash.len {
            sized.empty_trash();
        }
        let to = sized.trash.start + sized.trashed;
        // SAFETY: both are addresses of ours that nothing refers to.
        let moved = unsafe {
            self.trash_uffd
                .move_pages(to, addr, size.bytes(), DONT_WAKE)
        };
        // A call that ends short may have moved the page all the same (see `relocate.rs`): that place
        // in the trash is not used again before it is emptied.
        sized.trashed += size.bytes();
        // A slot whose page does not move away is lost with it: an address and, until the
        // program ends, a page.
        if moved.is_ok_and(|moved| moved.stop.is_none()) {
            self.give_empty(size, addr);
        }
    }

    /// Gives pooled frames back to the system, down to `keep` base pages of each node, and
    /// empties the trash.
    pub(crate) fn trim(&mut self, uffd: &Uffd, keep: usize) {
        for size in [PageSize::Base4K, PageSize::Huge2M] {
            let keep = if size == PageSize::Base4K { keep } else { 0 };
            let mut surplus = Vec::new();
            for pool in self.sized(size).pools.values_mut() {
                while pool.len() > keep {
                    surplus.extend(pool.pop());
                }
            }
            for addr in surplus {
                self.drop_frame(size, addr);
            }
            self.bury_dead(uffd, size, keep);
            self.sized(size).empty_trash();
        }
    }
}

impl Sized {
    /// Drops the pages of neighbouring slots where they are; `false` where that cannot be.
    fn discard_slots(&mut self, uffd: &Uffd, run: &[u64]) -> bool {
        let (Some(start), bytes) = (run.first().copied(), self.size.bytes()) else {
            return true;
        };
        let len = run.len() as u64 * bytes;
        if uffd.unregister(start, len).is_err() {
            return false;
        }
        // SAFETY: the frames of dead slots are referred to by nothing, and no userfaultfd reports
        // what becomes of them.
        let dropped = unsafe { arena::discard(start, len) }.is_ok();
        // A slot that is not registered cannot be moved to: then it is not used again.
        if uffd.register(start, len, false).is_ok() && dropped {
            run.iter().for_each(|addr| self.slots.give(*addr));
        }
        true
    }

    fn empty_trash(&mut self) {
        debug_assert!(self.trashed.is_multiple_of(self.size.bytes()));
        if self.trashed > 0 {
            // SAFETY: what lies in the trash is referred to by nothing; its userfaultfd reports
            // no events.
            let dropped = unsafe { arena::discard(self.trash.start, self.trashed) };
            if dropped.is_ok() {
                self.trashed = 0;
            }
        }
    }
}
