// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's one piece of address space and what lies where in it.
//!
//! Everything the agent's threads touch while they hold the lock lies in here or in the code and
//! data of the library: heap, stacks, staging areas, slots. So no page that the agent manages can
//! be one it needs to manage it. The reservation is inaccessible at both ends, hence the kernel
//! never joins our mappings with the program's; it is left out of forks and core dumps.
//!
//! Offsets and sizes are bytes, multiples of 2 MiB.

use std::ffi::CStr;

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_sys::arena;
use terrace_sys::arena::Reservation;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::mbind;

/// Nodes that can have a staging area.
pub(crate) const NODES: u64 = 16;
/// Threads that can have a stack.
pub(crate) const STACKS: u64 = 16;
/// Bytes of one stack.
pub(crate) const STACK_BYTES: u64 = 512 << 10;

const HUGE: u64 = PageSize::Huge2M.bytes();
const HEAP: u64 = 1 << 30;
const STAGE_4K: u64 = 32 << 20;
const STAGE_2M: u64 = 256 << 20;
const TRASH_4K: u64 = 2 << 20;
const TRASH_2M: u64 = 64 << 20;
const SLOTS_4K: u64 = 64 << 30;
const SLOTS_2M: u64 = 256 << 30;
/// Where the program's address space is limited, we take no more than this part of it.
const LIMIT_SHARE: u64 = 8;

/// A part of the layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Zone {
    /// First byte.
    pub(crate) start: u64,
    /// Bytes.
    pub(crate) len: u64,
}

impl Zone {
    pub(crate) const fn contains(&self, addr: u64) -> bool {
        addr >= self.start && addr - self.start < self.len
    }
}

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Layout {
    reservation: Reservation,
    pub(crate) heap: Zone,
    pub(crate) stacks: Zone,
    stages_4k: Zone,
    stages_2m: Zone,
    trash_4k: Zone,
    trash_2m: Zone,
    slots_4k: Zone,
    slots_2m: Zone,
}

/// Cuts zones off a range, one behind the other.
struct Cutter(u64);

impl Cutter {
    fn cut(&mut self, len: u64) -> Zone {
        let start = self.0;
        self.0 += len;
        Zone { start, len }
    }
}

