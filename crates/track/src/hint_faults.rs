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
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
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
const INDEX_BITS: u32 = 16;
/// Faults that are put in order at once, at most. Addresses have 57 bits, page numbers 45.
const FAULTS_MAX: usize = 1 << INDEX_BITS;

/// As on the command line.
pub(crate) const NAME: &str = "hint-faults";

terrace_core::figures! {
    pub(crate) struct Figures {
        /// Hint faults reported.
        accesses: u64 as Count,
        /// Hint faults lost for lack of buffer.
        lost: u64 as Count,
        /// Hint faults whose scan is not known, so without an idle time.
        unmatched: u64 as Count,
    }
}

/// What it may take.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HintFaultTrackerConfig {
    /// The ring of records.
    pub source: HintFaultsConfig,
    /// The tables of scans.
    pub limits: Limits,
    /// Nodes that the kernel's scanner leaves out in mode 2: the top tier.
    pub top: Vec<NodeId>,
}

/// Hint faults with their scan times.
#[derive(Debug)]
pub struct HintFaultTracker {
    source: HintFaults,
    correlator: Correlator,
    /// Empty between two calls.
    faults: Faults,
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
            correlator: Correlator::new(config.limits, config.top),
            faults: Faults::default(),
        })
    }

    /// From then on the kernel's scanner takes in all nodes (modes 1 and 3), or leaves out the top tier.
    pub fn mode(&mut self, all: bool, from: Nanos) {
        self.correlator.mode(all, from);
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

/// Faults between two records of another kind.
#[derive(Debug, Default)]
struct Faults {
    records: Vec<Fault>,
    /// Page numbers with the index of the record in their last bits.
    order: Vec<u64>,
}

impl Faults {
    /// Hands them on in the order of their addresses, those of a page as they came: what is looked
    /// up for a fault lies beside what is looked up for the next, here and in the policy, where in
    /// the order of time each would be some cache misses of its own.
    fn hand_on(&mut self, correlator: &mut Correlator, sink: &mut dyn FnMut(TrackEvent)) {
        self.order.clear();
        let keys = (0_u64..).zip(&self.records);
        self.order
            .extend(keys.map(|(at, fault)| fault.addr.0 >> PAGE_SHIFT << INDEX_BITS | at));
        self.order.sort_unstable();
        for key in &self.order {
            let at = usize::try_from(key & (FAULTS_MAX as u64 - 1)).unwrap_or(0);
            sink(TrackEvent::HintFault(correlator.fault(&self.records[at])));
        }
        self.records.clear();
    }
}

impl Tracker for HintFaultTracker {
    fn name(&self) -> &'static str {
        NAME
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
            Record::Fault(fault) => {
                if faults.records.len() >= FAULTS_MAX {
                    faults.hand_on(correlator, sink);
                }
                faults.records.push(fault);
            }
            other => {
                faults.hand_on(correlator, sink);
                if let Some(event) = correlator.observe(other) {
                    sink(event);
                }
            }
        });
        faults.hand_on(correlator, sink);
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

    fn counters(&self) -> Vec<Measurement> {
        let stats = self.stats().unwrap_or_default();
        Figures {
            accesses: stats.accesses,
            lost: stats.lost_accesses,
            unmatched: stats.unmatched,
        }
        .values()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.source.fd()]
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;

    use super::*;

    #[test]
    fn faults_come_in_the_order_of_addresses_and_those_of_a_page_in_their_own() {
        let mut correlator = Correlator::new(Limits::default(), Vec::new());
        let mut faults = Faults::default();
        let seen = [
            (0x9000, 1),
            (0x7fff_ffff_f000, 2),
            (0x1008, 3),
            (0x9010, 4),
            (0x1000, 5),
        ];
        for (addr, time) in seen {
            faults.records.push(Fault {
                pid: Pid(1),
                tid: 1,
                cpu: 0,
                cpu_node: None,
                addr: Addr(addr),
                node: Some(NodeId(1)),
                pages: 1,
                write: false,
                migrated: false,
                time: Nanos(time),
                took: Nanos::ZERO,
            });
        }
        let mut order = Vec::new();
        faults.hand_on(&mut correlator, &mut |event| {
            if let TrackEvent::HintFault(fault) = event {
                order.push((fault.addr.0, fault.fault_time.0));
            }
        });
        let expected = [
            (0x1000, 3),
            (0x1000, 5),
            (0x9000, 1),
            (0x9000, 4),
            (0x7fff_ffff_f000, 2),
        ];
        assert_eq!(order, expected);
        faults.hand_on(&mut correlator, &mut |event| panic!("{event:?} came twice"));
    }
}
