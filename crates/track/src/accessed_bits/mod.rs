// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tracker that reads the accessed bits of all pages, without a fault.
//!
//! A pass over a process clears the bits once and reads them after 1, 2, 4 .. ms: the first reading that
//! shows a page's bit is its idle time, to a factor of two ([`terrace_core::ladder`]). Reading is BPF's
//! (`terrace_bpf::page_tables`), clearing `MADV_COLD`'s (`terrace_sys::advise`): it flushes the TLB, without
//! which the hottest pages would look idle, and takes the mmap lock for reading, in calls of at most
//! [`AccessedBitsConfig::max_stall`]. `docs/accessed-bits.md` has the reasons and the figures.
//!
//! Named pages are looked at without a pass ([`AccessedBits::look`], `look` and, pure, `named`).
//!
//! * [`reading`]: what is told. `nodes`, `slice`: where a page is, what is cleared and read together; pure.
//! * `process`: one process's kernel interfaces. `reader`: the thread, what is due when. `shared`: its queue.
//! * [`survey()`]: whether it works here, for `terrace doctor`.

mod figures;
mod length;
mod look;
mod named;
mod nodes;
mod process;
mod reader;
pub mod reading;
mod shared;
mod slice;
mod survey;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use terrace_bpf::HintFaults;
use terrace_bpf::PageTables;
use terrace_bpf::PlacedRanges;
use terrace_bpf::Record;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_sys::zones::Zone;

pub use reading::Looked;
pub use reading::Reading;
pub use reading::Told;
pub use survey::ProcessCost;
pub use survey::Survey;
pub use survey::survey;

use crate::TrackError;
use crate::Tracker;
use crate::event::TrackEvent;
use crate::event::TrackStats;
pub(crate) use figures::Figures;
use nodes::Nodes;
use reader::Reader;
use shared::Asked;
use shared::Order;
use shared::Shared;

/// As on the command line.
pub(crate) const NAME: &str = "accessed-bits";
/// Ring of forks, execs and exits.
const LIVES_BYTES: u32 = 1 << 18;

/// How it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessedBitsConfig {
    /// Which page frames are on which node.
    pub zones: Vec<Zone>,
    /// How long a call may hold the process's mmap lock.
    pub max_stall: Nanos,
    /// Share of a processor that reading takes at most, in thousandths.
    pub budget_permille: u32,
}