impl Layout {
    /// Reserves the address space; smaller where the process has a limit.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is no room even for the smallest layout.
    pub(crate) fn new() -> Result<Self, Errno> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
        let mut last = Errno::NOMEM;
        for shift in 0..8 {
            let total = Self::total(shift);
            if limit.is_some_and(|limit| total > limit / LIMIT_SHARE) {
                continue;
            }
            match Reservation::new(total, HUGE) {
                Ok(reservation) => return Self::divide(reservation, shift),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The parts that scale: the heap holds the records of the slots.
    const fn scaled(len: u64, shift: u32) -> u64 {
        let len = len >> shift;
        if len < HUGE { HUGE } else { len }
    }

    const fn total(shift: u32) -> u64 {
        Self::scaled(HEAP, shift)
            + STACKS * STACK_BYTES
            + Self::scaled(STAGE_4K, shift) * NODES
            + Self::scaled(STAGE_2M, shift) * NODES
            + TRASH_4K
            + TRASH_2M
            + Self::scaled(SLOTS_4K, shift * 2)
            + Self::scaled(SLOTS_2M, shift * 2)
    }

    fn divide(reservation: Reservation, shift: u32) -> Result<Self, Errno> {
        let mut cutter = Cutter(reservation.start());
        let layout = Self {
            heap: cutter.cut(Self::scaled(HEAP, shift)),
            stacks: cutter.cut(STACKS * STACK_BYTES),
            stages_4k: cutter.cut(Self::scaled(STAGE_4K, shift) * NODES),
            stages_2m: cutter.cut(Self::scaled(STAGE_2M, shift) * NODES),
            trash_4k: cutter.cut(TRASH_4K),
            trash_2m: cutter.cut(TRASH_2M),
            slots_4k: cutter.cut(Self::scaled(SLOTS_4K, shift * 2)),
            slots_2m: cutter.cut(Self::scaled(SLOTS_2M, shift * 2)),
            reservation,
        };
        layout.describe()?;
        Ok(layout)
    }

    /// Names the zones and says once what holds for each: an explicit policy keeps the
    /// NUMA-balancing scanner out. A kernel without NUMA or huge pages refuses; then there is
    /// nothing to keep out.
    fn describe(&self) -> Result<(), Errno> {
        let named: [(Zone, &CStr, bool); 8] = [
            (self.heap, c"terrace heap", false),
            (self.stacks, c"terrace stacks", false),
            (self.stages_4k, c"terrace staging", false),
            (self.stages_2m, c"terrace staging huge", true),
            (self.trash_4k, c"terrace released", false),
            (self.trash_2m, c"terrace released huge", true),
            (self.slots_4k, c"terrace shadows", false),
            (self.slots_2m, c"terrace shadows huge", true),
        ];
        for (zone, name, huge) in named {
            arena::name(zone.start, zone.len, name);
            let _ = arena::huge_pages(zone.start, zone.len, huge);
            let _ = mbind(zone.start, zone.len, &Policy::Local);
        }
        self.commit(self.stacks)?;
        // The C library keeps its records of the threads on their stacks, linked to each other and
        // to the main thread's; a forked child walks them.
        self.reservation
            .inherit(self.stacks.start - self.start(), self.stacks.len)
    }

    /// First byte of it all.
    pub(crate) const fn start(&self) -> u64 {
        self.reservation.start()
    }

    /// First byte behind.
    pub(crate) const fn end(&self) -> u64 {
        self.reservation.end()
    }

    /// Makes a part usable.
    ///
    /// # Errors
    ///
    /// As [`Reservation::commit`].
    pub(crate) fn commit(&self, part: Zone) -> Result<(), Errno> {
        self.reservation.commit(part.start - self.start(), part.len)
    }

    /// Replaces a part of a zone of huge pages by an empty one: its page tables were torn, and no
    /// huge page fits there any more.
    ///
    /// # Errors
    ///
    /// As [`Reservation::renew`].
    ///
    /// # Safety
    ///
    /// As [`Reservation::renew`].
    pub(crate) unsafe fn renew(&self, part: Zone, policy: &Policy) -> Result<(), Errno> {
        // SAFETY: the caller's word.
        unsafe { self.reservation.renew(part.start - self.start(), part.len) }?;
        let _ = arena::huge_pages(part.start, part.len, true);
        let _ = mbind(part.start, part.len, policy);
        let name = if self.slots_2m.contains(part.start) {
            c"terrace shadows huge"
        } else {
            c"terrace staging huge"
        };
        arena::name(part.start, part.len, name);
        Ok(())
    }

    /// Gives all frames back to the system. Only when no page of them is registered any more.
    pub(crate) fn discard_frames(&self) {
        let start = self.stages_4k.start;
        // SAFETY: the agent has ended; nothing refers to a frame, and no userfaultfd reports it.
        let _ = unsafe { arena::discard(start, self.end() - start) };
    }

    /// The staging zone of the `index`-th node.
    pub(crate) fn stage(&self, size: PageSize, index: u64) -> Zone {
        let all = if size == PageSize::Base4K {
            self.stages_4k
        } else {
            self.stages_2m
        };
        let len = all.len / NODES;
        Zone {
            start: all.start + len * index.min(NODES - 1),
            len,
        }
    }

    /// Where pages are put to be dropped.
    pub(crate) const fn trash(&self, size: PageSize) -> Zone {
        match size {
            PageSize::Base4K => self.trash_4k,
            _ => self.trash_2m,
        }
    }

    /// Where moved-out pages live.
    pub(crate) const fn slots(&self, size: PageSize) -> Zone {
        match size {
            PageSize::Base4K => self.slots_4k,
            _ => self.slots_2m,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_do_not_overlap_and_hold_huge_pages() {
        let layout = Layout::new().expect("address space");
        let mut zones = vec![layout.heap, layout.stacks];
        for size in [PageSize::Base4K, PageSize::Huge2M] {
            zones.extend((0..NODES).map(|node| layout.stage(size, node)));
            zones.extend([layout.trash(size), layout.slots(size)]);
        }
        zones.sort_by_key(|zone| zone.start);
        for pair in zones.windows(2) {
            assert!(pair[0].start + pair[0].len <= pair[1].start);
        }
        let last = zones.last().expect("zones");
        assert!(last.start + last.len <= layout.end());
        assert_eq!(layout.slots(PageSize::Huge2M).start % HUGE, 0);
        assert_eq!(layout.stage(PageSize::Huge2M, 3).start % HUGE, 0);
    }
}
