// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a policy sees ([`Event`]) and what it gives ([`Action`]).
//!
//! The words are the field's, not Linux': a hint fault is an access that a tracker noticed, whoever
//! armed the trap; a migration's end is a [`Verdict`], whoever carried it out.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An access to a page that was armed for it.
    HintFault {
        /// The page.
        page: PageRef,
        /// Where it is.
        node: NodeId,
        /// Whether the access was a write.
        write: bool,
        /// Captured idle time: from arming to access. Unknown where the arming was not seen.
        idle: Option<Nanos>,
        /// The node of the processor that accessed it. Unknown where the tracker does not say.
        cpu_node: Option<NodeId>,
    },
    /// The tracker armed a range: every page of it that the scope takes in will fault when it is
    /// touched next. Pages that were armed before stay as they were.
    Armed {
        /// The process.
        pid: Pid,
        /// The range.
        range: Range,
        /// What was armed in it.
        scope: ScanScope,
    },
    /// So many of the hint faults that were told took the program so long: in the kernel, and what it takes to tell them.
    Faulted {
        /// How many.
        faults: u32,
        /// All of them together.
        took: Nanos,
    },
    /// A performance-monitoring unit sampled an access that memory served (HeMem 3.1).
    Sampled {
        /// The base page.
        page: PageRef,
        /// Where it is.
        node: NodeId,
        /// Whether the access was a store.
        write: bool,
        /// How many of its kind it stands for.
        accesses: u64,
    },
    /// An anonymous mapping appeared or grew (HeMem 3.3).
    Mapped {
        /// The process.
        pid: Pid,
        /// The whole mapping as it is now.
        range: Range,
    },
    /// A page was found on a node without having been accessed (an inventory of a process).
    Resident {
        /// The page.
        page: PageRef,
        /// Where it is.
        node: NodeId,
    },
    /// A migration ended.
    Ended {
        /// The page.
        page: PageRef,
        /// What was asked.
        migration: Migration,
        /// Where the page was when it was taken on. Unknown where the mover does not say.
        from: Option<NodeId>,
        /// How it went.
        verdict: Verdict,
        /// How it was done, or tried last.
        mechanism: Mechanism,
        /// From the order to its end, what it waited for included.
        took: Nanos,
        /// How long the page could not be accessed; 0 where it did not move, or the mover does not say.
        inaccessible: Nanos,
    },
    /// The program wrote to a page with a shadow; the shadow is gone.
    ShadowLost {
        /// The page.
        page: PageRef,
    },
    /// A process gave a range back.
    Unmapped {
        /// The process.
        pid: Pid,
        /// The range.
        range: Range,
    },
    /// A process ended, or is no longer managed.
    Gone {
        /// The process.
        pid: Pid,
    },
    /// What a process has beside others. Who was not told of has what [`Share::default`] says; so has who is gone
    /// ([`Self::Gone`]) until it is told of again.
    Share {
        /// The process.
        pid: Pid,
        /// What it has.
        share: Share,
    },
    /// Where a process may run, as far as that is told and when it changes. Who was not told of may run on any
    /// processor; so may who is gone ([`Self::Gone`]) until it is told of again.
    Runs {
        /// The process.
        pid: Pid,
        /// The node of all processors that its threads may run on; absent where they are of several.
        cpu_node: Option<NodeId>,
    },
    /// A page's accessed bit was read and cleared.
    Probed {
        /// The page.
        page: PageRef,
        /// Where it is.
        node: NodeId,
        /// Whether it was accessed since its bit was cleared before.
        accessed: bool,
    },
    /// Migrations took processor time, whoever asked for them: the mover's, and what it took to give their orders and take their ends in.
    Moved {
        /// How many base pages' worth of memory was moved.
        pages: u32,
        /// The size of the pages.
        size: PageSize,
        /// Processor time of all of them together.
        busy: Nanos,
    },
    /// What a huge page in parts takes on this machine. Told once one was split ([`Action::Split`]).
    Parts {
        /// A visit takes so much more where memory is in base pages: it looks for a translation of its own.
        walk: Nanos,
        /// Splitting one takes so long.
        split: Nanos,
    },
    /// A pass over the accessed bits of a process is over: all its pages were told for the last time
    /// ([`terrace_core::ChunkReading::last`]); or all named pages of it that were to be looked at
    /// ([`Action::ProbeRange`]).
    Watched {
        /// The process.
        pid: Pid,
        /// Of how many chunks the pass read one ([`terrace_core::Turns`]).
        parts: u32,
        /// Entries that were read: base pages and huge pages, each one.
        pages: u64,
        /// Processor time that the pass took: the reader's, and what it took to take its readings in.
        busy: Nanos,
        /// Processor time that it took of the process itself, which had to set the bits of its pages again.
        lost: Nanos,
    },
    /// What a read from a node takes now that memory serves, measured under the present load.
    Latency {
        /// The node of the processor that read.
        from: NodeId,
        /// The node that was read from.
        node: NodeId,
        /// Time of one read.
        read: Nanos,
    },
    /// The machine did not do what was asked for: this action of the policy, as it was. A migration is refused only
    /// where its mechanism is not served; every other one ends ([`Event::Ended`]).
    Refused {
        /// What was asked for.
        what: Action,
        /// Why not.
        why: Refusal,
    },
    /// A node's memory, sampled.
    Memory {
        /// The node.
        node: NodeId,
        /// Its state now.
        memory: NodeMemory,
    },
}

