// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that cannot be moved, among many that can, on a real kernel with two memory tiers.
//!
//! Runs in the lab (`terrace-lab run`, which sets `TERRACE_LAB`); elsewhere it says SKIPPED.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
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
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;

const PAGE: usize = 4096;
const PAGES: usize = 1024;
/// Alone in its part, two in one, the last of one, the last of all.
const PINNED: [usize; 5] = [3, 40, 41, 319, PAGES - 1];
const PATIENCE: Duration = Duration::from_secs(120);

/// Base pages, each of which begins with its number.
fn memory() -> &'static [u8] {
    let bytes = PAGES * PAGE;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping of the kernel's choice that is never unmapped, and advice on it.
    let memory: &'static mut [u8] = unsafe {
        let flags = MapFlags::PRIVATE;
        let at =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags).unwrap();
        rustix::mm::madvise(at, bytes, Advice::LinuxNoHugepage).unwrap();
        std::slice::from_raw_parts_mut(at.cast(), bytes)
    };
    for (number, page) in (0_u64..).zip(memory.chunks_mut(PAGE)) {
        page[..8].copy_from_slice(&number.to_ne_bytes());
    }
    memory
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
    let memory = memory();
    let start = memory.as_ptr().addr() as u64;
    let all: Vec<usize> = (0..PAGES).collect();
    let (fast, slow) = (NodeId(0), NodeId(1));
    let mut mover = MovePagesMover::start().unwrap();
    let ends = moved(&mut mover, start, &all, slow);
    assert!(ends.values().all(|end| *end == Outcome::Done), "{ends:?}");

    let (out, into) = rustix::pipe::pipe().unwrap();
    for page in PINNED {
        let slice = [IoSliceRaw::from_slice(&memory[page * PAGE..][..PAGE])];
        // SAFETY: the memory is never freed.
        let held = unsafe { rustix::pipe::vmsplice(&into, &slice, SpliceFlags::empty()) };
        assert_eq!(held.unwrap(), PAGE);
    }
    let ends = moved(&mut mover, start, &all, fast);
    let addresses: Vec<u64> = all
        .iter()
        .map(|page| start + (page * PAGE) as u64)
        .collect();
    let where_now = move_pages::query(Target::Own, &addresses).unwrap();
    for (page, on) in where_now.into_iter().enumerate() {
        let (end, node) = if PINNED.contains(&page) {
            (Outcome::Busy, slow)
        } else {
            (Outcome::Done, fast)
        };
        assert_eq!(
            (ends[&page], on),
            (end, PageStatus::On(node)),
            "page {page}"
        );
    }

    drop((out, into));
    let ends = moved(&mut mover, start, &PINNED, fast);
    assert!(ends.values().all(|end| *end == Outcome::Done), "{ends:?}");
    for (number, page) in (0_u64..).zip(memory.chunks(PAGE)) {
        assert_eq!(page[..8], number.to_ne_bytes(), "page {number}");
    }
}
