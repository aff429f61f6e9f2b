// SPDX-License-Identifier: MIT OR Apache-2.0
//! Page tables as BPF reads them, against what the kernel says of this process. They need root and a kernel
//! with BTF and pagemap, as on every machine that the tests run on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_bpf::FrameRange;
use terrace_bpf::PageTables;
use terrace_bpf::RawChunk;
use terrace_bpf::Wanted;
use terrace_core::Addr;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::advise;
use terrace_sys::process::PidFd;

const CHUNK: u64 = 2 << 20;

/// Aligned memory of this process that the test never gives back.
fn memory(chunks: u64, advice: Advice) -> u64 {
    let len = usize::try_from((chunks + 1) * CHUNK).expect("fits");
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let start = unsafe {
        let start =
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE)
                .expect("memory");
        let _ = rustix::mm::madvise(start, len, advice);
        start
    };
    (start.addr() as u64).next_multiple_of(CHUNK)
}

fn write(addr: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(addr).expect("64 bit"));
    // SAFETY: memory of this test.
    unsafe { at.write_volatile(1) }
}

fn of(start: u64, chunks: u64) -> Range {
    Range {
        start: Addr(start),
        end: Addr(start + chunks * CHUNK),
    }
}

fn gather(tables: &mut PageTables, pid: u32, range: Range) -> Vec<RawChunk> {
    let bound = tables.bind(Pid(pid)).expect("a process");
    let mut found = Vec::new();
    let walked = tables
        .walk(&bound, range, |chunk| found.push(*chunk))
        .expect("a walk");
    assert!(!walked.gone && walked.root != 0);
    found
}

/// Frame number, 0 where nothing is there.
fn frame(addr: u64) -> u64 {
    let mut entry = [0; 8];
    let file = File::open("/proc/self/pagemap").expect("pagemap");
    file.read_exact_at(&mut entry, addr / 4096 * 8)
        .expect("an entry");
    let entry = u64::from_ne_bytes(entry);
    if entry >> 63 == 1 {
        entry & ((1 << 55) - 1)
    } else {
        0
    }
}

#[test]
fn what_is_present_and_where_is_what_pagemap_says() {
    let start = memory(3, Advice::LinuxNoHugepage);
    // The second chunk has none; the third's last page has one.
    let touched = [0, 1, 63, 64, 200, 511, 2 * 512 + 511];
    for page in touched {
        write(start + page * 4096);
    }
    let odd = FrameRange {
        first: frame(start),
        count: 1,
    };
    let all = FrameRange {
        first: 0,
        count: 1 << 40,
    };
    let mut tables = PageTables::open(&[all, odd]).expect("readable page tables");
    let writes = || touched.iter().for_each(|page| write(start + page * 4096));
    let found = accessed(&mut tables, of(start, 3), None, writes);
    assert_eq!(found.len(), 2);
    for chunk in &found {
        assert!(!chunk.huge());
        for page in 0..512 {
            let addr = chunk.start().0 + page as u64 * 4096;
            let there = frame(addr) != 0;
            assert_eq!(chunk.present().get(page), there, "{addr:#x}");
            assert_eq!(chunk.accessed().get(page), there, "written: {addr:#x}");
            assert_eq!(chunk.within(0).get(page), there);
            assert_eq!(chunk.within(1).get(page), addr == start, "{addr:#x}");
        }
    }
    assert_eq!(found[0].first_frame(), frame(start));
    let (base, searched) = tables.direct_map();
    println!("direct map at {base:#x}, searched for: {searched}");
    assert_eq!(base % (1 << 30), 0, "{base:#x}");
}

