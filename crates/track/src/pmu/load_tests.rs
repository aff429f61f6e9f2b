// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampling thread under load: rings in memory, filled as fast as a million samples a second,
//! and every sample accounted for. What a machine manages is printed, never asserted.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Pid;
use terrace_sys::perf::DataSource;
use terrace_sys::perf::Feed;
use terrace_sys::perf::Fields;
use terrace_sys::perf::Layout;
use terrace_sys::perf::Malformed;
use terrace_sys::perf::Record;
use terrace_sys::perf::Ring;
use terrace_sys::perf::feed::record;

use super::*;
use crate::event::TrackEvent;
use batch::Counts;
use source::Lost;
use source::Turn;
use table::Access;

const FIELDS: Fields = Fields::IDENTIFIER
    .with(Fields::TID)
    .with(Fields::TIME)
    .with(Fields::ADDR)
    .with(Fields::CPU)
    .with(Fields::DATA_SOURCE)
    .with(Fields::PHYS_ADDR);
const LOADS: u64 = 11;
const STORES: u64 = 12;
/// Stores for one access, as an event for micro-operations has it.
const STORE_FACTOR: u64 = 20;
const PID: u32 = 100;
const STRANGER: u32 = 200;

/// What the rings' writers have done.
#[derive(Debug, Default)]
struct Made {
    samples: AtomicU64,
    lost: AtomicU64,
    period: AtomicU64,
}

struct FeedSource {
    rings: Vec<Ring>,
    made: Arc<Made>,
}

impl Source for FeedSource {
    fn drain(&mut self, sink: &mut dyn FnMut(Result<Record, Malformed>)) -> Turn {
        let mut turn = Turn::default();
        for ring in &mut self.rings {
            let drained = ring.drain(&mut |bytes| sink(Layout(FIELDS).parse(bytes)));
            turn.rings += u64::from(drained.bytes > 0);
            turn.broken_bytes += drained.broken_bytes;
        }
        turn
    }

    fn access(&self, id: u64) -> Option<Access> {
        match id {
            LOADS => Some(Access::Load),
            STORES => Some(Access::Store),
            _ => None,
        }
    }

    fn a_sample(&self, period: u64) -> [u64; 2] {
        [period, period * STORE_FACTOR]
    }

    fn set_period(&mut self, period: u64) -> Result<(), PmuError> {
        self.made.period.store(period, Ordering::Relaxed);
        Ok(())
    }

    fn add(&mut self, pid: Pid, _: bool) -> Result<(), PmuError> {
        if pid == Pid(0) {
            return Err(PmuError::Config("no such process"));
        }
        Ok(())
    }

    fn remove(&mut self, _: Pid) -> Result<(), PmuError> {
        Ok(())
    }

    fn born(&mut self, _: Pid) {}

    fn ended(&mut self, _: Pid) {}

