// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reader of accessed bits over this process, whose threads touch pages as the tests have them. Needs root,
//! as the page tables' tests do.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::is_sampled;
use terrace_sys::mempolicy::Policy;
use terrace_sys::mempolicy::mbind;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Looked;
use terrace_track::accessed_bits::Reading;
use terrace_track::accessed_bits::Told;

const CHUNK: u64 = 2 << 20;

/// One test at a time: they time each other's threads, and each has the memory that it asked for. What one left would be
/// read beside the next one's.
struct Alone {
    _lock: MutexGuard<'static, ()>,
    /// Start and length of each mapping.
    mapped: Vec<(u64, u64)>,
}

fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    Alone {
        _lock: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        mapped: Vec::new(),
    }
}

impl Alone {
    /// Aligned memory of this process, all of it touched.
    fn memory(&mut self, chunks: u64, advice: Advice) -> u64 {
        let len = (chunks + 1) * CHUNK;
        let size = usize::try_from(len).expect("fits");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let at = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let mapped = unsafe {
            let mapped = rustix::mm::mmap_anonymous(at, size, protection, MapFlags::PRIVATE)
                .expect("memory");
            let _ = rustix::mm::madvise(mapped, size, advice);
            mapped.expose_provenance() as u64
        };
        self.mapped.push((mapped, len));
        let start = mapped.next_multiple_of(CHUNK);
        (0..chunks * 512).for_each(|page| touch(start + page * 4096));
        start
    }

    /// Gives back what begins there of the newest mapping.
    fn unmap_from(&mut self, addr: u64) {
        let (start, len) = self.mapped.pop().expect("it has memory");
        self.mapped.push((start, addr - start));
        unmap(addr, start + len - addr);
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        self.mapped
            .drain(..)
            .for_each(|(start, len)| unmap(start, len));
    }
}

fn unmap(start: u64, len: u64) {
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(start).expect("64 bit"));
    // SAFETY: memory of a test, which nobody refers to.
    unsafe { rustix::mm::munmap(at, usize::try_from(len).expect("fits")) }.expect("ours");
}

fn touch(addr: u64) {
    let at = std::ptr::with_exposed_provenance_mut::<u8>(usize::try_from(addr).expect("64 bit"));
    // SAFETY: memory of this test.
    unsafe { at.write_volatile(1) }
}

fn open() -> AccessedBits {
    open_with(AccessedBitsConfig::default())
}

fn open_with(mut config: AccessedBitsConfig) -> AccessedBits {
    config.zones = terrace_sys::zones::read(Path::new("/"));
    let mut tracker = AccessedBits::open(config).expect("accessed bits");
    tracker
        .add(Pid(std::process::id()), false)
        .expect("this process");
    tracker
}

/// All that is told of these chunks until enough passes are over.
fn gather(tracker: &mut AccessedBits, start: u64, chunks: u64, passes: u64) -> Vec<Vec<Reading>> {
    let mut all = vec![Vec::new()];
    let until = Instant::now() + Duration::from_secs(120);
    while all.len() as u64 <= passes {
        assert!(Instant::now() < until, "{} passes came", all.len());
        std::thread::sleep(Duration::from_millis(20));
        tracker
            .poll(Duration::ZERO, &mut |_| ())
            .expect("a tracker that works");
        tracker.told(|told| match told {
            Told::PassOver { pages, busy, .. } => {
                assert!(pages >= chunks, "{pages} pages");
                assert!(busy > Nanos::ZERO);
                all.push(Vec::new());
            }
            Told::Looked { .. } => panic!("nobody asked for that: {told:?}"),
            Told::Reading(one) => {
                let at = one.as_chunk().start.0;
                if (start..start + chunks * CHUNK).contains(&at) {
                    all.last_mut().expect("one").push(one);
                }
            }
        });
    }
    all.pop();
    all
}

/// By page, the reading at which it was fresh: the waits before and at it.
fn first_seen(pass: &[Reading], start: u64) -> BTreeMap<u64, (Nanos, Nanos)> {
    let mut first = BTreeMap::new();
    for reading in pass {
        let chunk = reading.as_chunk();
        for page in chunk.fresh.pages() {
            let number = (chunk.start.0 - start) / 4096 + page as u64;
            let before = first.insert(number, (chunk.since, chunk.until));
            assert_eq!(before, None, "page {number} is fresh once in a pass");
        }
    }
    first
}