/// What is wanted is told as a walk tells it, and nothing else is.
#[test]
fn wanted_pages_are_told_and_no_others() {
    let start = memory(300, Advice::LinuxNoHugepage);
    let touched = [0, 63, 64, 511, 5 * 512 + 130, 299 * 512 + 200];
    for page in touched {
        write(start + page * 4096);
    }
    let all = FrameRange {
        first: 0,
        count: 1 << 40,
    };
    let mut tables = PageTables::open(&[all]).expect("readable page tables");
    let bound = tables.bind(Pid(std::process::id())).expect("a process");
    let wanted = |chunk: u64, words: u8| Wanted {
        start: Addr(start + chunk * CHUNK),
        words,
    };
    // More than one run tells; the second 2 MiB, and the words of the last that are asked for, have nothing.
    let mut asked = vec![wanted(0, 0b10), wanted(1, 0xff), wanted(5, 0b100)];
    asked.extend((6..299).map(|chunk| wanted(chunk, 1)));
    asked.extend([wanted(299, 0b1), wanted(0, 0b1000_0001)]);
    let mut found = Vec::new();
    let walked = tables
        .look(&bound, &asked, |chunk| found.push(*chunk))
        .expect("a look");
    assert!(!walked.gone && walked.root != 0);
    let told: Vec<(u64, Vec<usize>)> = found
        .iter()
        .map(|chunk| {
            let pages = (0..512).filter(|page| chunk.present().get(*page)).collect();
            assert_eq!(chunk.within(0), chunk.present());
            (chunk.start().0, pages)
        })
        .collect();
    let at = |chunk: u64| start + chunk * CHUNK;
    let expected = [
        (at(0), vec![64]),
        (at(5), vec![130]),
        (at(0), vec![0, 63, 511]),
    ];
    assert_eq!(told, expected);
    let whole = gather(&mut tables, std::process::id(), of(start, 1));
    let bits = |chunk: &RawChunk| chunk.accessed().and(&chunk.present());
    assert_eq!(bits(&found[0]).and(&bits(&whole[0])), bits(&found[0]));
}

#[test]
fn the_page_of_zeros_is_nobodys() {
    let start = memory(1, Advice::LinuxNoHugepage);
    let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(start).expect("64 bit"));
    // SAFETY: memory of this test.
    assert_eq!(unsafe { at.read_volatile() }, 0);
    write(start + 4096);
    let mut tables = PageTables::open(&[]).expect("readable page tables");
    let found = gather(&mut tables, std::process::id(), of(start, 1));
    assert!(frame(start) != 0, "the page of zeros is mapped");
    assert_eq!(found[0].present().pages().collect::<Vec<_>>(), [1]);
}

#[test]
fn a_huge_page_is_one_entry() {
    let start = memory(1, Advice::LinuxHugepage);
    write(start + 5 * 4096);
    let all = FrameRange {
        first: frame(start),
        count: 512,
    };
    let mut tables = PageTables::open(&[all]).expect("readable page tables");
    let found = gather(&mut tables, std::process::id(), of(start, 1));
    assert_eq!(found.len(), 1);
    if frame(start) == 0 {
        // No huge page was free: base pages, and only the touched one.
        assert!(!found[0].huge());
        return;
    }
    assert!(found[0].huge());
    assert_eq!(found[0].present().count(), 1);
    assert_eq!(found[0].within(0).count(), 1);
    assert_eq!(found[0].first_frame(), frame(start));
}

fn protect(range: Range, flags: rustix::mm::MprotectFlags) {
    let start = usize::try_from(range.start.0).expect("64 bit");
    let len = usize::try_from(range.bytes()).expect("64 bit");
    // SAFETY: memory of this test, which nobody uses meanwhile.
    unsafe {
        rustix::mm::mprotect(std::ptr::with_exposed_provenance_mut(start), len, flags)
            .expect("our memory");
    }
}

/// What is read of these chunks when what was done to them has given all of their pages, or so many, their accessed bits. The kernel's
/// own DAMON (`DAMON_STAT`, Linux 6.17) takes some, every 5 ms a few of the whole machine's: then it is done again.
fn accessed(
    tables: &mut PageTables,
    range: Range,
    count: Option<u32>,
    mut done: impl FnMut(),
) -> Vec<RawChunk> {
    let all = |found: &[RawChunk], of: fn(&RawChunk) -> u32| found.iter().map(of).sum::<u32>();
    for _ in 0..20 {
        done();
        let found = gather(tables, std::process::id(), range);
        let present = all(&found, |chunk| chunk.present().count());
        if all(&found, |chunk| chunk.accessed().count()) == count.unwrap_or(present) {
            return found;
        }
    }
    panic!("pages that were just written to have no accessed bits, twenty times");
}

/// Its parts stay where they are, and what is in them; that it was accessed says nothing of each of them.
#[test]
fn a_huge_page_is_split_from_outside() {
    let start = memory(2, Advice::LinuxHugepage);
    let pages = (0..1024).map(|page| start + page * 4096);
    pages.clone().for_each(write);
    let mut tables = PageTables::open(&[]).expect("readable page tables");
    let huge = |tables: &mut PageTables| -> Vec<bool> {
        let found = gather(tables, std::process::id(), of(start, 2));
        found.iter().map(RawChunk::huge).collect()
    };
    if huge(&mut tables) != [true, true] {
        // None was free.
        return;
    }
    let ourselves = PidFd::open(Pid(std::process::id())).expect("ourselves");
    accessed(&mut tables, of(start, 2), None, || {
        pages.clone().for_each(write);
    });
    advise::split(&ourselves, Addr(start)).expect("it is there");
    assert_eq!(huge(&mut tables), [false, true]);
    let found = gather(&mut tables, std::process::id(), of(start, 2));
    assert_eq!(found[0].present().count(), 512);
    assert_eq!(found[0].accessed().count(), 0);
    for at in pages {
        let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(at).expect("64 bit"));
        // SAFETY: memory of this test.
        assert_eq!(unsafe { at.read_volatile() }, 1);
    }
}

