// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PMU tracker on the kernel's rings. There is no PMU in most virtual machines, so the event is
//! one of the kernel's own, page faults with their addresses, taken from a row of the table as a
//! PMU's event would be. Skipped, loudly, where perf events are not permitted.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use std::time::Instant;

use rustix::mm;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_track::EventTable;
use terrace_track::PmuConfig;
use terrace_track::PmuScope;
use terrace_track::PmuTracker;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::pmu::survey;

/// CI machines are slow and shared.
const PATIENCE: Duration = Duration::from_secs(120);
const PAGE: usize = 4096;

/// Every page fault is an access, for any processor.
const FAULTS: &str = r#"
    [[cpu]]
    name = "any"
    source = "linux/perf_event.h, PERF_COUNT_SW_PAGE_FAULTS"
    event = [{ name = "page-faults", pmu = "software", access = "load", config = 2 }]
"#;

fn config(scope: PmuScope) -> PmuConfig {
    let mut table = EventTable::builtin();
    table.extend(FAULTS).unwrap();
    PmuConfig {
        period: 1,
        // The period is not to change: every fault counts.
        cost_share: 1.0,
        sample_cost: Nanos::ZERO,
        // All that faults on the machine goes through here.
        ring_bytes: 4 << 20,
        scope,
        table,
        ..PmuConfig::default()
    }
}

fn open(config: &PmuConfig) -> Option<PmuTracker> {
    match PmuTracker::open(config) {
        Ok(tracker) => Some(tracker),
        Err(error) => {
            let text = error.to_string();
            let excuse = text.contains("not permitted") || text.contains("no perf events");
            assert!(excuse, "{text}");
            eprintln!("SKIPPED: {text}");
            None
        }
    }
}

/// Touches each page of new memory once and says which.
fn touch(pages: usize) -> BTreeSet<u64> {
    let bytes = pages * PAGE;
    // SAFETY: new memory at an address of the kernel's choice, given back below; one byte of each
    // page is written by us alone.
    unsafe {
        let access = mm::ProtFlags::READ | mm::ProtFlags::WRITE;
        let flags = mm::MapFlags::PRIVATE;
        let memory = mm::mmap_anonymous(std::ptr::null_mut(), bytes, access, flags).unwrap();
        mm::madvise(memory, bytes, mm::Advice::LinuxNoHugepage).unwrap();
        let first = memory.cast::<u8>();
        for page in 0..pages {
            first.add(page * PAGE + 40).write_volatile(1);
        }
        mm::munmap(memory, bytes).unwrap();
        (0..pages).map(|p| first.add(p * PAGE) as u64).collect()
    }
}

/// Pages of samples, by process, and the other events, until `enough` says so.
#[derive(Debug, Default)]
struct Seen {
    pages: BTreeMap<Pid, BTreeSet<u64>>,
    forked: Vec<(Pid, Pid)>,
    execed: Vec<Pid>,
    exited: Vec<Pid>,
    samples: u64,
}

impl Seen {
    /// Polls until it is enough; false where something was lost meanwhile, so that it may never be.
    fn poll(&mut self, tracker: &mut PmuTracker, enough: impl Fn(&Self) -> bool) -> bool {
        let start = Instant::now();
        while !enough(self) {
            let stats = tracker.stats().unwrap();
            if stats.lost_accesses + stats.lost_process_events > 0 {
                eprintln!("the machine is busy: {stats:?}");
                return false;
            }
            assert!(start.elapsed() < PATIENCE, "{self:?} {stats:?}");
            let now = terrace_sys::clock::now;
            let sink = &mut |event| match event {
                TrackEvent::Sample(sample) => {
                    self.samples += 1;
                    assert_eq!((sample.write, sample.node), (false, None));
                    assert!(sample.time <= now());
                    let pages = self.pages.entry(sample.pid).or_default();
                    pages.insert(sample.page().addr.0);
                }
                TrackEvent::Forked { parent, child, .. } => self.forked.push((parent, child)),
                TrackEvent::Execed { pid, .. } => self.execed.push(pid),
                TrackEvent::Exited { pid, .. } => self.exited.push(pid),
                TrackEvent::HintFault(_) | TrackEvent::Scanned { .. } => {
                    unreachable!("no PMU makes one")
                }
            };
            tracker.poll(Duration::from_millis(10), sink).unwrap();
        }
        true
    }

    fn has(&self, pid: Pid, pages: &BTreeSet<u64>) -> bool {
        self.pages.get(&pid).is_some_and(|p| pages.is_subset(p))
    }
}