impl Default for AccessedBitsConfig {
    /// Calls of 2 ms, a twentieth of a processor.
    fn default() -> Self {
        Self {
            zones: Vec::new(),
            max_stall: Nanos::from_millis(2),
            budget_permille: 50,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct AccessedBits {
    lives: HintFaults,
    tracked: BTreeSet<Pid>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    fresh: u64,
}

impl AccessedBits {
    /// Loads the BPF programs and starts the reading thread. No process is tracked yet, and none is read
    /// before [`Self::ask`].
    ///
    /// # Errors
    ///
    /// Where the kernel lacks what is needed, or permission is missing.
    pub fn open(config: AccessedBitsConfig) -> Result<Self, TrackError> {
        let nodes = Nodes::new(&config.zones);
        let read = (PageTables::open(&nodes.ranges)?, PlacedRanges::open()?);
        let lives = HintFaults::lives(LIVES_BYTES)?;
        let shared = Arc::new(Shared::new().map_err(terrace_bpf::PageTablesError::Own)?);
        let reader = Reader::new(read, nodes, Arc::clone(&shared), config);
        let thread = std::thread::Builder::new()
            .name("terrace-reader".to_owned())
            .spawn(|| reader.run())
            .map_err(terrace_bpf::PageTablesError::Own)?;
        Ok(Self {
            lives,
            tracked: BTreeSet::new(),
            shared,
            thread: Some(thread),
            fresh: 0,
        })
    }

    /// Reads in passes of that length from now on, each first after the shortest wait; one in so many of all chunks
    /// ([`terrace_core::Turns`]). A pass under way ends sooner where that is shorter; a longer one holds for it while it is being cleared.
    pub fn ask(&self, shortest: Nanos, pass: Nanos, parts: u32) {
        let asked = Asked {
            shortest,
            pass,
            parts,
        };
        self.shared.order(Order::Ask(asked));
    }

    /// Reads the bits of these pages of tracked processes and clears them, once: what is found is told together
    /// ([`Told::Looked`], for each process). Not while paused.
    pub fn look(&self, pages: Vec<PageRef>) {
        self.shared.order(Order::Look(pages));
    }

    /// Stops reading, or goes on.
    pub fn pause(&self, paused: bool) {
        self.shared.order(Order::Pause(paused));
    }

    /// Hands out what was read of tracked processes since the call before. [`Tracker::poll`] comes first: it
    /// says which processes those are.
    pub fn told(&mut self, mut sink: impl FnMut(Told)) {
        for told in self.shared.take() {
            if self.tracked.contains(&told.pid()) {
                if let Told::Reading(reading) = &told {
                    self.fresh += u64::from(reading.fresh.count());
                }
                sink(told);
            }
        }
    }

    fn track(&mut self, pid: Pid) {
        self.tracked.insert(pid);
        self.shared.order(Order::Add(pid));
    }

    fn untrack(&mut self, pid: Pid) {
        self.tracked.remove(&pid);
        self.shared.order(Order::Remove(pid));
    }

    fn life(&mut self, record: Record) -> Option<TrackEvent> {
        match record {
            Record::Fork {
                parent,
                child,
                time,
            } => {
                self.track(child);
                Some(TrackEvent::Forked {
                    parent,
                    child,
                    time,
                })
            }
            Record::Exec { pid, time } => {
                self.track(pid);
                Some(TrackEvent::Execed { pid, time })
            }
            Record::Exit { pid, time } => {
                self.untrack(pid);
                Some(TrackEvent::Exited { pid, time })
            }
            Record::Scan { .. } | Record::Fault(_) => None,
        }
    }
}

impl Drop for AccessedBits {
    fn drop(&mut self) {
        self.shared.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported by its hook.
            let _ = thread.join();
        }
    }
}

impl Tracker for AccessedBits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        self.lives.add(pid, follow)?;
        self.track(pid);
        Ok(())
    }

    fn remove(&mut self, pid: Pid) -> Result<(), TrackError> {
        self.untrack(pid);
        Ok(self.lives.remove(pid)?)
    }

    /// Processes only; what was read comes by [`AccessedBits::told`].
    fn poll(
        &mut self,
        timeout: Duration,
        sink: &mut dyn FnMut(TrackEvent),
    ) -> Result<(), TrackError> {
        let mut records = Vec::new();
        self.lives.poll(timeout, |record| records.push(record))?;
        for record in records {
            if let Some(event) = self.life(record) {
                sink(event);
            }
        }
        Ok(())
    }

    fn stats(&self) -> Result<TrackStats, TrackError> {
        Ok(TrackStats {
            accesses: self.fresh,
            lost_process_events: self.lives.lost()?.process_events,
            ..TrackStats::default()
        })
    }

    fn counters(&self) -> Vec<Measurement> {
        let counts = self.shared.counts();
        let each = |time: Nanos, entries: u64| time.0.checked_div(entries).unwrap_or(0);
        let read_time = Nanos(counts.read_time.0.saturating_mul(1_000));
        Figures {
            accesses: self.fresh,
            cleared: counts.cleared,
            clear_ns: each(counts.clear_time, counts.cleared),
            set_ns: counts.set.0,
            longest_clear_us: counts.longest_clear.0 / 1_000,
            refused: counts.refused,
            read: counts.read,
            read_ps: each(read_time, counts.read),
            swapping: counts.swapping,
            left_alone: counts.left_alone,
        }
        .values()
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.shared.bell.as_fd(), self.lives.fd()]
    }

    fn tells(&self) -> bool {
        true
    }
}