const GROUPS: u64 = 8;

/// Touches group k each 2^k ms, the pages of a group one after the other; notes how long it was kept
/// from that at worst, us.
fn touch_by_period(start: u64, stop: &AtomicBool, worst: &AtomicU64) {
    let begin = Instant::now();
    let (mut done, mut last) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        let us = u64::try_from(begin.elapsed().as_micros()).expect("a minute");
        worst.fetch_max(us - last, Ordering::Relaxed);
        last = us;
        for tick in done..us / 250 {
            for group in 0..GROUPS {
                // So many of the 512 pages at each quarter of a millisecond.
                let each = 512 / (4 << group).min(512);
                let phase = tick % (4 << group);
                for page in phase * each..(phase + 1) * each {
                    touch(start + group * CHUNK + page * 4096);
                }
            }
        }
        done = us / 250;
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn check_pass(pass: &[Reading], start: u64) {
    let seen = first_seen(pass, start);
    for group in 0..GROUPS {
        let period = f64::from(1 << group) * 1e-3;
        let pages = group * 512..(group + 1) * 512;
        let times: Vec<_> = pages.filter_map(|page| seen.get(&page)).collect();
        assert_eq!(times.len(), 512, "group {group}: none is missed");
        // The last wait within the period is where a share is known.
        let within = times.iter().filter(|t| t.1.as_secs_f64() <= period);
        let Some(wait) = within.map(|t| t.1).max().filter(|_| period > 0.03) else {
            continue;
        };
        let share = times.iter().filter(|t| t.1 <= wait).count() as f64 / 512.0;
        let expected = wait.as_secs_f64() / period;
        println!("period {period}: {share:.3} for {expected:.3}");
        let off = (share - expected).abs();
        assert!(off < 0.15, "period {period} s: {share} for {expected}");
    }
    let never = GROUPS * 512..(GROUPS + 1) * 512;
    assert_eq!(
        seen.range(never).next(),
        None,
        "nobody touches the last group"
    );
    let last: Vec<_> = pass.iter().filter(|r| r.as_chunk().last).collect();
    assert_eq!(last.len() as u64, GROUPS + 1, "each chunk once at the end");
    assert!(last.iter().all(|r| r.as_chunk().present.count() == 512));
}

#[test]
fn a_page_is_seen_in_the_share_of_its_period_that_has_passed() {
    let mut alone = alone();
    let start = alone.memory(GROUPS + 1, Advice::LinuxNoHugepage);
    let (stop, worst) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut tracker = open();
    std::thread::scope(|scope| {
        scope.spawn(|| touch_by_period(start, &stop, &worst));
        tracker.ask(Nanos::from_millis(1), Nanos::from_millis(400), 1);
        // What a thread that lost its processor touched late says nothing of the reader.
        let quiet = (0..60).find_map(|_| {
            worst.store(0, Ordering::Relaxed);
            let passes = gather(&mut tracker, start, GROUPS + 1, 3);
            (worst.load(Ordering::Relaxed) < 4_000).then_some(passes)
        });
        stop.store(true, Ordering::Relaxed);
        let quiet = quiet.expect("a second without another program on our processor");
        quiet[1..].iter().for_each(|pass| check_pass(pass, start));
    });
    println!("{:?}", tracker.counters());
}

/// Where the TLB is not flushed after the clearing, these few pages stay in it and look idle.
#[test]
fn the_hottest_pages_are_seen_at_once() {
    let mut alone = alone();
    let start = alone.memory(1, Advice::LinuxNoHugepage);
    let stop = AtomicBool::new(false);
    let mut tracker = open();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                (0..16).for_each(|page| touch(start + page * 4096));
            }
        });
        tracker.ask(Nanos::from_millis(1), Nanos::from_millis(100), 1);
        let passes = gather(&mut tracker, start, 1, 12);
        stop.store(true, Ordering::Relaxed);
        let mut late = 0;
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        for pass in &passes[1..] {
            let seen = first_seen(pass, start);
            let pages: Vec<u64> = seen.keys().copied().collect();
            assert_eq!(pages, (0..16).collect::<Vec<_>>());
            let last = pass.iter().map(Reading::as_chunk).find(|chunk| chunk.last);
            let last = last.expect("a pass ends");
            let (before, ran) = last.ran.expect("our own time is known");
            let most = last.until.0 * (cpus + 1);
            assert!(
                before <= ran && ran > Nanos::ZERO && ran.0 <= most,
                "{ran:?}"
            );
            late += seen
                .values()
                .filter(|(since, _)| *since > Nanos::ZERO)
                .count();
        }
        // The thread may have lost its processor for a moment.
        assert!(
            late <= 2 * 16,
            "{late} of {} not at the first reading",
            11 * 16
        );
    });
}