    fn lost(&self) -> Lost {
        Lost {
            samples: self.made.lost.load(Ordering::Acquire),
            process_events: 0,
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// A sample as the kernel writes it.
fn sample(id: u64, pid: u32, cpu: u32, number: u64) -> Vec<u8> {
    let memory = DataSource(2 | 0xd << 33);
    let body = [
        id,
        u64::from(pid) | u64::from(pid) << 32,
        terrace_sys::clock::now().0,
        0x7000_0000 + number % 100_000 * 4096,
        u64::from(cpu),
        memory.0,
        0,
    ];
    let body: Vec<u8> = body.iter().flat_map(|word| word.to_le_bytes()).collect();
    record(9, 2, &body)
}

/// Rings with a writer each: a third stores, one in ten a stranger's.
fn feeds(rings: usize, bytes: usize) -> (Vec<Feed>, FeedSource) {
    let pairs = (0..rings).map(|_| Feed::pair(bytes, LOADS).unwrap());
    let (feeds, rings) = pairs.unzip();
    let made = Arc::default();
    (feeds, FeedSource { rings, made })
}

fn make(feed: &mut Feed, made: &Made, cpu: u32, number: u64) {
    let id = if number.is_multiple_of(3) {
        STORES
    } else {
        LOADS
    };
    let pid = if number.is_multiple_of(10) {
        STRANGER
    } else {
        PID
    };
    made.samples.fetch_add(1, Ordering::Relaxed);
    if !feed.push(&sample(id, pid, cpu, number)) {
        made.lost.fetch_add(1, Ordering::Release);
    }
}

/// Writes `rate` samples a second, or what the machine manages of it, for `time`.
fn write(mut feed: Feed, made: Arc<Made>, cpu: u32, rate: u64, time: Duration) -> JoinHandle<Feed> {
    std::thread::spawn(move || {
        let start = Instant::now();
        let mut number = 0;
        loop {
            let elapsed = start.elapsed();
            if elapsed >= time {
                return feed;
            }
            let due = u64::try_from(elapsed.as_micros()).unwrap() * rate / 1_000_000;
            if number >= due {
                std::thread::sleep(Duration::from_micros(500));
            }
            while number < due {
                make(&mut feed, &made, cpu, number);
                number += 1;
            }
        }
    })
}

/// Load on two rings for `time`, with somebody who polls; then the account.
fn under_load(rate: u64, time: Duration, config: &PmuConfig) -> PmuStats {
    let (feeds, source) = feeds(2, config.ring_bytes);
    let made = Arc::clone(&source.made);
    let mut tracker = PmuTracker::start(source, config).unwrap();
    tracker.add(Pid(PID), false).unwrap();
    let writers: Vec<_> = (0..)
        .zip(feeds)
        .map(|(cpu, feed)| write(feed, Arc::clone(&made), cpu, rate / 2, time))
        .collect();
    let (mut polled, mut writes) = (0, 0);
    let mut poll = |tracker: &mut PmuTracker| {
        tracker.poll(Duration::from_millis(10), &mut |event| match event {
            TrackEvent::Sample(sample) => {
                assert_eq!(sample.pid, Pid(PID));
                polled += 1;
                writes += u64::from(sample.write);
            }
            other => panic!("{other:?}"),
        })
    };
    while writers.iter().any(|writer| !writer.is_finished()) {
        poll(&mut tracker).unwrap();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    tracker.stop();
    // The last of it, and then that there will be no more.
    while poll(&mut tracker).is_ok() {}
    let stats = tracker.pmu_stats();
    let made = made.samples.load(Ordering::Relaxed);
    let counts = stats.counts;
    eprintln!(
        "{made} samples in {time:?}, {} lost in rings, {} in the queue, period {}, {} of processors",
        counts.lost, stats.queue_lost, stats.period, stats.cost_share
    );
    assert!(made > 0 && polled > 0 && writes > 0);
    assert_eq!(counts.records + counts.lost, made, "{stats:?}");
    let judged = counts.reported + counts.foreign + counts.cached + counts.no_address;
    assert_eq!(judged, counts.records, "{stats:?}");
    assert_eq!(polled + stats.queue_lost, counts.reported, "{stats:?}");
    assert_eq!((counts.malformed, stats.broken_bytes), (0, 0));
    let seen = tracker.stats().unwrap();
    assert_eq!(seen.accesses, polled);
    assert_eq!(seen.accesses + seen.lost_accesses + counts.foreign, made);
    // Each sampled store stands for a period that was between the shortest and the longest.
    let stores = stats.stores.expect("stores are sampled");
    let least = writes * config.period * STORE_FACTOR;
    assert!(stores >= least, "{stores}, at least {least}");
    stats
}

#[test]
fn a_million_samples_a_second_for_30_s_none_lost_silently() {
    let stats = under_load(1_000_000, Duration::from_secs(30), &PmuConfig::default());
    // Ten times less would cost more than a hundredth of two processors.
    if stats.counts.records > 3_000_000 {
        assert!(stats.period > 5_000, "{stats:?}");
    }
}

#[test]
fn what_rings_and_queue_cannot_hold_is_counted() {
    let config = PmuConfig {
        ring_bytes: 16 << 10,
        queue_samples: 50,
        ..PmuConfig::default()
    };
    let stats = under_load(200_000, Duration::from_secs(2), &config);
    assert!(stats.counts.lost > 0 && stats.queue_lost > 0, "{stats:?}");
    assert!(stats.period_changes > 0);
}

#[test]
fn a_loss_makes_the_period_longer_and_is_told_at_once() {
    let (mut feeds, source) = feeds(1, 16 << 10);
    let made = Arc::clone(&source.made);
    let shared = Arc::new(Shared::new().unwrap());
    let config = PmuConfig::default();
    let mut sampling = Sampling::new(source, Arc::clone(&shared), &config);
    // More than the ring holds, and nothing behind it: no record tells of it.
    for number in 0..1_000 {
        make(&mut feeds[0], &made, 0, number);
    }
    let lost = made.lost.load(Ordering::Relaxed);
    assert_eq!(feeds[0].pending(), lost);
    assert!(lost > 0);
    let start = Instant::now();
    while shared.lock().stats.counts.lost != lost {
        assert!(start.elapsed().as_secs() < 60);
        std::thread::sleep(Duration::from_millis(110));
        sampling.turn().unwrap();
    }
    sampling.turn().unwrap();
    assert!(made.period.load(Ordering::Relaxed) >= 10_000);
    // Then the record comes, and nothing is counted twice.
    make(&mut feeds[0], &made, 0, 0);
    assert_eq!(feeds[0].pending(), 0);
    sampling.turn().unwrap();
    assert_eq!(shared.lock().stats.counts.lost, lost);
}

/// Of twelve samples four are stores, one of them a stranger's; three more that are lost are taken to be
/// alike.
#[test]
fn stores_are_estimated_from_the_period_and_what_was_lost() {
    let (mut feeds, source) = feeds(1, 16 << 10);
    let made = Arc::clone(&source.made);
    let shared = Arc::new(Shared::new().unwrap());
    let mut sampling = Sampling::new(source, Arc::clone(&shared), &PmuConfig::default());
    sampling.family.add(Pid(PID), false);
    for number in 0..12 {
        make(&mut feeds[0], &made, 0, number);
    }
    sampling.turn().unwrap();
    let stats = shared.lock().stats;
    assert_eq!(stats.counts.records, 12);
    assert_eq!(stats.stores, Some(3 * 5_000 * STORE_FACTOR));
    let lossy = PmuStats {
        counts: Counts {
            lost: 3,
            ..stats.counts
        },
        ..stats
    };
    assert_eq!(
        lossy.stores_with_lost(),
        Some(3 * 5_000 * STORE_FACTOR * 15 / 12)
    );
    assert_eq!(PmuStats::default().stores_with_lost(), None);
}

#[test]
fn orders_are_answered_and_the_end_is_noticed() {
    let (_feeds, source) = feeds(1, 16 << 10);
    let mut tracker = PmuTracker::start(source, &PmuConfig::default()).unwrap();
    assert_eq!(tracker.name(), "pmu");
    tracker.add(Pid(PID), true).unwrap();
    assert!(tracker.add(Pid(0), false).is_err());
    tracker.remove(Pid(PID)).unwrap();
    tracker.poll(Duration::ZERO, &mut |_| ()).unwrap();
    tracker.stop();
    assert!(tracker.add(Pid(PID), true).is_err());
    assert!(tracker.poll(Duration::ZERO, &mut |_| ()).is_err());
}
