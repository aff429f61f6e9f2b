// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent's one piece of address space and what lies where in it.
//!
//! Everything the agent's threads touch while they hold the lock lies in here or in the code and
//! data of the library: heap, stacks, staging areas, slots, old pages. So no page that the agent manages can
//! be one it needs to manage it. The zones are addresses only, far from the program's mappings; parts of
//! them are mapped when they are needed, left out of forks and core dumps.
//!
//! What is mapped counts where the program's own memory does: `RLIMIT_AS`, `RLIMIT_DATA`, what mlockall(2) may
//! lock. Where the program has a limit, at the start or later, we take no more than a small part of it, and leave
//! when we have more ([`Layout::is_over`]).
//!
//! Offsets and sizes are bytes, multiples of 2 MiB.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use rustix::io::Errno;
use rustix::process::Resource;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_sys::arena;
use terrace_sys::arena::Territory;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::mbind;

use crate::life::tls::Pattern;
use crate::life::tls::Shape;

/// Nodes that can have a staging area.
pub(crate) const NODES: u64 = STAGES as u64;
const STAGES: usize = 16;
/// Threads that can have a stack.
pub(crate) const STACKS: u64 = 16;
/// Bytes of one stack, the block of its thread apart.
const STACK_BYTES: u64 = 256 << 10;
/// From one stack to the next: the rest is not mapped, so an overflow ends there.
const STACK_EVERY: u64 = 2 << 20;

const HUGE: u64 = PageSize::Huge2M.bytes();
/// Records of a page take some 60 bytes, and there is room for 16 million shadows: never full before that is.
const HEAP: u64 = 32 << 30;
/// Shadows of base pages are in staging zones.
const STAGE_4K: u64 = 16 << 30;
const STAGE_2M: u64 = 256 << 20;
/// The page of [`crate::life::door`], and room to the next multiple of 2 MiB.
const BELL: u64 = 1 << 20;
/// For what is out at a time, and waits to be dropped together.
const SLOTS_4K: u64 = 1 << 30;
const SLOTS_2M: u64 = 16 << 30;
const OLD_4K: u64 = 64 << 30;
const OLD_2M: u64 = 1 << 30;
/// Where the program's address space or data are limited, we take no more than this part of it.
const LIMIT_SHARE: u64 = 8;
/// No node is preferred.
const NO_NODE: u32 = u32::MAX;

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

/// What a thread is started on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stack {
    /// First byte behind the stack.
    pub(crate) top: u64,
    /// The thread pointer.
    pub(crate) pointer: u64,
    /// Where the thread's number belongs, if that is known.
    pub(crate) number: Option<u64>,
}

/// Where everything is.
#[derive(Debug)]
pub(crate) struct Layout {
    land: Territory,
    /// Bytes that are mapped.
    taken: AtomicU64,
    pattern: OnceLock<Option<Pattern>>,
    /// The node that each staging zone is for, of both sizes.
    nodes: [[AtomicU32; STAGES]; 2],
    pub(crate) heap: Zone,
    stacks: Zone,
    stages_4k: Zone,
    stages_2m: Zone,
    bell: Zone,
    slots_4k: Zone,
    slots_2m: Zone,
    old_4k: Zone,
    old_2m: Zone,
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
    const TOTAL: u64 = HEAP
        + (STACKS + 1) * STACK_EVERY
        + (STAGE_4K + STAGE_2M) * NODES
        + BELL
        + SLOTS_4K
        + SLOTS_2M
        + OLD_4K
        + OLD_2M;

    /// Finds a place; nothing is mapped yet.
    ///
    /// # Errors
    ///
    /// `ENOMEM` where there is none.
    pub(crate) fn new() -> Result<Self, Errno> {
        // Where the kernel put this stack differs from run to run.
        let local = 0_u8;
        let salt = (&raw const local).expose_provenance() as u64 >> 12;
        let land = Territory::find(Self::TOTAL, HUGE, salt)?;
        let mut cutter = Cutter(land.start());
        Ok(Self {
            heap: cutter.cut(HEAP),
            stacks: cutter.cut((STACKS + 1) * STACK_EVERY),
            stages_4k: cutter.cut(STAGE_4K * NODES),
            stages_2m: cutter.cut(STAGE_2M * NODES),
            slots_4k: cutter.cut(SLOTS_4K),
            slots_2m: cutter.cut(SLOTS_2M),
            old_4k: cutter.cut(OLD_4K),
            old_2m: cutter.cut(OLD_2M),
            bell: cutter.cut(BELL),
            taken: AtomicU64::new(0),
            pattern: OnceLock::new(),
            nodes: [const { [const { AtomicU32::new(NO_NODE) }; STAGES] }; 2],
            land,
        })
    }