/// What a process has beside the others that are managed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Share {
    /// Processes with the same one have floor and ceiling together; by itself where absent.
    pub whose: Option<Pid>,
    /// 0 is no priority. With HeMem's preset all memory of who has one is to be fast (5.2.2); the default counts what it saves
    /// so many times more.
    pub priority: u32,
    /// Bytes of its memory that others do not push out of the fast tier, as far as it uses them.
    pub floor_bytes: u64,
    /// Bytes of its memory that may be in the fast tier; without end where absent.
    pub ceiling_bytes: Option<u64>,
}

impl Share {
    /// Whether the floor is not above the ceiling.
    #[must_use]
    pub fn can_be(&self) -> bool {
        self.ceiling_bytes
            .is_none_or(|ceiling| self.floor_bytes <= ceiling)
    }

    /// Whether there is a floor or a ceiling.
    #[must_use]
    pub const fn is_limited(&self) -> bool {
        self.floor_bytes > 0 || self.ceiling_bytes.is_some()
    }
}

/// Why a machine does not do what it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// Nothing here does that: there is no such tracker, no mover that could.
    Unserved,
    /// It is done here, and the system did not let it: a setting that could not be changed.
    Denied,
    /// There is no such node or page.
    Unknown,
    /// Who does it has too much to do. Worth a retry.
    Busy,
}

/// What a migration was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migration {
    /// To a node that is faster, for who accesses it.
    Promote {
        /// Target.
        to: NodeId,
        /// Whether the old page stays as shadow.
        keep_shadow: bool,
    },
    /// To a slower tier.
    Demote {
        /// Target.
        to: NodeId,
    },
    /// It changes places with another page of its size, without any free memory
    /// ([`crate::Capabilities::EXCHANGE`]). Both moved or none.
    Exchange {
        /// Target: where the other page is.
        to: NodeId,
        /// The other page; it goes where this one was.
        with: PageRef,
    },
}

impl Migration {
    /// Where the page was to go.
    #[must_use]
    pub const fn target(self) -> NodeId {
        match self {
            Self::Promote { to, .. } | Self::Demote { to } | Self::Exchange { to, .. } => to,
        }
    }
}

/// How a page is moved, and what its program notices of it. Which of them are served depends on the mover
/// (docs/movers.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mechanism {
    /// In the hint fault, whose access waits.
    InFault,
    /// By the kernel's own migration, from outside; accesses wait.
    MovePages,
    /// Copied while the program goes on; a write aborts it (Nomad 3.1). With a shadow or without
    /// ([`Migration::Promote`]).
    Transaction,
    /// By the kernel's own migration, asked for in the program; its shadow is copied afterwards.
    CopyInCommit,
    /// Copied while the program goes on reading; who writes waits (HeMem 3.2).
    WritersWait,
    /// Copied beside the program until it writes; from then on who touches the page waits (MTM 7.2).
    AdaptiveCopy,
    /// Several threads copy; who touches the page waits.
    ParallelCopy,
    /// Two pages are copied both ways at once; who touches them waits (AutoTiering 4.1).
    Exchange,
}

impl Mechanism {
    /// Whether it is carried out in the program's process.
    #[must_use]
    pub const fn is_in_process(self) -> bool {
        matches!(
            self,
            Self::Transaction | Self::CopyInCommit | Self::WritersWait | Self::Exchange
        )
    }
}

