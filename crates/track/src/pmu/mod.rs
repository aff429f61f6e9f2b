// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracker that samples accesses with the processor's PMU, as HeMem does (section 3.1).
//!
//! One in so many loads that memory served, and of stores, is reported with its address, and with
//! its physical address where that is permitted. Which node that is on the caller finds out.
//!
//! * [`table`]: which events see accesses on which processor; data that can be extended.
//! * [`plan`]: which of them this kernel opens; what is said where none does.
//! * [`source`]: the events and their rings.
//! * [`batch`], [`clock`], [`period`]: what records mean, when they were, how often to sample. Pure.
//! * [`sampler`]: the thread that reads the rings.
//!
//! Without a PMU there is no tracker: [`PmuTracker::open`] fails with one line that says what is
//! missing. Arm's SPE writes packets to a buffer of its own and is not read yet.

pub mod batch;
pub mod clock;
pub mod config;
mod figures;
pub mod period;
mod plan;
mod sampler;
mod source;
pub mod table;

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_core::Measurement;
use terrace_core::Pid;

pub use config::PmuConfig;
pub use config::PmuError;
pub use config::PmuScope;
pub use plan::EventState;
pub use plan::Survey;
pub use plan::survey;
pub use sampler::PmuStats;
pub use table::EventTable;

use crate::TrackError;
use crate::Tracker;
use crate::event::TrackEvent;
use crate::event::TrackStats;
pub(crate) use figures::Figures;
use sampler::Order;
use sampler::Sampling;
use sampler::Shared;
use source::KernelSource;
use source::Source;

/// As on the command line.
pub(crate) const NAME: &str = "pmu";

/// Samples of a PMU.
#[derive(Debug)]
pub struct PmuTracker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl PmuTracker {
    /// Opens the events and starts the sampling thread. No process is tracked yet.
    ///
    /// # Errors
    ///
    /// Where there is no PMU that samples accesses, or it may not be used: one line that says what
    /// is missing and what to do.
    pub fn open(config: &PmuConfig) -> Result<Self, TrackError> {
        let plan = plan::plan(Path::new("/"), config, &mut Survey::default())?;
        let source = KernelSource::open(plan, config.period, config.ring_bytes)?;
        Ok(Self::start(source, config)?)
    }

    fn start(source: impl Source + 'static, config: &PmuConfig) -> Result<Self, PmuError> {
        let shared = Shared::new().map_err(|error| PmuError::Thread(error.to_string()))?;
        let shared = Arc::new(shared);
        let sampling = Sampling::new(source, Arc::clone(&shared), config);
        let thread = std::thread::Builder::new()
            .name("terrace-pmu".to_owned())
            .spawn(|| sampling.run())
            .map_err(|error| PmuError::Thread(error.to_string()))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// More than [`Tracker::stats`] says.
    #[must_use]
    pub fn pmu_stats(&self) -> PmuStats {
        self.shared.lock().stats
    }

    fn order(&self, order: Order) -> Result<(), PmuError> {
        let (answer, answered) = mpsc::sync_channel(1);
        {
            let mut state = self.shared.lock();
            if let Some(why) = &state.ended {
                return Err(PmuError::Ended(why.clone()));
            }
            state.orders.push((order, answer));
        }
        self.shared.orders.ring();
        let ended = || PmuError::Ended("it gave no answer".to_owned());
        answered.recv().map_err(|_| ended())?
    }

    fn wait(&self, timeout: Duration) {
        let timeout = Timespec::try_from(timeout).ok();
        let bell = self.shared.events.as_fd();
        let mut fds = [PollFd::from_borrowed_fd(bell, PollFlags::IN)];
        // An interruption is a poll that finds nothing.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
    }

    /// Ends the thread once it has emptied the rings.
    fn stop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.orders.ring();
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; there is nothing to undo here.
            let _ = thread.join();
        }
    }
}

impl Tracker for PmuTracker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        Ok(self.order(Order::Add(pid, follow))?)
    }

    fn remove(&mut self, pid: Pid) -> Result<(), TrackError> {
        Ok(self.order(Order::Remove(pid))?)
    }

    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError> {
        if !timeout.is_zero() {
            self.wait(timeout);
        }
        self.shared.events.silence();
        let (queue, ended) = {
            let mut state = self.shared.lock();
            (std::mem::take(&mut state.queue), state.ended.clone())
        };
        let nothing = queue.is_empty();
        queue.into_iter().for_each(sink);
        match ended {
            Some(why) if nothing => Err(PmuError::Ended(why).into()),
            _ => Ok(()),
        }
    }

    fn stats(&self) -> Result<TrackStats, TrackError> {
        let stats = self.pmu_stats();
        Ok(TrackStats {
            accesses: stats.counts.reported - stats.queue_lost,
            lost_accesses: stats.counts.lost + stats.queue_lost,
            lost_process_events: stats.process_events_lost,
            throttled: stats.counts.throttled,
            stores: stats.stores_with_lost(),
            ..TrackStats::default()
        })
    }

    fn counters(&self) -> Vec<Measurement> {
        let stats = self.pmu_stats();
        Figures {
            period: stats.period,
            period_changes: stats.period_changes,
            reported: stats.counts.reported,
            lost: stats.counts.lost + stats.queue_lost,
            throttled: stats.counts.throttled,
            broken_bytes: stats.broken_bytes,
            thread_ns: stats.thread_time.0,
        }
        .values()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.shared.events.as_fd()]
    }
}

impl Drop for PmuTracker {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod load_tests;
#[cfg(test)]
mod plan_tests;