/// Memory that nobody touches, and what passes of which one in so many reads all of it tell of it.
fn passes_over(
    alone: &mut Alone,
    (chunks, advice): (u64, Advice),
    parts: u32,
    passes: u64,
) -> (u64, Vec<Vec<Reading>>) {
    let start = alone.memory(chunks, advice);
    let mut tracker = open();
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(50), parts);
    (start, gather(&mut tracker, start, chunks, passes))
}

#[test]
fn huge_pages_are_one_page() {
    let mut alone = alone();
    let (_, passes) = passes_over(&mut alone, (4, Advice::LinuxHugepage), 1, 3);
    let huge = passes[2].iter().filter(|r| r.as_chunk().huge).count();
    if huge == 0 {
        println!("no huge page was free");
        return;
    }
    let idle = passes[2].iter().filter(|r| r.as_chunk().huge);
    assert!(idle.clone().all(|r| r.as_chunk().present.count() == 1));
    assert!(
        idle.clone().all(|r| r.as_chunk().accessed.is_empty()),
        "nobody touches them"
    );
}

/// One in four passes reads all chunks, the others a sample, and what is not read costs nothing.
#[test]
fn a_pass_may_read_a_sample() {
    let mut alone = alone();
    let (start, passes) = passes_over(&mut alone, (64, Advice::LinuxNoHugepage), 4, 9);
    let all: Vec<Addr> = (0..64).map(|chunk| Addr(start + chunk * CHUNK)).collect();
    let sample: Vec<Addr> = all
        .iter()
        .copied()
        .filter(|chunk| is_sampled(*chunk, 4))
        .collect();
    assert!((4..32).contains(&sample.len()), "{sample:?}");
    let mut whole = 0;
    for pass in &passes {
        let readings = || pass.iter().map(Reading::as_chunk);
        let last = readings().filter(|reading| reading.last && all.contains(&reading.start));
        let mut read: Vec<Addr> = last.map(|reading| reading.start).collect();
        read.sort();
        let parts = readings().next().expect("something is read").parts;
        assert!(readings().all(|reading| reading.parts == parts));
        match parts {
            1 => assert_eq!(read, all),
            4 => assert_eq!(read, sample),
            parts => panic!("one in {parts}"),
        }
        whole += u32::from(parts == 1);
    }
    assert!((2..=3).contains(&whole), "{whole} of 9");
}

/// What is asked for holds for all of a pass, or for none of it, also while it is being cleared.
#[test]
fn all_of_a_pass_is_as_long() {
    let mut alone = alone();
    let chunks = 128;
    let start = alone.memory(chunks, Advice::LinuxNoHugepage);
    // One call for each chunk.
    let mut tracker = open_with(AccessedBitsConfig {
        max_stall: Nanos(1_000),
        budget_permille: 1_000,
        ..AccessedBitsConfig::default()
    });
    let lengths = [300, 1_200].map(Nanos::from_millis);
    let shortest = Nanos::from_millis(10);
    tracker.ask(shortest, lengths[1], 1);
    gather(&mut tracker, start, chunks, 1);
    let mut longer = 0;
    for turn in 0..8 {
        tracker.ask(shortest, lengths[turn / 2 % 2], 1);
        for pass in gather(&mut tracker, start, chunks, 1) {
            let ends = pass.iter().map(Reading::as_chunk);
            let ends = ends
                .filter(|reading| reading.last)
                .map(|reading| reading.until);
            let (least, most) = (ends.clone().min(), ends.max());
            let (Some(least), Some(most)) = (least, most) else {
                continue;
            };
            assert!(most.0 < least.0 * 5 / 2, "{turn}: from {least} to {most}");
            longer += u32::from(least > lengths[0]);
        }
    }
    assert!(longer > 1, "{longer} passes were of the greater length");
}