    /// First byte of it all.
    pub(crate) const fn start(&self) -> u64 {
        self.land.start()
    }

    /// First byte behind.
    pub(crate) const fn end(&self) -> u64 {
        self.land.end()
    }

    /// Maps a part and says what holds for it: an explicit policy keeps the NUMA-balancing scanner out. A kernel
    /// without NUMA or huge pages refuses; then there is nothing to keep out.
    ///
    /// # Errors
    ///
    /// `ENOMEM` at a limit of the process, of mappings or of memory; `EEXIST` where the program has put something
    /// there; `EINVAL` where the node meant cannot be used.
    pub(crate) fn commit(&self, part: Zone) -> Result<(), Errno> {
        let taken = self.taken.fetch_add(part.len, Ordering::Relaxed) + part.len;
        let made = if taken > self.share() {
            Err(Errno::NOMEM)
        } else {
            self.land.take(part.start, part.len)
        };
        if made.is_err() {
            self.taken.fetch_sub(part.len, Ordering::Relaxed);
            return made;
        }
        let (name, huge, policy) = self.kind(part.start);
        arena::name(part.start, part.len, name);
        let _ = arena::huge_pages(part.start, part.len, huge);
        match mbind(part.start, part.len, &policy) {
            Err(error) if policy != Policy::Local => Err(error),
            _ => Ok(()),
        }
    }

    /// Of what zone an address is: its name, whether huge pages shall be there, and from which node.
    fn kind(&self, addr: u64) -> (&'static CStr, bool, Policy) {
        let zones: [(Zone, &CStr, bool); 8] = [
            (self.heap, c"terrace heap", false),
            (self.stacks, c"terrace stacks", false),
            (self.stages_4k, c"terrace staging", false),
            (self.stages_2m, c"terrace staging huge", true),
            (self.slots_4k, c"terrace slots", false),
            (self.slots_2m, c"terrace slots huge", true),
            (self.old_4k, c"terrace shadows", false),
            (self.old_2m, c"terrace old huge", true),
        ];
        let found = zones.into_iter().find(|(zone, _, _)| zone.contains(addr));
        let (_, name, huge) = found.unwrap_or((self.heap, c"terrace", false));
        let node = self.preferred(addr).load(Ordering::Relaxed);
        let policy = if node == NO_NODE {
            Policy::Local
        } else {
            Policy::Preferred(NodeId(u8::try_from(node).unwrap_or(0).into()))
        };
        (name, huge, policy)
    }

    fn preferred(&self, addr: u64) -> &AtomicU32 {
        static NONE: AtomicU32 = AtomicU32::new(NO_NODE);
        let sizes = [(self.stages_4k, STAGE_4K), (self.stages_2m, STAGE_2M)];
        for ((zone, every), nodes) in sizes.into_iter().zip(&self.nodes) {
            if zone.contains(addr) {
                let at = usize::try_from((addr - zone.start) / every);
                return at.ok().and_then(|at| nodes.get(at)).unwrap_or(&NONE);
            }
        }
        &NONE
    }

    /// What is mapped in a staging zone from here on comes from the node, as long as that has any.
    pub(crate) fn prefer(&self, stage: Zone, node: NodeId) {
        self.preferred(stage.start)
            .store(u32::from(node.0), Ordering::Relaxed);
    }

    /// The most that we may map.
    fn share(&self) -> u64 {
        let _ = self;
        let limits = [Resource::As, Resource::Data];
        let limits = limits.map(|limit| rustix::process::getrlimit(limit).current);
        let least = limits.into_iter().flatten().min();
        least.map_or(u64::MAX, |limit| limit / LIMIT_SHARE)
    }

    /// Whether a limit that came later leaves no room for what we have.
    pub(crate) fn is_over(&self) -> bool {
        self.taken.load(Ordering::Relaxed) > self.share()
    }

    /// Prepares the start of threads; `false` where this C library is not known. Only on a thread of the
    /// C library's.
    pub(crate) fn prepare_threads(&self) -> bool {
        let make = || {
            let shape = Shape::ask()?;
            let part = self.stack_zone(STACKS);
            let start = part.start + STACK_BYTES;
            let len = shape.bytes();
            if len > STACK_EVERY - STACK_BYTES || self.commit(Zone { start, len }).is_err() {
                return None;
            }
            // SAFETY: mapped just now, ours, and never given back.
            unsafe { Pattern::make(shape, start) }
        };
        self.pattern.get_or_init(make).is_some()
    }

