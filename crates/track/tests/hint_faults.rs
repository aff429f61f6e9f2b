// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hint-fault tracker on a real kernel with two memory tiers: everything from the scanner's
//! settings to the events.
//!
//! Runs in the lab (`terrace-lab run`, which sets `TERRACE_LAB`); elsewhere it says SKIPPED. One
//! test function: the settings are the kernel's, and there is one kernel.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Sharing;
use terrace_sys::move_pages::Target;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::Setting;
use terrace_sys::topology::Override;
use terrace_sys::topology::Topology;
use terrace_track::HintFault;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker;

const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;
/// The kernel looks at a mapping in which nobody faulted lately only once in several of its passes.
const PATIENCE: Duration = Duration::from_secs(240);

/// Memory of known place and page size, touched by threads and never freed.
struct Region {
    words: &'static [AtomicU64],
    start: u64,
    bytes: usize,
}

impl Region {
    fn new(bytes: usize, advice: Advice) -> Self {
        let flags = MapFlags::PRIVATE;
        // SAFETY: a new mapping of the kernel's choice, and advice on it.
        let at = unsafe {
            let at = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                bytes + HUGE,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
            .unwrap();
            rustix::mm::madvise(at, bytes + HUGE, advice).unwrap();
            at.byte_add(at.addr().next_multiple_of(HUGE) - at.addr())
        };
        // SAFETY: the mapping is aligned, has these bytes, is zeroed, and lives for ever.
        let words = unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), bytes / 8) };
        let region = Self {
            words,
            start: at.addr() as u64,
            bytes,
        };
        region.pages().for_each(|word| word.store(1, Relaxed));
        region
    }

    fn pages(&self) -> impl Iterator<Item = &'static AtomicU64> {
        self.words.iter().step_by(PAGE / 8)
    }

    fn addresses(&self) -> Vec<u64> {
        (self.start..)
            .step_by(PAGE)
            .take(self.bytes / PAGE)
            .collect()
    }

    fn contains(&self, fault: &HintFault) -> bool {
        (self.start..self.start + self.bytes as u64).contains(&fault.addr.0)
    }

    fn pages_on(&self, node: NodeId) -> usize {
        let places = move_pages::query(Target::Own, &self.addresses()).unwrap();
        places
            .iter()
            .filter(|p| **p == PageStatus::On(node))
            .count()
    }
}

