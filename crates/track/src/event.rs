// SPDX-License-Identifier: MIT OR Apache-2.0
//! What trackers report.

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

/// An access to a page that the kernel's scanner had marked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HintFault {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: u32,
    /// The processor it ran on.
    pub cpu: u32,
    /// The node of that processor.
    pub cpu_node: Option<NodeId>,
    /// First address of the page.
    pub addr: Addr,
    /// 2 MiB where a whole huge page became accessible again, else 4 KiB.
    pub size: PageSize,
    /// Where the page is.
    pub node: Option<NodeId>,
    /// Whether the access was a write.
    pub write: bool,
    /// Whether the kernel moved the page in this fault by itself.
    pub migrated: bool,
    /// When.
    pub fault_time: Nanos,
    /// How long the kernel had been at it then; what comes before and after its handling is not in it. Unknown where the
    /// tracker does not say.
    pub took: Option<Nanos>,
    /// The latest scan of the page before the fault, if one was seen.
    pub scan_time: Option<Nanos>,
    /// When the page was marked: the first scan after its last hint fault, of those that mark pages where
    /// it is. Later scans leave a marked page as it is. Of a page never seen to fault, the oldest scan that is remembered.
    pub armed_time: Option<Nanos>,
}

impl HintFault {
    /// The page.
    #[must_use]
    pub const fn page(&self) -> PageRef {
        PageRef {
            pid: self.pid,
            addr: self.addr,
            size: self.size,
        }
    }

    /// Captured idle time: how long the marked page was not touched. Unknown where its marking was
    /// not seen. A page that became marked later than thought (new, or moved since) has an idle
    /// time that is too long, once.
    #[must_use]
    pub fn idle(&self) -> Option<Nanos> {
        self.armed_time.map(|armed| self.fault_time.since(armed))
    }
}

/// One memory access that a PMU, real or emulated, picked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: u32,
    /// The processor it ran on.
    pub cpu: u32,
    /// The address accessed, as the PMU gave it (not rounded to a page).
    pub addr: Addr,
    /// The physical address, where the PMU or the kernel says it to us.
    pub phys: Option<u64>,
    /// The node that served the access, where the source says it; else the one who consumes the
    /// sample has to find it.
    pub node: Option<NodeId>,
    /// Whether the access was a store.
    pub write: bool,
    /// How many of its kind it stands for.
    pub accesses: u64,
    /// When.
    pub time: Nanos,
}

impl Sample {
    /// The 4 KiB page accessed.
    #[must_use]
    pub const fn page(&self) -> PageRef {
        PageRef {
            pid: self.pid,
            addr: self.addr.align_down(PageSize::Base4K),
            size: PageSize::Base4K,
        }
    }
}

/// What a tracker reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrackEvent {
    /// A hint fault.
    HintFault(HintFault),
    /// The scanner begins to mark a range of a tracked process.
    Scanned {
        /// The process.
        pid: Pid,
        /// What is marked, as far as the scanner's mode takes it in.
        range: Range,
        /// When, before the first page is marked.
        time: Nanos,
        /// Whether pages of the top tier are marked, too.
        all: bool,
    },
    /// A sampled access.
    Sample(Sample),
    /// A tracked process has a child, which is tracked from now on.
    Forked {
        /// The parent.
        parent: Pid,
        /// The child.
        child: Pid,
        /// When.
        time: Nanos,
    },
    /// A tracked process replaced its address space.
    Execed {
        /// The process.
        pid: Pid,
        /// When.
        time: Nanos,
    },
    /// A tracked process ended; it is tracked no more.
    Exited {
        /// The process.
        pid: Pid,
        /// When.
        time: Nanos,
    },
}

/// Counters since the tracker was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TrackStats {
    /// Accesses reported.
    pub accesses: u64,
    /// Scans of a range seen.
    pub scans: u64,
    /// Bytes of those ranges; pages already marked or skipped by the kernel included.
    pub scanned_bytes: u64,
    /// Accesses without a known scan.
    pub unmatched: u64,
    /// Stores of the tracked processes, estimated; `None` where the source does not sample stores. One
    /// sample stands for as many as its event's period was, and lost samples for what the others
    /// are on average. What a store is the source decides: a processor's event for stores counts those
    /// that a cache took, too; the emulated PMU, as IBS with its filter, does not.
    pub stores: Option<u64>,
    /// Accesses the source saw and had no room for.
    pub lost_accesses: u64,
    /// Times the kernel throttled the source because it interrupted too often; while it is
    /// throttled nobody knows what is missed.
    pub throttled: u64,
    /// Scans lost likewise, or not remembered for lack of room.
    pub lost_scans: u64,
    /// Forks, execs and exits lost likewise.
    pub lost_process_events: u64,
}