/// Once without a loss it must work; a busy machine can lose, but not silently.
fn faults_are_reported(scope: PmuScope) {
    for _ in 0..50 {
        let Some(tracker) = open(&config(scope)) else {
            return;
        };
        if try_faults_are_reported(tracker) {
            return;
        }
    }
    panic!("something was lost each time");
}

/// Threads that live already, threads and processes that come later: all faults of all of them.
/// False where something was lost.
fn try_faults_are_reported(mut tracker: PmuTracker) -> bool {
    let own = Pid(std::process::id());
    // A thread that is there before the process is tracked.
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let early = std::thread::spawn(move || {
        wait.recv().unwrap();
        touch(400)
    });
    tracker.add(own, true).unwrap();
    let mut touched = touch(400);
    go.send(()).unwrap();
    touched.extend(early.join().unwrap());
    touched.extend(std::thread::spawn(|| touch(400)).join().unwrap());
    let mut seen = Seen::default();
    if !seen.poll(&mut tracker, |seen| seen.has(own, &touched)) {
        return false;
    }

    let script = "(exit 3) & wait $!; exec true";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    child.wait().unwrap();
    let pid = Pid(child.id());
    let over = |seen: &Seen| {
        let of_child = seen.forked.iter().find(|(parent, _)| *parent == pid);
        seen.exited.contains(&pid) && of_child.is_some_and(|(_, c)| seen.exited.contains(c))
    };
    if !seen.poll(&mut tracker, over) {
        return false;
    }
    assert!(seen.forked.contains(&(own, pid)), "{:?}", seen.forked);
    // The shell, then what took its place.
    assert_eq!(seen.execed.iter().filter(|p| **p == pid).count(), 2);
    assert!(seen.pages[&pid].len() > 10, "a program faults as it starts");

    let stats = tracker.stats().unwrap();
    assert!(stats.accesses >= 1200);
    // No more of this process.
    tracker.remove(own).unwrap();
    tracker.poll(Duration::ZERO, &mut |_| ()).unwrap();
    touch(100);
    std::thread::sleep(Duration::from_millis(300));
    let mut more = 0;
    tracker
        .poll(Duration::ZERO, &mut |event| match event {
            TrackEvent::Sample(sample) if sample.pid == own => more += 1,
            _ => {}
        })
        .unwrap();
    assert_eq!(more, 0);
    true
}

#[test]
fn every_page_touched_is_reported_watching_processors() {
    faults_are_reported(PmuScope::PerCpu);
}

#[test]
fn every_page_touched_is_reported_watching_processes() {
    faults_are_reported(PmuScope::PerProcess);
}

#[test]
fn a_costly_event_gets_a_longer_period_and_fewer_samples() {
    for scope in [PmuScope::PerCpu, PmuScope::PerProcess] {
        let config = PmuConfig {
            cost_share: 0.001,
            // A hundred samples a second are a tenth of a processor.
            sample_cost: Nanos::from_millis(1),
            ..config(scope)
        };
        let Some(mut tracker) = open(&config) else {
            return;
        };
        tracker.add(Pid(std::process::id()), false).unwrap();
        let start = Instant::now();
        while tracker.pmu_stats().period < 64 {
            assert!(start.elapsed() < PATIENCE, "{:?}", tracker.pmu_stats());
            touch(500);
        }
        // What was sampled at shorter periods comes out of the rings.
        std::thread::sleep(Duration::from_millis(300));
        let before = tracker.pmu_stats().counts.reported;
        let pages = 10_000;
        touch(pages);
        tracker.remove(Pid(std::process::id())).unwrap();
        let reported = tracker.pmu_stats().counts.reported - before;
        assert!(reported < pages as u64 / 10, "{scope:?}: {reported}");
    }
}

#[test]
fn without_a_pmu_one_line_says_what_is_missing() {
    let config = PmuConfig::default();
    let survey = survey(&config);
    let opened = PmuTracker::open(&config);
    match &survey.error {
        None => assert!(opened.is_ok(), "{opened:?}"),
        Some(error) => {
            let text = error.to_string();
            eprintln!("{text}");
            assert_eq!(opened.unwrap_err().to_string(), text);
            assert_eq!(text.lines().count(), 1);
            assert!(text.contains("another tracker"), "{text}");
        }
    }
    // What is found is found whether or not it is enough.
    assert_eq!(
        survey.cpu,
        terrace_sys::perf::CpuModel::read(Path::new("/"))
    );
}
