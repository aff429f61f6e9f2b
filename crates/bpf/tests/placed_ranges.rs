// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which mappings have a memory policy of their own, against what this process has set. It needs root and a kernel with BTF and NUMA, as on
//! every machine that the tests run on.

use std::time::Instant;

use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_bpf::PlacedRanges;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::mbind;
use terrace_sys::procmaps::MapsFile;

const PAGE: u64 = 4096;
/// More than one read of the kernel's text, or of the iterator, has room for.
const PAGES: u64 = 6_000;

#[test]
fn every_mapping_with_a_policy_of_its_own_is_told_and_no_other() {
    let len = usize::try_from(PAGES * PAGE).expect("fits");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)
    };
    let start = start.expect("memory").addr() as u64;
    let page = |number: u64| Range {
        start: Addr(start + number * PAGE),
        end: Addr(start + (number + 1) * PAGE),
    };
    let placed: Vec<Range> = (0..PAGES).step_by(2).map(page).collect();
    for range in &placed {
        mbind(range.start.0, PAGE, &Policy::Preferred(NodeId(0))).expect("a kernel with NUMA");
    }
    let reader = PlacedRanges::open().expect("root, and a kernel with BPF");
    let begun = Instant::now();
    let mut told = reader
        .of(Pid(std::process::id()))
        .expect("the program runs");
    let took = begun.elapsed();
    told.retain(|range| range.start.0 >= start && range.end.0 <= start + PAGES * PAGE);
    assert_eq!(told.len(), placed.len());
    assert_eq!(told, placed);
    let begun = Instant::now();
    let maps = MapsFile::own().and_then(|mut maps| maps.all());
    let count = maps.expect("/proc is mounted").len();
    println!(
        "{count} mappings: {took:?}, and {:?} for /proc/PID/maps",
        begun.elapsed()
    );
    mbind(start, PAGES * PAGE, &Policy::Default).expect("as before");
    let told = reader
        .of(Pid(std::process::id()))
        .expect("the program runs");
    assert!(
        told.iter()
            .all(|range| range.end.0 <= start || range.start.0 >= start + PAGES * PAGE)
    );
    let gone = reader.of(Pid(0x3fff_ffff));
    assert!(gone.is_err() || gone.is_ok_and(|told| told.is_empty()));
}
