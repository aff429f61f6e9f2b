// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the PMU tracker may take, and what stops it.

use std::time::Duration;

use rustix::io::Errno;
use terrace_core::Nanos;
use terrace_core::Pid;
use thiserror::Error;

use super::period::PeriodConfig;
use super::table::EventTable;

/// Whom the events watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PmuScope {
    /// Processors where that is permitted, else processes.
    #[default]
    Auto,
    /// All that runs on each processor; what is not tracked is thrown away. Threads and children
    /// are seen from their start on.
    PerCpu,
    /// The tracked processes and what they start. Needs as many events as the processes have
    /// threads times the processors.
    PerProcess,
}

/// What the tracker may take.
#[derive(Debug, Clone, PartialEq)]
pub struct PmuConfig {
    /// One in so many memory accesses is sampled, at most (HeMem: 5,000, section 3.1).
    pub period: u64,
    /// The share of processor time that sampling may cost, 0 to 1, on the processors that give
    /// samples.
    pub cost_share: f64,
    /// What a sample is taken to cost the program. `terrace bench primitives` measures it; a
    /// microsecond is a PMU interrupt, and PEBS writes several samples for one.
    pub sample_cost: Nanos,
    /// How long the sampling thread lets samples lie, at most, while any come.
    pub interval: Duration,
    /// Bytes of each processor's ring, a power of two of pages; less where the kernel does not
    /// allow so much.
    pub ring_bytes: usize,
    /// Samples that wait for [`crate::Tracker::poll`], at most.
    pub queue_samples: usize,
    /// Whom the events watch.
    pub scope: PmuScope,
    /// The events.
    pub table: EventTable,
}

impl Default for PmuConfig {
    fn default() -> Self {
        Self {
            period: 5_000,
            cost_share: 0.01,
            sample_cost: Nanos(1_000),
            interval: Duration::from_millis(10),
            // With the control page what kernel.perf_event_mlock_kb allows everyone.
            ring_bytes: 512 << 10,
            queue_samples: 1 << 17,
            scope: PmuScope::Auto,
            table: EventTable::builtin(),
        }
    }
}

impl PmuConfig {
    pub(super) const fn period_config(&self) -> PeriodConfig {
        PeriodConfig {
            period: self.period,
            cost_share: self.cost_share,
            sample_cost: self.sample_cost,
        }
    }
}

/// Why accesses cannot be sampled. Each is one line that says what to do.
#[derive(Debug, Error)]
pub enum PmuError {
    /// The configuration cannot be.
    #[error("PMU sampling: {0}")]
    Config(&'static str),
    /// The kernel was built without it, or it is filtered.
    #[error(
        "PMU sampling: the kernel offers no perf events ({0}); use a kernel with \
         CONFIG_PERF_EVENTS, leave the sandbox that forbids perf_event_open, or use another tracker"
    )]
    NoPerf(Errno),
    /// It is forbidden.
    #[error(
        "PMU sampling is not permitted (kernel.perf_event_paranoid is {paranoid}): run as root or \
         with CAP_PERFMON, or sysctl kernel.perf_event_paranoid=0, or use another tracker"
    )]
    NotPermitted {
        /// The setting, as far as it can be read.
        paranoid: String,
    },
    /// No row fits.
    #[error(
        "PMU sampling: no events are known for this processor, {cpu}; add a row to the event table \
         (docs/pmu.md), or use another tracker"
    )]
    UnknownCpu {
        /// The processor.
        cpu: String,
    },
    /// The row's PMU is not there.
    #[error(
        "PMU sampling: the kernel has no PMU '{pmu}' for {row} (it has {have}), as in most virtual \
         machines; give the guest a PMU, or use another tracker"
    )]
    NoPmu {
        /// What is missing.
        pmu: String,
        /// The row.
        row: String,
        /// What is there.
        have: String,
    },
    /// None that sees loads can be opened.
    #[error(
        "PMU sampling: no event of {row} that sees loads can be opened ({why}); in a virtual \
         machine the host must pass precise events on; else use another tracker"
    )]
    NoEvent {
        /// The row.
        row: String,
        /// Event by event.
        why: String,
    },
    /// An event that could be opened before.
    #[error("PMU sampling: cannot open {event} {}: {source}", place(*.cpu, *.pid))]
    Open {
        /// The event.
        event: String,
        /// Where.
        cpu: u32,
        /// For whom, where not for all.
        pid: Option<Pid>,
        /// Why.
        source: Errno,
    },
    /// A ring.
    #[error(
        "PMU sampling: cannot map a ring for processor {cpu} ({source}); raise \
         kernel.perf_event_mlock_kb or RLIMIT_MEMLOCK, or run with CAP_IPC_LOCK"
    )]
    Ring {
        /// The processor.
        cpu: u32,
        /// Why.
        source: Errno,
    },
    /// The sampling thread.
    #[error("PMU sampling: the sampling thread cannot be started ({0})")]
    Thread(String),
    /// It has ended.
    #[error("PMU sampling has ended: {0}")]
    Ended(String),
}

fn place(cpu: u32, pid: Option<Pid>) -> String {
    match pid {
        Some(pid) => format!("for process {pid} on processor {cpu}"),
        None => format!("on processor {cpu}"),
    }
}
