// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accessed bits and hint faults of one program at once: this one, which uses pages with known periods. Prints
//! what each tracker told of each group of pages, as JSON; `eval/lab/tests/guest/both.rs` judges it. The kernel's
//! scanner is switched on meanwhile, and put back.

mod both;

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::atomic::AtomicBool;
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

const PAGES: usize = 512;
/// How often the pages of each group are used, ms; the last group's never.
const PERIODS: [Option<u64>; 3] = [Some(4), Some(128), None];
const PASS: Nanos = Nanos::from_secs(1);
const PASSES: u64 = 6;
const PATIENCE: Duration = Duration::from_secs(120);

/// What was told of a group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// Base pages present at the end of a pass, of all passes together.
    present: u64,
    /// Of those, accessed since the clearing.
    accessed: u64,
    /// Bytes of it that the scanner armed, again and again.
    armed: u64,
    faulted: BTreeSet<u64>,
}

/// One mapping for all groups, touched and never given back.
fn memory() -> Result<&'static [AtomicU64], Box<dyn Error>> {
    let at = both::chunks(PERIODS.len())?;
    // SAFETY: the mapping is aligned, has these bytes, is zeroed, and lives for ever.
    let words =
        unsafe { std::slice::from_raw_parts(at.cast::<AtomicU64>(), PERIODS.len() * CHUNK / 8) };
    words
        .iter()
        .step_by(512)
        .for_each(|word| word.store(1, Relaxed));
    Ok(words)
}

/// Uses the groups' pages. Never rests: the kernel scans in the time that a thread runs.
fn touch(words: &[AtomicU64], stop: &AtomicBool) {
    let (begin, mut done) = (Instant::now(), PERIODS.map(|_| 0));
    while !stop.load(Relaxed) {
        let now = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let groups = words.chunks(CHUNK / 8).zip(PERIODS).zip(&mut done);
        for ((group, period), done) in groups {
            if let Some(period) = period
                && now / period > *done
            {
                *done = now / period;
                group.iter().step_by(512).for_each(|word| {
                    word.fetch_add(1, Relaxed);
                });
            }
        }
    }
}

fn watch(start: u64) -> Result<Vec<Group>, Box<dyn Error>> {
    let own = Pid(std::process::id());
    let (mut bits, mut faults) = both::track(own, PASS)?;
    let mut groups = vec![Group::default(); PERIODS.len()];
    let group_of = |addr: u64| Some(usize::try_from(addr.checked_sub(start)?).ok()? / CHUNK);
    let (mut passes, begin) = (0, Instant::now());
    while passes < PASSES {
        if begin.elapsed() > PATIENCE {
            return Err(format!("{passes} passes in {PATIENCE:?}").into());
        }
        std::thread::sleep(Duration::from_millis(20));
        bits.poll(Duration::ZERO, &mut |_| ())?;
        bits.told(|told| match told {
            Told::PassOver { .. } => passes += 1,
            // What the first pass clears was used before.
            Told::Reading(reading) if passes > 0 => {
                let chunk = reading.as_chunk();
                let group = group_of(chunk.start.0).and_then(|at| groups.get_mut(at));
                if let Some(group) = group.filter(|_| chunk.last) {
                    group.present += u64::from(chunk.present.count());
                    group.accessed += u64::from(chunk.accessed.count());
                }
            }
            Told::Reading(_) | Told::Looked { .. } => {}
        });
        faults.poll(Duration::ZERO, &mut |event| match event {
            TrackEvent::HintFault(fault) => {
                let group = group_of(fault.addr.0).and_then(|at| groups.get_mut(at));
                if let Some(group) = group {
                    group.faulted.insert(fault.addr.0);
                }
            }
            TrackEvent::Scanned { range, .. } => {
                for (at, group) in groups.iter_mut().enumerate() {
                    let first = start + (at * CHUNK) as u64;
                    let end = range.end.0.min(first + CHUNK as u64);
                    group.armed += end.saturating_sub(range.start.0.max(first));
                }
            }
            _ => {}
        })?;
    }
    Ok(groups)
}

fn main() -> Result<(), Box<dyn Error>> {
    let words = memory()?;
    let start = words.as_ptr().addr() as u64;
    let settings = both::scan(Nanos::from_millis(200))?;
    let stop = AtomicBool::new(false);
    let groups = std::thread::scope(|scope| {
        scope.spawn(|| touch(words, &stop));
        let groups = watch(start);
        stop.store(true, Relaxed);
        groups
    });
    settings.restore()?;
    for (group, period) in groups?.iter().zip(PERIODS) {
        println!(
            "{{\"period_ms\": {}, \"pages\": {PAGES}, \"passes\": {}, \"present\": {}, \"accessed\": {}, \"armed_times\": {}, \"faulted\": {}}}",
            period.unwrap_or(0),
            PASSES - 1,
            group.present,
            group.accessed,
            group.armed / CHUNK as u64,
            group.faulted.len(),
        );
    }
    Ok(())
}
