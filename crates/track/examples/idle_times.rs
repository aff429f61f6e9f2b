// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle times by hint faults and by the ladder of accessed bits, against the truth: this program uses pages with
//! known periods, from 2 ms to 8 s, and notes when. Prints for each period, as JSON, what was told and how much of it
//! is true; `eval/lab/tests/guest/both.rs` judges it. The kernel's scanner is switched on meanwhile, and put back.

use std::error::Error;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::clock;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::Setting;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;

const CHUNK: usize = 2 << 20;
/// Of each chunk.
const PAGES: usize = 128;
/// How often the pages of each chunk are used, ms.
const PERIODS: [u64; 7] = [2, 8, 32, 128, 512, 2_048, 8_192];
const PASS: Nanos = Nanos::from_secs(10);
const PASSES: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(300);
/// Between the clearing of the first and of the last page, and between a reading and its being told.
const SLACK: Nanos = Nanos::from_millis(2);

/// When a group's pages were used: from and to, once after the other.
type Uses = Mutex<Vec<(Nanos, Nanos)>>;

/// Something that was told of a page.
#[derive(Debug, Clone, Copy)]
struct Claim {
    /// From when on it counts.
    from: Nanos,
    /// How long the page was idle then, at least and at most.
    idle: (Nanos, Nanos),
}

impl Claim {
    fn middle(self) -> Nanos {
        Nanos(u64::midpoint(self.idle.0.0, self.idle.1.0))
    }

    /// How long the pages were idle from then on in truth, at least and at most; `None` after the last use.
    fn truth(self, uses: &[(Nanos, Nanos)]) -> Option<(Nanos, Nanos)> {
        let next = uses.partition_point(|(_, end)| *end < self.from);
        let (begin, end) = uses.get(next)?;
        Some((begin.since(self.from), end.since(self.from)))
    }

    /// Whether it is true of the first use that all of its pages may have had since, or of one that was under way; to
    /// a factor.
    fn is_right(self, uses: &[(Nanos, Nanos)], factor: u64) -> bool {
        let from = uses.partition_point(|(_, end)| *end < self.from);
        let sure = uses.partition_point(|(begin, _)| begin.0 < self.from.0 + SLACK.0);
        let may_be = uses.iter().take(sure + 1).skip(from);
        may_be.into_iter().any(|(begin, end)| {
            let (least, most) = (begin.since(self.from).0, end.since(self.from).0);
            self.idle.0.0 / factor <= most + SLACK.0 && self.idle.1.0 * factor + SLACK.0 >= least
        })
    }
}

/// What was told of a group's pages.
#[derive(Debug, Clone, Default)]
struct Group {
    faults: Vec<Claim>,
    rungs: Vec<Claim>,
}

/// One mapping for all groups, touched and never given back.
fn memory() -> Result<&'static [AtomicU64], Box<dyn Error>> {
    let len = (PERIODS.len() + 1) * CHUNK;
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, and advice on it.
    let at = unsafe {
        let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, flags, MapFlags::PRIVATE)?;
        rustix::mm::madvise(at, len, Advice::LinuxNoHugepage)?;
        at.byte_add(at.addr().next_multiple_of(CHUNK) - at.addr())
    };
    // SAFETY: the mapping is aligned, has these bytes, is zeroed, and lives for ever.
    let words =
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), PERIODS.len() * CHUNK / 8) };
    for group in words.chunks(CHUNK / 8) {
        use_once(group);
    }
    Ok(words)
}

fn use_once(group: &[AtomicU64]) {
    for word in group.iter().step_by(512).take(PAGES) {
        word.fetch_add(1, Relaxed);
    }
}

/// Uses the groups' pages. Never rests: the kernel scans in the time that a thread runs.
fn touch(words: &[AtomicU64], uses: &[Uses], stop: &AtomicBool) {
    let (begin, mut done) = (clock::now(), PERIODS.map(|_| 0));
    while !stop.load(Relaxed) {
        for (at, group) in words.chunks(CHUNK / 8).enumerate() {
            let now = clock::now();
            let turn = now.since(begin).0 / 1_000_000 / PERIODS[at];
            if turn > done[at] {
                done[at] = turn;
                use_once(group);
                let mut uses = uses[at].lock().expect("nobody panics with it");
                uses.push((now, clock::now()));
            }
        }
    }
}