#[test]
fn memory_that_goes_is_told_no_more_and_a_pause_ends_all() {
    let mut alone = alone();
    let start = alone.memory(2, Advice::LinuxNoHugepage);
    let mut tracker = open();
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(50), 1);
    let first = gather(&mut tracker, start, 2, 2);
    assert!(
        first[1]
            .iter()
            .any(|r| r.as_chunk().start == Addr(start + CHUNK))
    );
    alone.unmap_from(start + CHUNK);
    let after = gather(&mut tracker, start, 2, 3);
    assert!(after[2].iter().all(|r| r.as_chunk().start == Addr(start)));
    tracker.pause(true);
    std::thread::sleep(Duration::from_millis(200));
    tracker.told(|_| ());
    std::thread::sleep(Duration::from_millis(200));
    tracker.told(|told| panic!("{told:?} while paused"));
    tracker.pause(false);
    assert!(!gather(&mut tracker, start, 2, 2)[1].is_empty());
    tracker.remove(Pid(std::process::id())).expect("ours");
    tracker.told(|told| panic!("{told:?} of nobody"));
}

#[test]
fn children_are_followed_and_their_ends_told() {
    let _alone = alone();
    let mut tracker = AccessedBits::open(AccessedBitsConfig::default()).expect("accessed bits");
    tracker
        .add(Pid(std::process::id()), true)
        .expect("this process");
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(50), 1);
    let mut child = Command::new("sleep").arg("2").spawn().expect("sleep");
    let pid = Pid(child.id());
    let (mut events, mut read) = (Vec::new(), 0);
    let until = Instant::now() + Duration::from_secs(60);
    let mut ended = false;
    while !ended && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        tracker
            .poll(Duration::ZERO, &mut |event| events.push(event))
            .expect("a tracker that works");
        tracker.told(|told| read += usize::from(told.pid() == pid));
        ended = events
            .iter()
            .any(|event| matches!(event, TrackEvent::Exited { pid: of, .. } if *of == pid));
    }
    child.wait().expect("a child");
    assert!(ended && read > 0, "{read} of {events:?}");
    let execed =
        |event: &TrackEvent| matches!(event, TrackEvent::Execed { pid: of, .. } if *of == pid);
    assert!(events.iter().any(execed), "{events:?}");
    std::thread::sleep(Duration::from_millis(200));
    tracker.told(|told| assert!(told.pid() != pid, "{told:?} of one that has ended"));
}

/// A child of this process that waits for its end.
struct Child(i32);

impl Child {
    fn fork() -> Self {
        // SAFETY: the child does nothing but wait, by calls that are safe after a fork.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: as above.
            unsafe {
                libc::pause();
                libc::_exit(0);
            }
        }
        Self(child)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: it is our child, which nobody has waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

/// `MADV_COLD` leaves pages alone that several processes map: what was touched once would look as if it were touched without end.
#[test]
fn what_a_child_shares_is_not_taken_for_hot() {
    what_a_child_shares(true);
}

/// Tests run in threads: it is not the main one's child.
#[test]
fn nor_what_a_thread_s_child_shares_that_is_not_tracked() {
    what_a_child_shares(false);
}

fn what_a_child_shares(tracked: bool) {
    let mut alone = alone();
    let start = alone.memory(32, Advice::LinuxNoHugepage);
    let child = Child::fork();
    // The child keeps the old ones, and of the last two chunks these are the same.
    let touched = (0..30 * 512).map(|page| start + page * 4096);
    touched.for_each(touch);
    let mut tracker = open();
    if tracked {
        let pid = Pid(child.0.cast_unsigned());
        tracker.add(pid, false).expect("a child");
    }
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(100), 1);
    let shared = start + 30 * CHUNK;
    // The child is too young to be known at first.
    std::thread::sleep(Duration::from_secs(2));
    tracker.told(|_| ());
    for pass in &gather(&mut tracker, start, 32, 4)[1..] {
        let there = |reading: &&Reading| reading.as_chunk().start.0 >= shared;
        let seen: u32 = pass
            .iter()
            .filter(there)
            .map(|r| r.as_chunk().fresh.count())
            .sum();
        assert_eq!(seen, 0, "pages that a child shares were seen");
        assert!(
            pass.iter()
                .any(|reading| reading.as_chunk().start.0 < shared)
        );
    }
    drop(child);
    let passes = gather(&mut tracker, start, 32, 3);
    let last = passes.last().expect("three");
    let there = last
        .iter()
        .filter(|reading| reading.as_chunk().start.0 >= shared);
    let there: Vec<_> = there
        .map(Reading::as_chunk)
        .filter(|chunk| chunk.last)
        .collect();
    assert_eq!(there.len(), 2, "they are this process's alone");
    assert!(there.iter().all(|chunk| chunk.accessed.is_empty()));
}