/// How a migration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The page is at its target; `shadow` says whether its old frame was kept.
    Moved {
        /// Whether there is a shadow now.
        shadow: bool,
    },
    /// The page is at its target, onto its shadow, nothing was copied.
    MovedOntoShadow,
    /// A write during the copy aborted it. Worth a retry.
    Dirtied,
    /// Refused for now: shared, pinned or under other work. Worth a retry.
    Busy,
    /// The target has no free memory.
    NoMemory,
    /// The page is not there any more, or cannot be moved at all.
    Lost,
}

/// Why something is to be done; printed and counted, never acted on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Referenced twice (Nomad 3.1).
    ReferencedTwice,
    /// An aborted or refused transaction, again.
    Retry,
    /// The fast node is under its watermark.
    FastPressure,
    /// To make room for a page that is hotter.
    MakeRoom,
    /// The slow node is under its watermark (Nomad 3.2).
    SlowPressure,
    /// An allocation failed (Nomad 3.2: ten times the request).
    AllocationFailed,
    /// By its hint fault alone.
    HintFault,
    /// Sampled often enough (HeMem 3.1).
    Hot,
    /// Stored to often enough (HeMem 3.3).
    WriteHeavy,
    /// What it saves where it goes is more than what the move costs.
    Pays,
    /// Idle for less than the threshold, round after round (Chrono 3.1).
    ShortIdle,
    /// Of a program with priority (HeMem 5.2.2).
    Priority,
}

/// Which tiers the tracker shall arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanScope {
    /// Only pages outside the fastest tier: finds what to promote.
    Slow,
    /// All pages: finds what to demote, too.
    All,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Move a page; its end comes back as [`Event::Ended`].
    Migrate {
        /// The page.
        page: PageRef,
        /// Where to.
        migration: Migration,
        /// How: by this and no other; or as the mover does it, which may try one after the other.
        mechanism: Option<Mechanism>,
        /// Why.
        reason: Reason,
    },
    /// Give back so many shadow pages on a node, the oldest first.
    ReclaimShadows {
        /// How many bytes.
        bytes: u64,
        /// Why.
        reason: Reason,
    },
    /// Arm these pages at that pace. Not ranges of the policy's choice: the kernel's scanner goes round whole processes.
    Scan {
        /// Which.
        scope: ScanScope,
        /// How long one pass over a process shall take; [`Nanos::MAX`]: no more are armed.
        period: Nanos,
    },
    /// Arm this page once ([`crate::Capabilities::CHOSEN_FAULTS`]): its next access is told as [`Event::HintFault`]. One that
    /// is armed stays as it is.
    Arm {
        /// The page.
        page: PageRef,
    },
    /// Read the accessed bits of every page of both tiers in passes, one after the other, until told
    /// otherwise. Whoever reads may make passes longer to stay within its budget.
    ReadAccessed {
        /// The first rung: how long after the clearing the first reading is.
        shortest: Nanos,
        /// The last rung, and so how long a pass takes.
        pass: Nanos,
        /// One in so many passes reads all chunks, the others one in so many ([`terrace_core::Turns`]); 1: all read all.
        parts: u32,
    },
    /// Split a huge page into its base pages, where it is. Whether that could be done is seen when they are read.
    Split {
        /// The page.
        page: PageRef,
    },
    /// Take samples ([`Event::Sampled`]), or none, until told otherwise. Until told, they are taken.
    Sample {
        /// Whether to.
        on: bool,
    },
    /// Let the hint fault that is being handled return as it came: the access faults again at once.
    FaultAgain {
        /// The page that faulted.
        page: PageRef,
    },
    /// Tell by [`Event::Resident`] what is on the fast nodes.
    Inventory,
    /// Tell by [`Event::Resident`] what of a process is on the other nodes.
    FindSlow {
        /// Whose pages.
        pid: Pid,
    },
    /// Read and clear the accessed bits of the next pages of a node, going round; each is told by
    /// [`Event::Probed`].
    ProbeNext {
        /// The node.
        node: NodeId,
        /// How many pages.
        pages: u32,
    },
    /// Read and clear the accessed bits of mapped pages that are neighbours; each is told by [`Event::Probed`].
    ProbeRange {
        /// Of those on this node; or wherever they are, as a reader of page tables sees them. That reader tells
        /// by [`Event::Watched`] what all that it was asked for together took.
        node: Option<NodeId>,
        /// The first.
        page: PageRef,
        /// How many.
        pages: u32,
    },
}
