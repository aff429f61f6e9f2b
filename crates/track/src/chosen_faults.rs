// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracker of pages that are armed one by one: the next access of each, with its time.
//!
//! ```text
//! ordered ──> in the BPF program's table ──> armed by who can, which says since when ──> first access: reported
//!                                       └──> refused: forgotten
//! ```
//!
//! Idle times run from the arming, which who arms tells; an access that comes before that is known waits for it.
//! A page that is ordered again while it is armed keeps its time. Where [`PAGES_MAX`] pages are armed the oldest is given up for
//! the next: it stays armed, and nobody hears of its access.
//!
//! `table` is pure. The kernel side is `terrace_bpf::ChosenFaults`; who arms is an agent in the process.

mod table;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use terrace_bpf::ChosenFault;
use terrace_bpf::ChosenFaults;
use terrace_bpf::chosen_faults::PAGES_MAX;
use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_sys::move_pages;
use terrace_sys::move_pages::PageStatus;
use terrace_sys::move_pages::Target;

use crate::TrackError;
use crate::Tracker;
use crate::event::HintFault;
use crate::event::TrackEvent;
use crate::event::TrackStats;
use table::Table;

/// As in the figures.
pub(crate) const NAME: &str = "chosen-faults";

terrace_core::figures! {
    #[derive(Debug, Clone, Copy, Default)]
    pub(crate) struct Figures {
        /// Pages that were armed, each time counted.
        armed: u64 as Count,
        /// First accesses of armed pages that were reported.
        faults: u64 as Count,
        /// Pages that could not be armed.
        refused: u64 as Count,
        /// Armed pages that were given up for newer ones.
        evicted: u64 as Count,
        /// First accesses that were lost for lack of buffer.
        lost: u64 as Count,
        /// Pages that are armed, or about to be, and were not accessed yet.
        waiting: u64 as Count,
    }
}

/// See the module.
#[derive(Debug)]
pub struct ChosenFaultTracker {
    source: ChosenFaults,
    table: Table,
    /// Whose pages are looked for: base pages, huge ones.
    sizes: BTreeMap<Pid, [bool; 2]>,
    counts: Figures,
}

impl ChosenFaultTracker {
    /// Loads the BPF program. No page is looked for yet.
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open() -> Result<Self, TrackError> {
        Ok(Self {
            source: ChosenFaults::open()?,
            table: Table::new(PAGES_MAX),
            sizes: BTreeMap::new(),
            counts: Figures::default(),
        })
    }

    /// The page is about to be armed: its next access from then on will be told.
    ///
    /// # Errors
    ///
    /// Where it cannot be looked for.
    pub fn order(&mut self, page: PageRef, now: Nanos) -> Result<(), TrackError> {
        if let Some(oldest) = self.table.order(page, now) {
            self.counts.evicted += 1;
            self.source.remove(oldest)?;
        }
        let looked_for = self.look_for(page);
        if looked_for.is_err() {
            self.table.remove(page);
        }
        looked_for
    }

    fn look_for(&mut self, page: PageRef) -> Result<(), TrackError> {
        let sizes = self.sizes.entry(page.pid).or_default();
        let this = usize::from(page.size == PageSize::Huge2M);
        if !sizes[this] {
            let mut more = *sizes;
            more[this] = true;
            self.source.looks_at(page.pid, more[0], more[1])?;
            *sizes = more;
        }
        Ok(self.source.insert(page)?)
    }

    /// It is armed since then.
    pub fn armed(&mut self, page: PageRef, since: Nanos) {
        self.counts.armed += 1;
        self.table.armed(page, since);
    }

    /// It could not be armed.
    pub fn refused(&mut self, page: PageRef) {
        self.counts.refused += 1;
        self.give_up(page);
    }

    /// A process has ended, or who arms in it: its pages are not armed any more.
    pub fn forget(&mut self, pid: Pid) {
        let all = Range {
            start: Addr(0),
            end: Addr(u64::MAX),
        };
        self.unmapped(pid, all);
        if self.sizes.remove(&pid).is_some() {
            // Where that fails its faults cost a look more each, and no more comes of it.
            let _ = self.source.looks_at(pid, false, false);
        }
    }

    /// A range was unmapped.
    pub fn unmapped(&mut self, pid: Pid, range: Range) {
        for page in self.table.within(pid, range) {
            self.give_up(page);
        }
    }

    fn give_up(&mut self, page: PageRef) {
        self.table.remove(page);
        // One that stays in the program's table is told of once, and not known then.
        let _ = self.source.remove(page);
    }
}

impl Tracker for ChosenFaultTracker {
    fn name(&self) -> &'static str {
        NAME
    }

    /// What is ordered says whose it is.
    fn add(&mut self, _pid: Pid, _follow: bool) -> Result<(), TrackError> {
        Ok(())
    }

    fn remove(&mut self, pid: Pid) -> Result<(), TrackError> {
        self.forget(pid);
        Ok(())
    }

    /// Never waits.
    fn poll(
        &mut self,
        _timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError> {
        let (table, mut again) = (&mut self.table, Vec::new());
        let polled = self
            .source
            .poll(|fault| again.extend(table.accessed(fault)));
        for page in again {
            self.source.remove(page)?;
        }
        let mut ready = self.table.take_ready();
        ready.sort_by_key(|(fault, _)| fault.page);
        self.counts.faults += ready.len() as u64;
        for of_one in ready.chunk_by(|(one, _), (next, _)| one.page.pid == next.page.pid) {
            let nodes = nodes_of(of_one);
            for ((fault, since), node) in of_one.iter().zip(nodes) {
                sink(TrackEvent::HintFault(hint_fault(fault, *since, node)));
            }
        }
        Ok(polled?)
    }

    fn stats(&self) -> Result<TrackStats, TrackError> {
        Ok(TrackStats {
            accesses: self.counts.faults,
            lost_accesses: self.source.lost()?,
            ..TrackStats::default()
        })
    }

    fn counters(&self) -> Vec<Measurement> {
        Figures {
            lost: self.source.lost().unwrap_or_default(),
            waiting: self.table.len() as u64,
            ..self.counts
        }
        .values()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// Where pages of one process are now, asked in one call; nowhere where that cannot be told.
fn nodes_of(faults: &[(ChosenFault, Nanos)]) -> Vec<Option<NodeId>> {
    let Some((first, _)) = faults.first() else {
        return Vec::new();
    };
    let addresses: Vec<u64> = faults.iter().map(|(fault, _)| fault.page.addr.0).collect();
    let found = move_pages::query(Target::Process(first.page.pid), &addresses);
    let found = found.unwrap_or_else(|_| vec![PageStatus::Untried; addresses.len()]);
    let node = |status| match status {
        PageStatus::On(node) => Some(node),
        _ => None,
    };
    found.into_iter().map(node).collect()
}

const fn hint_fault(fault: &ChosenFault, since: Nanos, node: Option<NodeId>) -> HintFault {
    HintFault {
        pid: fault.page.pid,
        tid: fault.tid,
        cpu: fault.cpu,
        cpu_node: fault.cpu_node,
        addr: fault.page.addr,
        size: fault.page.size,
        node,
        write: fault.write,
        migrated: false,
        fault_time: fault.time,
        took: None,
        scan_time: Some(since),
        armed_time: Some(since),
    }
}