/// Where a program has said itself on which node a range is to be, the kernel's NUMA balancing leaves it alone, and so do we.
#[test]
fn what_a_program_has_placed_itself_is_not_read() {
    let mut alone = alone();
    let start = alone.memory(6, Advice::LinuxNoHugepage);
    (0..6 * 512).for_each(|page| touch(start + page * 4096));
    let own = start + 2 * CHUNK;
    mbind(own, 2 * CHUNK, &Policy::Preferred(NodeId(0))).expect("a kernel with NUMA");
    let mut tracker = open();
    let pid = Pid(std::process::id());
    tracker.add(pid, false).expect("this process");
    tracker.ask(Nanos::from_millis(1), Nanos::from_millis(100), 1);
    let told = |passes: &[Vec<Reading>]| -> BTreeSet<u64> {
        let last = passes.last().expect("three").iter();
        last.map(|reading| reading.as_chunk().start.0).collect()
    };
    let chunk = |number: u64| start + number * CHUNK;
    let passes = gather(&mut tracker, start, 6, 3);
    assert_eq!(told(&passes), BTreeSet::from([0, 1, 4, 5].map(chunk)));
    mbind(own, 2 * CHUNK, &Policy::Default).expect("as before");
    let passes = gather(&mut tracker, start, 6, 3);
    assert_eq!(told(&passes), (0..6).map(chunk).collect());
}

/// How long each of many mmaps and munmaps takes, sorted.
fn mapping_takes(times: usize) -> Vec<Duration> {
    let mut took: Vec<Duration> = (0..times)
        .map(|_| {
            let begun = Instant::now();
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping at an address of the kernel's choice, and out of it again.
            unsafe {
                let flags = MapFlags::PRIVATE;
                let at =
                    rustix::mm::mmap_anonymous(std::ptr::null_mut(), 65_536, protection, flags)
                        .expect("memory");
                touch(at.expose_provenance() as u64);
                rustix::mm::munmap(at, 65_536).expect("ours");
            }
            begun.elapsed()
        })
        .collect();
    took.sort_unstable();
    took
}

/// Clearing holds the lock that mmap and munmap want: for the time that it may, and not for more. With a bound of a
/// quarter of a second the whole memory is cleared in one go, and it shows.
#[test]
fn nobody_waits_longer_for_a_mapping_than_a_clearing_may_take() {
    let mut alone = alone();
    let _start = alone.memory(512, Advice::LinuxNoHugepage);
    let mut worst = BTreeMap::new();
    for stall in [0, 2, 250] {
        let tracker = (stall > 0).then(|| {
            let config = AccessedBitsConfig {
                max_stall: Nanos::from_millis(stall),
                budget_permille: 1_000,
                ..AccessedBitsConfig::default()
            };
            let mut tracker = AccessedBits::open(config).expect("accessed bits");
            tracker
                .add(Pid(std::process::id()), false)
                .expect("this process");
            tracker.ask(Nanos::from_millis(20), Nanos::from_millis(20), 1);
            tracker
        });
        std::thread::sleep(Duration::from_millis(700));
        let mut took = Vec::new();
        let until = Instant::now() + Duration::from_secs(4);
        while Instant::now() < until {
            took.extend(mapping_takes(1_000));
        }
        took.sort_unstable();
        let share = |per_mille: usize| took[(took.len() - 1) * per_mille / 1_000];
        let slow = took
            .iter()
            .filter(|t| **t > Duration::from_millis(8))
            .count();
        println!(
            "max_stall {stall} ms: {} mappings, p50 {:?}, p99.9 {:?}, worst {:?}, {slow} over 8 ms",
            took.len(),
            share(500),
            share(999),
            share(1_000)
        );
        worst.insert(stall, slow);
        drop(tracker);
    }
    let more = |stall: u64| worst[&stall].saturating_sub(worst[&0]);
    assert!(
        more(250) > 40,
        "the lock is not what they wait for: {worst:?}"
    );
    assert!(more(2) < more(250) / 3, "{worst:?}");
}