/// Reads the first half and writes the second, over and over.
fn touch(region: &Region, stop: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<()>> {
    let halves = [false, true].map(|write| {
        let (words, stop) = (region.words, Arc::clone(stop));
        let half = words.len() / 2;
        let words = if write {
            &words[half..]
        } else {
            &words[..half]
        };
        thread::spawn(move || {
            while !stop.load(Relaxed) {
                for word in words.iter().step_by(PAGE / 8) {
                    if write {
                        word.store(word.load(Relaxed) + 1, Relaxed);
                    } else {
                        std::hint::black_box(word.load(Relaxed));
                    }
                }
                thread::sleep(Duration::from_millis(1));
            }
        })
    });
    halves.into()
}

fn collect(tracker: &mut HintFaultTracker, region: &Region) -> Vec<HintFault> {
    let stop = Arc::new(AtomicBool::new(false));
    let threads = touch(region, &stop);
    let (mut found, mut pages, start) = (Vec::new(), BTreeSet::new(), Instant::now());
    // 3 of 4 pages: the scanner skips what it likes.
    let wanted = region.bytes / PAGE * 3 / 4;
    let mut covered = 0;
    while covered < wanted && start.elapsed() < PATIENCE {
        let sink = &mut |event| {
            if let TrackEvent::HintFault(fault) = event
                && region.contains(&fault)
            {
                if pages.insert(fault.addr) {
                    covered += usize::try_from(fault.size.base_pages()).unwrap();
                }
                found.push(fault);
            }
        };
        tracker.poll(Duration::from_millis(10), sink).unwrap();
    }
    stop.store(true, Relaxed);
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert!(
        covered >= wanted,
        "{covered} of {wanted} pages in {PATIENCE:?}"
    );
    found
}

fn check_faults(faults: &[HintFault], region: &Region, size: PageSize, slow: NodeId) {
    let own = Pid(std::process::id());
    let half = region.start + region.bytes as u64 / 2;
    for fault in faults {
        assert_eq!(fault.pid, own);
        assert_ne!(
            fault.tid, own.0,
            "the main thread touches nothing: {fault:?}"
        );
        assert_eq!(fault.node, Some(slow), "{fault:?}");
        assert_eq!(fault.size, size, "{fault:?}");
        assert!(!fault.migrated, "{fault:?}");
        // A store's first access is a load: a fault there can be either.
        assert!(!fault.write || fault.addr.0 >= half, "{fault:?}");
        let (Some(armed), Some(scan)) = (fault.armed_time, fault.scan_time) else {
            continue;
        };
        assert!(armed <= scan && scan <= fault.fault_time, "{fault:?}");
        // All pages are touched every few milliseconds; the emulator takes longer.
        assert!(fault.idle().unwrap() < Nanos::from_secs(20), "{fault:?}");
        // It began after the page was armed; how long it may take an emulated processor nobody knows.
        let span = fault.fault_time.since(scan);
        let took = fault.took.expect("it is measured");
        assert!(took > Nanos::ZERO && took <= span, "{fault:?}");
    }
    let known = faults.iter().filter(|f| f.idle().is_some()).count();
    assert!(
        known * 10 >= faults.len() * 9,
        "{known} of {} matched",
        faults.len()
    );
}

fn check_children(tracker: &mut HintFaultTracker) {
    let own = Pid(std::process::id());
    // posix_spawn shares our memory until exec; the shell's child is an ordinary fork.
    let mut child = Command::new("sh")
        .args(["-c", "(exit 3) & wait $!"])
        .spawn()
        .unwrap();
    let pid = Pid(child.id());
    let (mut forks, mut execs, mut exits) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while !exits.contains(&pid) && start.elapsed() < PATIENCE {
        let sink = &mut |event| match event {
            TrackEvent::Forked { parent, child, .. } => forks.push((parent, child)),
            TrackEvent::Execed { pid, .. } => execs.push(pid),
            TrackEvent::Exited { pid, .. } => exits.push(pid),
            TrackEvent::HintFault(_) | TrackEvent::Scanned { .. } | TrackEvent::Sample(_) => {}
        };
        tracker.poll(Duration::from_millis(10), sink).unwrap();
    }
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(forks.first(), Some(&(own, pid)));
    assert_eq!(execs, [pid]);
    let grandchild = forks.iter().find(|(parent, _)| *parent == pid).unwrap().1;
    assert_eq!(exits, [grandchild, pid]);
}

#[test]
fn faults_of_the_slow_tier_are_all_reported() {
    if std::env::var_os("TERRACE_LAB").is_none() {
        eprintln!("SKIPPED: wants two memory tiers; run in the lab");
        return;
    }
    let topology = Topology::discover(Path::new("/"), &Override::default()).unwrap();
    assert!(topology.kernel_tells_tiers());
    let slow = topology.tiers.nodes().last().unwrap().id;

    let before = Setting::ALL.map(|s| s.read(Path::new("/")).unwrap());
    let mut settings = KernelSettings::acquire(Path::new("/")).unwrap();
    let _ = settings.set(Setting::PromoteRateLimitMbps, 0).unwrap();
    let mut tracker = HintFaultTracker::open(HintFaultTrackerConfig::default()).unwrap();
    tracker.add(Pid(std::process::id()), true).unwrap();

    for (advice, size) in [
        (Advice::LinuxNoHugepage, PageSize::Base4K),
        (Advice::LinuxHugepage, PageSize::Huge2M),
    ] {
        let region = Region::new(16 << 20, advice);
        move_pages::migrate(Target::Own, &region.addresses(), slow, Sharing::OwnOnly).unwrap();
        assert_eq!(region.pages_on(slow), region.bytes / PAGE);
        let scan = |mode| ScanRate {
            mode,
            period_min: Nanos::from_millis(200),
            period_max: Nanos::from_millis(200),
            size_mb: 256,
        };
        assert_eq!(
            settings.set_scan_rate(&scan(ScanMode::Tiering)).unwrap(),
            []
        );
        let start = Instant::now();
        let faults = collect(&mut tracker, &region);
        assert_eq!(settings.set_scan_rate(&scan(ScanMode::Off)).unwrap(), []);
        check_faults(&faults, &region, size, slow);
        assert_eq!(
            region.pages_on(slow),
            region.bytes / PAGE,
            "the kernel promoted"
        );
        let stats = tracker.stats().unwrap();
        eprintln!(
            "{size:?}: {} faults in {:?}, {stats:?}",
            faults.len(),
            start.elapsed()
        );
    }
    check_children(&mut tracker);

    let stats = tracker.stats().unwrap();
    assert_eq!(
        (
            stats.lost_accesses,
            stats.lost_scans,
            stats.lost_process_events
        ),
        (0, 0, 0)
    );
    assert!(
        settings
            .restore()
            .unwrap()
            .iter()
            .all(|s| s.foreign.is_none())
    );
    assert_eq!(
        Setting::ALL.map(|s| s.read(Path::new("/")).unwrap()),
        before
    );
}