fn watch(start: u64) -> Result<Vec<Group>, Box<dyn Error>> {
    let own = Pid(std::process::id());
    let mut bits = AccessedBits::open(AccessedBitsConfig {
        zones: zones::read(Path::new("/")),
        ..AccessedBitsConfig::default()
    })?;
    let mut faults = HintFaultTracker::open(HintFaultTrackerConfig::default())?;
    bits.add(own, false)?;
    faults.add(own, false)?;
    bits.ask(Nanos::from_millis(1), PASS, 1);
    let mut groups = vec![Group::default(); PERIODS.len()];
    let group_of = |addr: u64| Some(usize::try_from(addr.checked_sub(start)?).ok()? / CHUNK);
    let (mut passes, begin) = (0, Instant::now());
    // What is told in this pass: group, pages, idle time; and when its bits were cleared.
    let (mut pass, mut cleared) = (Vec::<(usize, usize, _)>::new(), Nanos(u64::MAX));
    while passes < PASSES {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{passes} passes in {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_micros(500));
        bits.poll(Duration::ZERO, &mut |_| ())?;
        let now = clock::now();
        bits.told(|told| match told {
            Told::PassOver { .. } => {
                passes += 1;
                for (at, count, idle) in pass.drain(..) {
                    let claim = Claim {
                        from: cleared,
                        idle,
                    };
                    groups[at].rungs.extend(std::iter::repeat_n(claim, count));
                }
                cleared = Nanos(u64::MAX);
            }
            Told::Reading(reading) => {
                let chunk = reading.as_chunk();
                // All are cleared at once, and some reading of a pass is told at once.
                cleared = cleared.min(now.since(chunk.until));
                if let Some(at) = group_of(chunk.start.0).filter(|at| *at < PERIODS.len()) {
                    let count = chunk.fresh.count() as usize;
                    pass.push((at, count, (chunk.since, chunk.until)));
                }
            }
            Told::Looked { .. } => {}
        });
        faults.poll(Duration::ZERO, &mut |event| {
            if let TrackEvent::HintFault(fault) = event
                && let Some(group) = group_of(fault.addr.0).and_then(|at| groups.get_mut(at))
                && let (Some(from), Some(idle)) = (fault.armed_time, fault.idle())
            {
                let idle = (idle, idle);
                group.faults.push(Claim { from, idle });
            }
        })?;
    }
    Ok(groups)
}

/// Of what is told and can be checked: how many, the median that is told and the true one, us, and how many in a
/// thousand are true, and to a factor of two.
fn judged(claims: &[Claim], uses: &[(Nanos, Nanos)]) -> [u64; 5] {
    let known = claims.iter().filter_map(|c| Some((*c, c.truth(uses)?)));
    let known: Vec<_> = known.collect();
    let median = |mut of: Vec<u64>| {
        of.sort_unstable();
        of.get(of.len() / 2).map_or(0, |ns| ns / 1_000)
    };
    let told = median(known.iter().map(|(claim, _)| claim.middle().0).collect());
    let truth = known
        .iter()
        .map(|(_, (least, most))| u64::midpoint(least.0, most.0));
    let all = known.len() as u64;
    let right = |factor| {
        let right = known
            .iter()
            .filter(|(claim, _)| claim.is_right(uses, factor));
        right.count() as u64 * 1_000 / all.max(1)
    };
    [all, told, median(truth.collect()), right(1), right(2)]
}

fn main() -> Result<(), Box<dyn Error>> {
    let words = memory()?;
    let start = words.as_ptr().addr() as u64;
    let mut settings = KernelSettings::acquire(Path::new("/"))?;
    let _ = settings.set(Setting::PromoteRateLimitMbps, 0)?;
    settings.set_scan_rate(&ScanRate {
        mode: ScanMode::Both,
        period_min: Nanos::from_secs(1),
        period_max: Nanos::from_secs(1),
        size_mb: 256,
    })?;
    let stop = AtomicBool::new(false);
    let uses: Vec<Uses> = PERIODS.iter().map(|_| Uses::default()).collect();
    let groups = std::thread::scope(|scope| {
        scope.spawn(|| touch(words, &uses, &stop));
        let groups = watch(start);
        stop.store(true, Relaxed);
        groups
    });
    settings.restore()?;
    for ((group, uses), period) in groups?.iter().zip(uses).zip(PERIODS) {
        let uses = uses.into_inner()?;
        let [faults, fault_us, fault_truth_us, fault_right, _] = judged(&group.faults, &uses);
        let [rungs, rung_us, rung_truth_us, rung_right, rung_near] = judged(&group.rungs, &uses);
        println!(
            "{{\"period_ms\": {period}, \"faults\": {faults}, \"fault_us\": {fault_us}, \"fault_truth_us\": {fault_truth_us}, \
             \"fault_right\": {fault_right}, \"rungs\": {rungs}, \"rung_us\": {rung_us}, \"rung_truth_us\": {rung_truth_us}, \
             \"rung_right\": {rung_right}, \"rung_near\": {rung_near}}}"
        );
    }
    Ok(())
}