/// NUMA balancing arms a page by making its entry what this makes of it: not present for the processor, frame and
/// accessed bit kept.
#[test]
fn a_page_that_may_not_be_touched_is_there_with_its_accessed_bit() {
    use rustix::mm::MprotectFlags;
    use terrace_sys::advise;
    use terrace_sys::process::PidFd;

    for advice in [Advice::LinuxNoHugepage, Advice::LinuxHugepage] {
        let start = memory(1, advice);
        let range = of(start, 1);
        let writes = || (0..4).for_each(|page| write(start + page * 4096));
        let mut tables = PageTables::open(&[]).expect("readable page tables");
        let before = accessed(&mut tables, range, None, writes);
        let armed = accessed(&mut tables, range, None, || {
            protect(range, MprotectFlags::READ | MprotectFlags::WRITE);
            writes();
            protect(range, MprotectFlags::empty());
        });
        let bits = |found: &[RawChunk]| (found[0].present(), found[0].accessed());
        assert_eq!(bits(&armed), bits(&before), "{advice:?}: as before");
        // pagemap tells the frame of an armed page, too.
        let mine = FrameRange {
            first: frame(start),
            count: 1,
        };
        let mut tables = PageTables::open(&[mine]).expect("readable page tables");
        let armed = gather(&mut tables, std::process::id(), range);
        assert_eq!(armed[0].first_frame(), mine.first);
        assert_eq!(armed[0].within(0).count(), 1);

        // Clearing reaches it, and with the access the bit is back.
        let process = PidFd::open(Pid(std::process::id())).expect("this process");
        assert_eq!(advise::cold(&process, &[range]), Ok(1));
        let cleared = gather(&mut tables, std::process::id(), range);
        assert_eq!(cleared[0].present(), before[0].present());
        assert!(cleared[0].accessed().is_empty(), "{advice:?}");
        protect(range, MprotectFlags::READ | MprotectFlags::WRITE);
        let touched = accessed(&mut tables, range, Some(1), || write(start + 4096));
        assert_eq!(touched[0].present(), before[0].present());
    }
}

#[test]
fn a_process_that_ended_has_no_pages() {
    let mut tables = PageTables::open(&[]).expect("readable page tables");
    let mut child = Command::new("sleep").arg("60").spawn().expect("sleep");
    let bound = tables.bind(Pid(child.id())).expect("a process");
    let everything = Range {
        start: Addr(0),
        end: Addr(1 << 47),
    };
    let mut chunks = 0;
    let walked = tables.walk(&bound, everything, |_| chunks += 1);
    assert!(!walked.expect("a walk").gone);
    assert!(chunks > 0);
    child.kill().expect("still there");
    child.wait().expect("a child");
    let walked = tables.walk(&bound, everything, |_| panic!("of whom?"));
    assert!(walked.expect("a walk").gone);
    let nobody = tables.bind(Pid(child.id())).expect("a number");
    let walked = tables.walk(&nobody, everything, |_| panic!("of whom?"));
    assert!(walked.expect("a walk").gone);
}

/// Says what a page costs, with `--nocapture`; asserts nothing of it.
#[test]
fn many_chunks_come_in_order() {
    let chunks = 600;
    let start = memory(chunks, Advice::LinuxNoHugepage);
    for page in 0..chunks * 512 {
        write(start + page * 4096);
    }
    let some = FrameRange {
        first: 0,
        count: 1 << 20,
    };
    for ranges in [vec![], vec![some], vec![some; 3]] {
        let mut tables = PageTables::open(&ranges).expect("readable page tables");
        let _ = gather(&mut tables, std::process::id(), of(start, chunks));
        let before = Instant::now();
        let found = gather(&mut tables, std::process::id(), of(start, chunks));
        let took = before.elapsed();
        let each = took.as_secs_f64() * 1e9 / (600.0 * 512.0);
        println!("{} ranges: {each:.2} ns a page", ranges.len());
        assert_eq!(found.len(), 600);
        assert!(found.windows(2).all(|w| w[0].start() < w[1].start()));
        assert!(found.iter().all(|chunk| chunk.present().count() == 512));
    }
}
