// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the hint faults of a process and its children, one line each, until it ends:
//! `hint_faults PID [SECONDS] [--summary]`.
//!
//! The kernel's scanner has to be on: `sysctl kernel.numa_balancing=2`.

use std::error::Error;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Pid;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::TrackEvent;
use terrace_track::Tracker as _;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let pid = Pid(args
        .next()
        .ok_or("usage: hint_faults PID [SECONDS] [--summary]")?
        .parse()?);
    let seconds = args.next().map_or(Ok(u64::MAX), |s| s.parse())?;
    let print_each = args.next().is_none();

    let mut tracker = HintFaultTracker::open(HintFaultTrackerConfig::default())?;
    tracker.add(pid, true)?;
    let (start, mut ended, mut buckets) = (Instant::now(), false, [0u64; 8]);
    while !ended && start.elapsed().as_secs() < seconds {
        tracker.poll(Duration::from_millis(10), &mut |event| {
            ended |= matches!(event, TrackEvent::Exited { pid: p, .. } if p == pid);
            if let TrackEvent::HintFault(fault) = event {
                buckets[bucket(&fault)] += 1;
            }
            if print_each || !matches!(event, TrackEvent::HintFault(_)) {
                print(event);
            }
        })?;
    }
    println!("idle <1ms <10ms <100ms <1s <10s <100s more unknown: {buckets:?}");
    println!("{:?}", tracker.stats()?);
    Ok(())
}

fn bucket(fault: &terrace_track::HintFault) -> usize {
    let Some(idle) = fault.idle() else { return 7 };
    let mut limit = 1_000_000;
    (0..6)
        .find(|_| {
            limit *= 10;
            idle.0 < limit / 10
        })
        .unwrap_or(6)
}

fn print(event: TrackEvent) {
    match event {
        TrackEvent::HintFault(f) => println!(
            "{} pid {} tid {} cpu {} {} {} KiB node {} {} idle {}",
            f.fault_time,
            f.pid,
            f.tid,
            f.cpu,
            f.addr,
            f.size.bytes() >> 10,
            f.node.map_or("?".to_owned(), |n| n.to_string()),
            if f.write { "write" } else { "read" },
            f.idle().map_or("?".to_owned(), |i| i.to_string()),
        ),
        TrackEvent::Forked {
            parent,
            child,
            time,
        } => println!("{time} pid {parent} has child {child}"),
        TrackEvent::Execed { pid, time } => println!("{time} pid {pid} called exec"),
        TrackEvent::Exited { pid, time } => println!("{time} pid {pid} ended"),
        TrackEvent::Scanned {
            pid, range, time, ..
        } => println!(
            "{} scan {pid} {:x}-{:x}",
            time.0, range.start.0, range.end.0
        ),
        TrackEvent::Sample(_) => unreachable!("hint faults are no samples"),
    }
}