/// KiB of the mapping that holds an address whose entries have their dirty bit, and whose have not.
fn dirty_and_clean(addr: u64) -> (u64, u64) {
    let smaps = std::fs::read_to_string("/proc/self/smaps").expect("this process");
    let (mut inside, mut dirty, mut clean) = (false, 0, 0);
    for line in smaps.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if let Some((start, end)) = first.split_once('-') {
            let parse = |text| u64::from_str_radix(text, 16).unwrap_or(0);
            inside = (parse(start)..parse(end)).contains(&addr);
        }
        let kib = || line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok();
        match first {
            "Private_Dirty:" if inside => dirty = kib().unwrap_or(0),
            "Private_Clean:" if inside => clean = kib().unwrap_or(0),
            _ => {}
        }
    }
    (dirty, clean)
}

/// Why dirty bits are not read: anonymous memory is dirty from its first touch on, and what clears the accessed
/// bits leaves that as it is, passes and passes after the last write.
#[test]
fn anonymous_memory_is_dirty_for_ever() {
    let mut alone = alone();
    let start = alone.memory(8, Advice::LinuxNoHugepage);
    let mut tracker = open();
    tracker.ask(Nanos::from_millis(10), Nanos::from_millis(50), 1);
    gather(&mut tracker, start, 8, 10);
    drop(tracker);
    let (dirty, clean) = dirty_and_clean(start);
    println!("ten passes after the last write: {dirty} KiB dirty, {clean} KiB clean");
    assert!(dirty >= 8 * CHUNK / 1024, "{dirty} KiB");
    assert_eq!(clean, 0);
    // That it can be told at all: the one call that cleans a page gives it up.
    let at = std::ptr::with_exposed_provenance_mut(usize::try_from(start).expect("64 bit"));
    // SAFETY: memory of this test, whose content nobody needs any more.
    unsafe {
        rustix::mm::madvise(at, usize::try_from(CHUNK).expect("fits"), Advice::LinuxFree)
            .expect("anonymous memory");
    }
    assert_eq!(dirty_and_clean(start).1, CHUNK / 1024);
}

/// Processor time of the reading thread so far.
fn reader_time() -> Nanos {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this process");
    let times = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let name = std::fs::read_to_string(task.join("comm")).ok()?;
        let stat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        let time: u64 = stat.split_ascii_whitespace().next()?.parse().ok()?;
        (name.trim() == "terrace-reader").then_some(time)
    });
    Nanos(times.sum())
}

/// Asked for a hundred passes a second it makes as many as its budget pays for: no more, and not less than four tenths, as
/// their length is doubled.
#[test]
fn reading_takes_what_its_budget_is() {
    let mut alone = alone();
    let start = alone.memory(96, Advice::LinuxNoHugepage);
    for budget_permille in [5, 10, 50] {
        let config = AccessedBitsConfig {
            budget_permille,
            ..AccessedBitsConfig::default()
        };
        let mut tracker = AccessedBits::open(config).expect("accessed bits");
        tracker
            .add(Pid(std::process::id()), false)
            .expect("this process");
        let asked = Nanos::from_millis(10);
        tracker.ask(asked, asked, 1);
        // What is asked for first is read so until it took what the budget has in 30 s.
        let ahead = Nanos(30_000_000 * u64::from(budget_permille));
        let first = reader_time();
        let mut long = 0;
        while long < 3 {
            let pass = gather(&mut tracker, start, 96, 1);
            let is_long = pass[0]
                .iter()
                .any(|one| one.as_chunk().until > Nanos(asked.0 * 3));
            long = if is_long { long + 1 } else { 0 };
            assert!(reader_time().since(first).0 < 3 * ahead.0 + 1_000_000_000);
        }
        assert!(reader_time().since(first) >= Nanos(ahead.0 / 2));
        let budget = f64::from(budget_permille);
        let (begun, before) = (Instant::now(), reader_time());
        let (mut passes, mut share) = (0, 0.0);
        // What a pass took is known after it: where the host is slower in some of them, more of them tell.
        for _ in 0..4 {
            passes += gather(&mut tracker, start, 96, 4).len();
            let took = reader_time().0 - before.0;
            #[expect(clippy::cast_precision_loss, reason = "seconds")]
            let of_all = took as f64 / begun.elapsed().as_nanos() as f64 * 1e3;
            share = of_all;
            if share < budget * 1.3 {
                break;
            }
        }
        println!("budget {budget_permille} permille: {passes} passes took {share:.1}");
        assert!(share < budget * 1.3, "{share} permille of {budget}");
        assert!(share > budget * 0.3, "{share} permille of {budget}");
    }
}