    const fn stack_zone(&self, index: u64) -> Zone {
        Zone {
            start: self.stacks.start + index * STACK_EVERY,
            len: STACK_EVERY,
        }
    }

    /// The `index`-th stack, with a thread's block on top. Once each.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`]; `ENOSYS` before [`Self::prepare_threads`].
    pub(crate) fn stack(&self, index: u64) -> Result<Stack, Errno> {
        let pattern = self.pattern.get().and_then(Option::as_ref);
        let pattern = pattern.ok_or(Errno::NOSYS)?;
        let zone = self.stack_zone(index.min(STACKS - 1));
        let block = pattern.shape().bytes();
        // The lowest page of the zone stays unmapped.
        let start = zone.start + STACK_EVERY - STACK_BYTES - block;
        self.commit(Zone {
            start,
            len: STACK_BYTES + block,
        })?;
        let top = start + STACK_BYTES;
        // SAFETY: mapped just now, ours, and never given back.
        let pointer = unsafe { pattern.copy_to(top) };
        let number = pattern.number_at(pointer);
        Ok(Stack {
            top,
            pointer,
            number,
        })
    }

    /// Whether the calling thread is one of ours: by where its stack is.
    pub(crate) fn is_ours(&self) -> bool {
        let local = 0_u8;
        self.stacks
            .contains((&raw const local).expose_provenance() as u64)
    }

    /// Replaces a part by an empty one: it cannot be emptied otherwise, or its page tables were torn, and no huge page
    /// fits there any more.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`].
    ///
    /// # Safety
    ///
    /// Nothing may refer to the contents any more, and no userfaultfd may report the range.
    pub(crate) unsafe fn renew(&self, part: Zone) -> Result<(), Errno> {
        // SAFETY: the caller's word.
        unsafe { self.land.give_back(part.start, part.len) };
        self.taken.fetch_sub(part.len, Ordering::Relaxed);
        self.commit(part)
    }

    /// Gives all frames back to the system, addresses and all. Only when no page of them is registered any more.
    pub(crate) fn give_frames_back(&self) {
        let start = self.stages_4k.start;
        // SAFETY: the agent has ended; nothing refers to a frame, and no userfaultfd reports it.
        unsafe { self.land.give_back(start, self.end() - start) };
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

    /// The page by which the program's threads call the agent, mapped. Once.
    ///
    /// # Errors
    ///
    /// As [`Self::commit`].
    pub(crate) fn bell(&self) -> Result<Zone, Errno> {
        let page = Zone {
            start: self.bell.start,
            len: PageSize::Base4K.bytes(),
        };
        self.commit(page).map(|()| page)
    }

    /// Where pages are moved out to.
    pub(crate) const fn slots(&self, size: PageSize) -> Zone {
        match size {
            PageSize::Base4K => self.slots_4k,
            _ => self.slots_2m,
        }
    }

    /// Where shadows are, and pages on their way to be dropped.
    pub(crate) const fn old(&self, size: PageSize) -> Zone {
        match size {
            PageSize::Base4K => self.old_4k,
            _ => self.old_2m,
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
            zones.extend([layout.slots(size), layout.old(size)]);
        }
        zones.sort_by_key(|zone| zone.start);
        for pair in zones.windows(2) {
            assert!(pair[0].start + pair[0].len <= pair[1].start);
        }
        let last = zones.last().expect("zones");
        assert!(last.start + last.len <= layout.end());
        for zone in [
            layout.slots(PageSize::Huge2M),
            layout.old(PageSize::Huge2M),
            layout.stage(PageSize::Huge2M, 3),
        ] {
            assert_eq!(zone.start % HUGE, 0);
        }
    }

    #[test]
    fn what_is_mapped_is_counted_and_has_its_node() {
        let layout = Layout::new().expect("address space");
        let stage = layout.stage(PageSize::Base4K, 3);
        layout.prefer(stage, NodeId(0));
        let part = Zone {
            start: stage.start,
            len: HUGE,
        };
        assert_eq!(layout.kind(part.start).2, Policy::Preferred(NodeId(0)));
        let other = layout.stage(PageSize::Base4K, 2);
        assert_eq!(layout.kind(other.start).2, Policy::Local);
        layout.commit(part).expect("a part of a zone");
        assert_eq!(layout.commit(part), Err(Errno::EXIST));
        // SAFETY: nobody knows it.
        unsafe { layout.renew(part) }.expect("as before");
        assert_eq!(layout.taken.load(Ordering::Relaxed), HUGE);
    }
}
