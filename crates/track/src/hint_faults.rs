// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracker that reads the kernel's hint faults.
//!
//! The kernel's scanner has to be switched on by `terrace_sys::settings`; without it there is
//! nothing to report. What it skips is not reported either: hugetlb pages, ranges with a bound
//! memory policy, in mode 2 the top tier, and pages on the node where a single-threaded process
//! runs.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use terrace_bpf::Fault;
use terrace_bpf::HintFaults;
use terrace_bpf::HintFaultsConfig;
use terrace_bpf::Record;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;

use crate::TrackError;
use crate::Tracker;
use crate::correlate::Correlator;
use crate::correlate::Limits;
use crate::event::TrackEvent;
use crate::event::TrackStats;

const PAGE_SHIFT: u32 = 12;

/// What it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HintFaultTrackerConfig {
    /// The ring of records.
    pub source: HintFaultsConfig,
    /// The tables of scans.
    pub limits: Limits,
}

/// Hint faults with their scan times.
#[derive(Debug)]
pub struct HintFaultTracker {
    source: HintFaults,
    correlator: Correlator,
    /// Faults between two records of another kind; empty between two calls.
    faults: Vec<Fault>,
}

impl HintFaultTracker {
    /// Loads the BPF program. No process is tracked yet.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open(config: HintFaultTrackerConfig) -> Result<Self, TrackError> {
        Ok(Self {
            source: HintFaults::open(config.source)?,
            correlator: Correlator::new(config.limits),
            faults: Vec::new(),
        })
    }

    /// A page was moved by us, and so is marked no more until the next scan.
    pub fn moved(&mut self, page: PageRef, time: Nanos) {
        self.correlator.moved(page, time);
    }

    /// A range was unmapped.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        self.correlator.unmapped(pid, range);
    }
}

/// Hands faults on in the order of their addresses, those of a page in the order of time: what is
/// looked up for a fault lies beside what is looked up for the next, here and in the policy, where
/// in the order of time each would be some cache misses of its own.
fn hand_on(correlator: &mut Correlator, faults: &mut Vec<Fault>, sink: &mut dyn FnMut(TrackEvent)) {
    faults.sort_unstable_by_key(|fault| (fault.pid, fault.addr.0 >> PAGE_SHIFT, fault.time));
    for fault in faults.drain(..) {
        if let Some(event) = correlator.observe(Record::Fault(fault)) {
            sink(event);
        }
    }
}

impl Tracker for HintFaultTracker {
    fn name(&self) -> &'static str {
        "hint-faults"
    }

    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        Ok(self.source.add(pid, follow)?)
    }

    fn remove(&mut self, pid: Pid) -> Result<(), TrackError> {
        self.correlator.forget(pid);
        Ok(self.source.remove(pid)?)
    }

    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError> {
        let (correlator, faults) = (&mut self.correlator, &mut self.faults);
        let polled = self.source.poll(timeout, |record| match record {
            Record::Fault(fault) => faults.push(fault),
            other => {
                hand_on(correlator, faults, sink);
                if let Some(event) = correlator.observe(other) {
                    sink(event);
                }
            }
        });
        hand_on(correlator, faults, sink);
        Ok(polled?)
    }

    fn stats(&self) -> Result<TrackStats, TrackError> {
        let lost = self.source.lost()?;
        let seen = self.correlator.stats();
        Ok(TrackStats {
            lost_accesses: lost.faults,
            lost_scans: seen.lost_scans + lost.scans,
            lost_process_events: lost.process_events,
            ..seen
        })
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.source.fd())
    }
}
