// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle times of pages whose use is known. Prints what was told of each group of pages, as JSON; `eval/lab/tests/guest/both.rs` and
//! `chosen.rs` judge it.
//!
//! * `idle_times`: by hint faults and by accessed bits, of one program at once. The kernel's scanner is switched on meanwhile, and
//!   put back.
//! * `idle_times chosen`: by hint faults of pages that are armed one by one (Linux 7.3).

#[path = "../both/mod.rs"]
mod both;
mod chosen;
mod known;

use std::error::Error;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_track::TrackEvent;
use terrace_track::Tracker;
use terrace_track::accessed_bits::Told;

use known::PAGES;
use known::PATIENCE;
use known::PERIODS;
use known::Program;

/// The kernel takes a mapping in once in three to five of its scans, which is to be longer than any period: a page that was armed before and has not been used
/// since is so likelier to be one that is used soon.
const SCAN: Nanos = Nanos::from_secs(5);
/// Longer than any period.
const PASS: Nanos = Nanos::from_millis(16_384);
/// Readings of each page, and hint faults in the mean.
const READINGS: usize = 3;
const FAULTS: usize = 6;

/// What was told of a group.
#[derive(Debug, Clone, Default)]
struct Group {
    /// From the scan to the fault.
    by_faults: Vec<Nanos>,
    /// Until and since when a page was first seen used after it was cleared.
    by_bits: Vec<(Nanos, Nanos)>,
}

fn watch(program: &Program) -> Result<Vec<Group>, Box<dyn Error>> {
    let (mut bits, mut faults) = both::track(program.pid(), PASS)?;
    let mut groups = vec![Group::default(); PERIODS.len()];
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
                let group = program
                    .group(chunk.start.0)
                    .and_then(|at| groups.get_mut(at));
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
                && let Some(group) = program
                    .group(fault.addr.0)
                    .and_then(|at| groups.get_mut(at))
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
    match std::env::args().nth(1).as_deref() {
        Some(known::TOUCH) => known::touch(),
        Some("chosen") => by_chosen_pages(),
        _ => by_both(),
    }
}

/// In the middle of the idle times, us.
fn idle_us(of: &mut [Nanos]) -> Result<u64, Box<dyn Error>> {
    let idle = middle(of).ok_or("no faults")?;
    Ok((idle[0].0 + idle[1].0) / 2_000)
}

fn by_both() -> Result<(), Box<dyn Error>> {
    let settings = both::scan(SCAN)?;
    let program = Program::start()?;
    let groups = watch(&program);
    drop(program);
    settings.restore()?;
    for (mut group, period) in groups?.into_iter().zip(PERIODS) {
        let [(until, since), _] = middle(&mut group.by_bits).ok_or("no readings")?;
        println!(
            "{{\"period_us\": {}, \"faults\": {}, \"idle_us\": {}, \"readings\": {}, \"since_us\": {}, \"until_us\": {}}}",
            period.as_micros(),
            group.by_faults.len(),
            idle_us(&mut group.by_faults)?,
            group.by_bits.len(),
            since.0 / 1_000,
            until.0 / 1_000,
        );
    }
    Ok(())
}

fn by_chosen_pages() -> Result<(), Box<dyn Error>> {
    for (mut group, period) in chosen::measure()?.into_iter().zip(PERIODS) {
        println!(
            "{{\"period_us\": {}, \"faults\": {}, \"idle_us\": {}, \"true_us\": {}, \"misplaced\": {}}}",
            period.as_micros(),
            group.idle.len(),
            idle_us(&mut group.idle)?,
            idle_us(&mut group.waits)?,
            group.misplaced,
        );
    }
    Ok(())
}
