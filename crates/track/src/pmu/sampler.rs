// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sampling thread: reads the rings, tells samples apart, keeps the period.
//!
//! A thread of its own, as in HeMem (section 3.1), so that neither faults nor migrations keep
//! samples waiting. It sleeps until a ring is half full or the interval is over; while nothing
//! comes it sleeps up to ten times as long. What it makes waits in a queue of bounded length for
//! the tracker; samples that find it full are counted, events of processes always find room.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::clock;
use terrace_sys::eventfd::EventFd;
use terrace_sys::process::Stat;

use super::batch::Batch;
use super::batch::Counts;
use super::batch::Family;
use super::clock::LocalClock;
use super::config::PmuConfig;
use super::config::PmuError;
use super::period::PeriodControl;
use super::period::Window;
use super::source::Lost;
use super::source::Source;
use crate::event::TrackEvent;

/// The period is looked at this often.
const WINDOW: Nanos = Nanos::from_millis(100);
/// What the kernel counts as lost is asked this often.
const LOST_EVERY: Nanos = Nanos::from_secs(1);
/// Intervals to sleep while nothing comes.
const IDLE_FACTOR: u32 = 10;

/// What sampling has come to since it began.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PmuStats {
    /// What became of the samples.
    pub counts: Counts,
    /// Stores that the reported ones stand for, those that found the queue full included; `None` while
    /// none was sampled.
    pub stores: Option<u64>,
    /// Of the reported ones, those that found the queue full.
    pub queue_lost: u64,
    /// Records of processes that found no room in a ring.
    pub process_events_lost: u64,
    /// Bytes in rings that are no records.
    pub broken_bytes: u64,
    /// The period, in memory accesses.
    pub period: u64,
    /// How often it has changed.
    pub period_changes: u64,
    /// What sampling cost in the last tenth of a second, as a share of the processors that gave
    /// samples.
    pub cost_share: f64,
    /// Processor time of the sampling thread.
    pub thread_time: Nanos,
}

impl PmuStats {
    /// The stores, with those that the lost samples stand for if they were as the others.
    #[must_use]
    pub fn stores_with_lost(&self) -> Option<u64> {
        let (came, lost) = (self.counts.records.max(1), self.counts.lost);
        let all = u128::from(self.stores?) * u128::from(came + lost) / u128::from(came);
        Some(u64::try_from(all).unwrap_or(u64::MAX))
    }
}

/// An order to the thread, answered at once.
#[derive(Debug)]
pub(super) enum Order {
    Add(Pid, bool),
    Remove(Pid),
}

pub(super) type Answer = SyncSender<Result<(), PmuError>>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) queue: VecDeque<TrackEvent>,
    pub(super) orders: Vec<(Order, Answer)>,
    pub(super) stats: PmuStats,
    pub(super) stop: bool,
    /// Why the thread has ended by itself.
    pub(super) ended: Option<String>,
}

/// What the thread and the tracker share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Rings for the thread: orders, end.
    pub(super) orders: EventFd,
    /// Rings for the tracker: events.
    pub(super) events: EventFd,
}