/// What a look at these pages finds: by address, how large the page is and whether it was accessed.
fn look(tracker: &mut AccessedBits, pages: &[u64]) -> BTreeMap<u64, (PageSize, bool)> {
    let pid = Pid(std::process::id());
    let page = |&addr: &u64| PageRef {
        pid,
        addr: Addr(addr),
        size: PageSize::Base4K,
    };
    tracker.look(pages.iter().map(page).collect());
    let until = Instant::now() + Duration::from_secs(60);
    let mut answer = None;
    while answer.is_none() {
        assert!(Instant::now() < until, "no answer");
        std::thread::sleep(Duration::from_millis(5));
        tracker
            .poll(Duration::ZERO, &mut |_| ())
            .expect("a tracker that works");
        tracker.told(|told| match told {
            Told::Looked {
                looked,
                pages: asked,
                ..
            } => {
                assert_eq!(asked, pages.len() as u64);
                let one = |one: Looked| (one.page.addr.0, (one.page.size, one.accessed));
                answer = Some(looked.into_iter().map(one).collect());
            }
            other => panic!("nobody asked for that: {other:?}"),
        });
    }
    answer.expect("an answer")
}

#[test]
fn named_pages_are_looked_at_and_no_others() {
    let mut alone = alone();
    let chunks = 24;
    let start = alone.memory(chunks, Advice::LinuxNoHugepage);
    let mut tracker = open();
    // Three in each 2 MiB, and far behind them one that is in no mapping.
    let named = |chunk: u64| [3, 5, 400].map(|page| start + chunk * CHUNK + page * 4096);
    let mut pages: Vec<u64> = (0..chunks).flat_map(named).collect();
    pages.push(1 << 46);
    look(&mut tracker, &pages);
    let idle = look(&mut tracker, &pages);
    assert_eq!(idle.len() as u64, 3 * chunks, "all that are there");
    assert!(idle.values().all(|(size, _)| *size == PageSize::Base4K));
    let accessed = idle.values().filter(|(_, accessed)| *accessed).count();
    assert_eq!(accessed, 0, "nobody touched them since the first look");
    for chunk in (0..chunks).step_by(2) {
        touch(named(chunk)[1]);
        touch(named(chunk)[2] + 4096);
    }
    let seen = look(&mut tracker, &pages);
    for chunk in 0..chunks {
        let found = named(chunk).map(|addr| seen[&addr].1);
        assert_eq!(found, [false, chunk % 2 == 0, false], "of chunk {chunk}");
    }
    let again = look(&mut tracker, &pages);
    assert!(
        again.values().all(|(_, accessed)| !accessed),
        "it cleared them"
    );
}

#[test]
fn a_huge_page_is_looked_at_whole() {
    let mut alone = alone();
    let start = alone.memory(8, Advice::LinuxHugepage);
    let mut tracker = open();
    let pages: Vec<u64> = (0..8)
        .map(|chunk| start + chunk * CHUNK + 77 * 4096)
        .collect();
    let first = look(&mut tracker, &pages);
    let huge: Vec<u64> = first
        .iter()
        .filter(|(_, (size, _))| *size == PageSize::Huge2M)
        .map(|(addr, _)| *addr)
        .collect();
    if huge.is_empty() {
        eprintln!("skipped: no huge pages here");
        return;
    }
    touch(huge[0] + 5 * 4096);
    let second = look(&mut tracker, &pages);
    for addr in &huge {
        // It was not split, as clearing a part of it would have done.
        assert_eq!(second[addr], (PageSize::Huge2M, *addr == huge[0]));
    }
}
