// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle times by hint faults and by accessed bits, of one program at once: a child, which uses pages with known periods. Prints
//! what each tracker told of each group of pages, as JSON; `eval/lab/tests/guest/both.rs` judges it. The kernel's
//! scanner is switched on meanwhile, and put back.
//!
//! A child, as the thread that uses the pages does what the scanner does, too, and has to wait for it: the less memory it has the shorter.
//!
//! A clock that is looked at by chance shows of a page that is used once a period an idle time that is as likely
//! to be any up to that: the pages of a group are used one after the other, evenly over the period, so that one look has all of them.

mod both;

use std::error::Error;
use std::io::BufRead;
use std::io::BufReader;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;

use both::CHUNK;

const PAGE: usize = 4096;
/// How often the pages of each group are used. Half of it is between two readings, which come after powers of two of a millisecond.
const PERIODS: [Duration; 7] = [
    Duration::from_millis(2),
    Duration::from_millis(12),
    Duration::from_millis(48),
    Duration::from_millis(192),
    Duration::from_millis(768),
    Duration::from_millis(3_072),
    Duration::from_secs(10),
];
/// Of a group, the first ones of a chunk. A scan makes each of them fault once, and what the first ones take the others wait for.
const PAGES: usize = 8;
/// The kernel takes a mapping in once in three to five of its scans, which is to be longer than any period: a page that was armed before and has not been used
/// since is so likelier to be one that is used soon.
const SCAN: Nanos = Nanos::from_secs(5);
/// Longer than any period.
const PASS: Nanos = Nanos::from_millis(16_384);
/// Readings of each page, and hint faults in the mean.
const READINGS: usize = 3;
const FAULTS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(300);

/// What was told of a group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// From the scan to the fault.
    by_faults: Vec<Nanos>,
    /// Until and since when a page was first seen used after it was cleared.
    by_bits: Vec<(Nanos, Nanos)>,
}

/// Chunks of which the first pages are there, never given back.
fn memory() -> Result<usize, Box<dyn Error>> {
    let start = both::chunks(PERIODS.len())?.expose_provenance();
    for group in 0..PERIODS.len() {
        (0..PAGES).for_each(|page| word(start, group, page).store(1, Relaxed));
    }
    Ok(start)
}

fn word(start: usize, group: usize, page: usize) -> &'static AtomicU64 {
    let at = std::ptr::with_exposed_provenance_mut(start + group * CHUNK + page * PAGE);
    // SAFETY: a word of the mapping, which lives for ever and is used by this only.
    unsafe { AtomicU64::from_ptr(at) }
}

/// Uses the groups' pages and never rests: the kernel scans in the time that a thread runs, and what has one thread only it leaves alone where
/// that runs.
fn touch() -> Result<(), Box<dyn Error>> {
    let start = memory()?;
    std::thread::spawn(std::thread::park);
    println!("{start}");
    let (begin, mut done) = (Instant::now(), PERIODS.map(|_| 0));
    while begin.elapsed() < 2 * PATIENCE {
        for (group, (period, done)) in PERIODS.iter().zip(&mut done).enumerate() {
            let due = begin.elapsed().as_nanos() * PAGES as u128 / period.as_nanos();
            let due = usize::try_from(due)?;
            // Who comes late uses each once.
            for page in (*done).max(due.saturating_sub(PAGES))..due {
                word(start, group, page % PAGES).fetch_add(1, Relaxed);
            }
            *done = due;
        }
    }
    Ok(())
}

/// The child, and where its pages are.
fn toucher() -> Result<(Child, usize), Box<dyn Error>> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("touch")
        .stdout(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take().ok_or("no output")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    Ok((child, line.trim().parse()?))
}

fn watch(child: Pid, start: usize) -> Result<Vec<Group>, Box<dyn Error>> {
    let (mut bits, mut faults) = both::track(child, PASS)?;
    let mut groups = vec![Group::default(); PERIODS.len()];
    let group_of = |addr: u64| Some(usize::try_from(addr).ok()?.checked_sub(start)? / CHUNK);
    let (mut passes, begin) = (0, Instant::now());
    let few = |groups: &[Group]| {
        groups
            .iter()
            .any(|one| one.by_faults.len() < FAULTS * PAGES)
    };
    while passes <= READINGS || few(&groups) {
        if begin.elapsed() > PATIENCE {
            let faults: Vec<usize> = groups.iter().map(|one| one.by_faults.len()).collect();
            return Err(format!("{passes} passes, {faults:?} faults in {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
        bits.poll(Duration::ZERO, &mut |_| ())?;
        bits.told(|told| match told {
            Told::PassOver { .. } => passes += 1,
            // What the first pass clears was used before.
            Told::Reading(reading) if passes > 0 => {
                let chunk = reading.as_chunk();
                let group = group_of(chunk.start.0).and_then(|at| groups.get_mut(at));
                if let Some(group) = group {
                    let seen = chunk.fresh.pages().map(|_| (chunk.until, chunk.since));
                    group.by_bits.extend(seen);
                }
            }
            Told::Reading(_) | Told::Looked { .. } => {}
        });
        faults.poll(Duration::ZERO, &mut |event| {
            if let TrackEvent::HintFault(fault) = event
                && let Some(idle) = fault.idle()
                && let Some(group) = group_of(fault.addr.0).and_then(|at| groups.get_mut(at))
            {
                group.by_faults.push(idle);
            }
        })?;
    }
    Ok(groups)
}

/// Those in the middle, of as many above as below.
fn middle<T: Copy + Ord>(of: &mut [T]) -> Option<[T; 2]> {
    of.sort_unstable();
    let (last, half) = (of.len().checked_sub(1)?, of.len() / 2);
    Some([of[last / 2], of[half]])
}

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().nth(1).as_deref() == Some("touch") {
        return touch();
    }
    let settings = both::scan(SCAN)?;
    let (mut child, start) = toucher()?;
    let groups = watch(Pid(child.id()), start);
    child.kill()?;
    child.wait()?;
    settings.restore()?;
    for (mut group, period) in groups?.into_iter().zip(PERIODS) {
        let idle = middle(&mut group.by_faults).ok_or("no faults")?;
        let [(until, since), _] = middle(&mut group.by_bits).ok_or("no readings")?;
        println!(
            "{{\"period_us\": {}, \"faults\": {}, \"idle_us\": {}, \"readings\": {}, \"since_us\": {}, \"until_us\": {}}}",
            period.as_micros(),
            group.by_faults.len(),
            (idle[0].0 + idle[1].0) / 2_000,
            group.by_bits.len(),
            since.0 / 1_000,
            until.0 / 1_000,
        );
    }
    Ok(())
}