impl Shared {
    pub(super) fn new() -> Result<Self, rustix::io::Errno> {
        Ok(Self {
            state: Mutex::default(),
            orders: EventFd::new()?,
            events: EventFd::new()?,
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here is left half done by a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's part.
pub(super) struct Sampling<S> {
    pub(super) source: S,
    pub(super) shared: Arc<Shared>,
    batch: Batch,
    pub(super) family: Family,
    clock: LocalClock,
    control: PeriodControl,
    stats: PmuStats,
    interval: Duration,
    idle: u32,
    queue_samples: usize,
    window: Window,
    window_began: Nanos,
    lost_asked: Nanos,
    /// Told by records, and by the kernel's counters: two views of the same.
    told: u64,
    counted: Lost,
}

impl<S: Source> Sampling<S> {
    pub(super) fn new(source: S, shared: Arc<Shared>, config: &PmuConfig) -> Self {
        let control = PeriodControl::new(config.period_config());
        let now = clock::now();
        let stats = PmuStats {
            period: control.period(),
            ..PmuStats::default()
        };
        shared.lock().stats = stats;
        Self {
            source,
            shared,
            batch: Batch::default(),
            family: Family::default(),
            clock: LocalClock::default(),
            control,
            stats,
            interval: config.interval,
            idle: 1,
            queue_samples: config.queue_samples,
            window: Window::default(),
            window_began: now,
            lost_asked: now,
            told: 0,
            counted: Lost::default(),
        }
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        let result = self.turns();
        // What is in the rings belongs to the account.
        let turn = self.turn();
        let mut state = self.shared.lock();
        let why = result.and(turn).err().map(|error| error.to_string());
        state.ended = Some(why.unwrap_or_else(|| "it was stopped".to_owned()));
        // Who waits for an answer learns that there will be none.
        state.orders.clear();
        drop(state);
        self.shared.events.ring();
    }

    fn turns(&mut self) -> Result<(), PmuError> {
        loop {
            self.wait();
            self.shared.orders.silence();
            let (orders, stop) = {
                let mut state = self.shared.lock();
                (std::mem::take(&mut state.orders), state.stop)
            };
            if stop {
                return Ok(());
            }
            self.turn()?;
            for (order, answer) in orders {
                // Who asked may be gone.
                let _ = answer.try_send(self.obey(&order));
            }
        }
    }

    fn wait(&self) {
        let timeout = self.interval * self.idle;
        let timeout = Timespec::try_from(timeout).ok();
        let rings = self.source.fds();
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.shared.orders.as_fd())
            .chain(rings)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // An interruption is a turn that comes early.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    fn obey(&mut self, order: &Order) -> Result<(), PmuError> {
        match *order {
            Order::Add(pid, follow) => {
                self.source.add(pid, follow)?;
                self.family.add(pid, follow);
                self.idle = 1;
            }
            Order::Remove(pid) => {
                self.family.remove(pid);
                self.source.remove(pid)?;
            }
        }
        Ok(())
    }

    /// One turn over the rings.
    pub(super) fn turn(&mut self) -> Result<(), PmuError> {
        let Self { source, batch, .. } = self;
        let mut records = Vec::new();
        let turn = source.drain(&mut |record| records.push(record));
        for record in records {
            batch.take(record, |id| source.access(id));
        }
        let now = clock::now();
        let counts = self.hand_over(now);
        self.window.cpus = self.window.cpus.max(turn.rings);
        self.window.samples += counts.records;
        self.window.throttled += counts.throttled;
        self.told += counts.lost;
        self.stats.broken_bytes += turn.broken_bytes;
        let nothing = turn.rings == 0 && turn.broken_bytes == 0;
        self.idle = if nothing {
            (self.idle * 2).min(IDLE_FACTOR)
        } else {
            1
        };
        self.account(now, counts.lost > 0)
    }

    /// Batch to queue.
    fn hand_over(&mut self, now: Nanos) -> Counts {
        let shared = Arc::clone(&self.shared);
        let mut events = Vec::new();
        let counts = self.batch.finish(
            now,
            &mut self.clock,
            &mut self.family,
            &lives,
            &mut |event| events.push(event),
        );
        add(&mut self.stats.counts, counts);
        self.weigh(&mut events);
        let mut state = shared.lock();
        for event in &events {
            match event {
                TrackEvent::Forked { child, .. } => self.source.born(*child),
                TrackEvent::Exited { pid, .. } => self.source.ended(*pid),
                TrackEvent::Sample(_) if state.queue.len() >= self.queue_samples => {
                    self.stats.queue_lost += 1;
                    continue;
                }
                _ => {}
            }
            state.queue.push_back(*event);
        }
        state.stats = self.stats;
        drop(state);
        if !events.is_empty() {
            shared.events.ring();
        }
        counts
    }

    /// A batch is from before a change of the period at most by one turn.
    fn weigh(&mut self, events: &mut [TrackEvent]) {
        if events.is_empty() {
            return;
        }
        let each = self.source.a_sample(self.stats.period);
        for event in events {
            if let TrackEvent::Sample(sample) = event {
                sample.accesses = each[usize::from(sample.write)];
                if sample.write {
                    let stores = self.stats.stores.unwrap_or(0);
                    self.stats.stores = Some(stores.saturating_add(sample.accesses));
                }
            }
        }
    }

    /// What was lost, what it cost, and whether the period follows.
    fn account(&mut self, now: Nanos, lost_now: bool) -> Result<(), PmuError> {
        if lost_now || now.since(self.lost_asked) >= LOST_EVERY {
            self.lost_asked = now;
            self.counted = self.source.lost();
        }
        // Records tell late, counters do not know what the PMU itself lost.
        let lost = self.told.max(self.counted.samples);
        self.window.lost += lost - self.stats.counts.lost;
        self.stats.counts.lost = lost;
        self.stats.process_events_lost = self.counted.process_events;
        if now.since(self.window_began) >= WINDOW {
            let spent = clock::thread_cpu_time();
            let window = Window {
                elapsed: now.since(self.window_began),
                reader: spent.since(self.stats.thread_time),
                ..self.window
            };
            self.stats.thread_time = spent;
            self.window = Window::default();
            self.window_began = now;
            if let Some(period) = self.control.observe(window) {
                self.source.set_period(period)?;
                self.stats.period = period;
                self.stats.period_changes += 1;
            }
            self.stats.cost_share = self.control.share();
        }
        self.shared.lock().stats = self.stats;
        Ok(())
    }
}

/// All but what is lost, which is kept as a whole.
fn add(sum: &mut Counts, counts: Counts) {
    sum.records += counts.records;
    sum.reported += counts.reported;
    sum.foreign += counts.foreign;
    sum.cached += counts.cached;
    sum.no_address += counts.no_address;
    sum.throttled += counts.throttled;
    sum.malformed += counts.malformed;
}

/// Whether something of a process is left whose first thread has ended.
fn lives(pid: Pid) -> bool {
    Stat::read(pid).is_ok_and(|stat| !matches!(stat.state, 'Z' | 'X') || stat.threads > 1)
}
