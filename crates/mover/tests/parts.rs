// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that cannot be moved, among many that can, and a node that is full, on a real kernel with two memory tiers.
//!
//! Runs in the lab (`terrace-lab run`, which sets `TERRACE_LAB`); elsewhere it says SKIPPED.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::pipe::IoSliceRaw;
use rustix::pipe::SpliceFlags;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_mover::move_pages::MovePagesMover;
use terrace_mover::move_pages::Order;
use terrace_proto::Outcome;
use terrace_sys::mempolicy;
use terrace_sys::mempolicy::Policy;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;
use terrace_sys::topology::memory::MemoryReader;

const PAGE: usize = 4096;
const PAGES: usize = 1024;
/// Alone in its part, two in one, the last of one, the last of all.
const PINNED: [usize; 5] = [3, 40, 41, 319, PAGES - 1];
const PATIENCE: Duration = Duration::from_secs(120);
const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
/// Whoever fills a node has the machine for itself.
static MEMORY: Mutex<()> = Mutex::new(());

/// Memory of base pages, of which each begins with its number.
struct Memory(&'static mut [u8]);

impl Memory {
    /// On a node; what does not fit there is elsewhere.
    fn on(node: NodeId, pages: usize) -> Self {
        let bytes = pages * PAGE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of the kernel's choice that lives as long as this, and advice on it.
        let memory: &'static mut [u8] = unsafe {
            let flags = MapFlags::PRIVATE;
            let at =
                rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags).unwrap();
            rustix::mm::madvise(at, bytes, Advice::LinuxNoHugepage).unwrap();
            std::slice::from_raw_parts_mut(at.cast(), bytes)
        };
        let start = memory.as_ptr().addr() as u64;
        mempolicy::mbind(start, bytes as u64, &Policy::Preferred(node)).unwrap();
        for (number, page) in (0_u64..).zip(memory.chunks_mut(PAGE)) {
            page[..8].copy_from_slice(&number.to_ne_bytes());
        }
        Self(memory)
    }

    fn start(&self) -> u64 {
        self.0.as_ptr().addr() as u64
    }

    /// Each page still begins with its number.
    fn check(&self) {
        for (number, page) in (0_u64..).zip(self.0.chunks(PAGE)) {
            assert_eq!(page[..8], number.to_ne_bytes(), "page {number}");
        }
    }

    /// Where its pages are.
    fn places(&self) -> Vec<PageStatus> {
        let pages: Vec<u64> = (self.start()..)
            .step_by(PAGE)
            .take(self.0.len() / PAGE)
            .collect();
        move_pages::query(Target::Own, &pages).unwrap()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping is this one's, and nobody has its slice any more.
        unsafe { rustix::mm::munmap(self.0.as_mut_ptr().cast(), self.0.len()) }.unwrap();
    }
}

/// Moves these pages of the memory to a node; gives their ends, which come once each.
fn moved(
    mover: &mut MovePagesMover,
    start: u64,
    pages: &[usize],
    to: NodeId,
) -> BTreeMap<usize, Outcome> {
    for page in pages {
        mover.submit(Order {
            seq: *page as u64,
            page: PageRef {
                pid: Pid(std::process::id()),
                addr: Addr(start + (page * PAGE) as u64),
                size: PageSize::Base4K,
            },
            to,
        });
    }
    mover.flush();
    let mut ends = BTreeMap::new();
    let until = Instant::now() + PATIENCE;
    while ends.len() < pages.len() {
        assert!(Instant::now() < until, "{} ends came", ends.len());
        for done in mover.ends() {
            let page = usize::try_from(done.seq).unwrap();
            assert!(ends.insert(page, done.outcome).is_none(), "{page} twice");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    ends
}

#[test]
fn what_stays_is_told_apart_from_what_moved_with_it() {
    if std::env::var_os("TERRACE_LAB").is_none() {
        eprintln!("SKIPPED: wants two memory tiers; run in the lab");
        return;
    }
    let _alone = MEMORY.lock().unwrap();
    let memory = Memory::on(SLOW, PAGES);
    let all: Vec<usize> = (0..PAGES).collect();
    let mut mover = MovePagesMover::start().unwrap();
    assert_eq!(memory.places(), [PageStatus::On(SLOW); PAGES]);
    let (out, into) = rustix::pipe::pipe().unwrap();
    for page in PINNED {
        let slice = [IoSliceRaw::from_slice(&memory.0[page * PAGE..][..PAGE])];
        // SAFETY: nobody reads from the pipe.
        let held = unsafe { rustix::pipe::vmsplice(&into, &slice, SpliceFlags::empty()) };
        assert_eq!(held.unwrap(), PAGE);
    }
    let ends = moved(&mut mover, memory.start(), &all, FAST);
    for (page, on) in memory.places().into_iter().enumerate() {
        let (end, node) = if PINNED.contains(&page) {
            (Outcome::Busy, SLOW)
        } else {
            (Outcome::Done, FAST)
        };
        assert_eq!(
            (ends[&page], on),
            (end, PageStatus::On(node)),
            "page {page}"
        );
    }

    drop((out, into));
    let ends = moved(&mut mover, memory.start(), &PINNED, FAST);
    assert!(ends.values().all(|end| *end == Outcome::Done), "{ends:?}");
    memory.check();
}

#[test]
fn a_full_node_is_told_as_one() {
    if std::env::var_os("TERRACE_LAB").is_none() {
        eprintln!("SKIPPED: wants two memory tiers; run in the lab");
        return;
    }
    let _alone = MEMORY.lock().unwrap();
    let few = Memory::on(SLOW, 4 * PAGES);
    std::fs::write("/proc/sys/vm/drop_caches", "1").unwrap();
    let free = MemoryReader::open(Path::new("/")).unwrap();
    let free = free.read(FAST).unwrap().free_bytes;
    let others = Memory::on(FAST, usize::try_from(free).unwrap() / PAGE);
    let mut mover = MovePagesMover::start().unwrap();
    let all: Vec<usize> = (0..4 * PAGES).collect();
    let ends = moved(&mut mover, few.start(), &all, FAST);
    for (page, on) in few.places().into_iter().enumerate() {
        let end = match on {
            PageStatus::On(FAST) => Outcome::Done,
            _ => Outcome::NoMemory,
        };
        assert_eq!(ends[&page], end, "page {page}, {on:?}");
    }
    let full = ends.values().filter(|end| **end == Outcome::NoMemory);
    assert!(full.count() > PAGES);
    few.check();
    others.check();
}
