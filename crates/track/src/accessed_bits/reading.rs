// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the reader hands on.

use terrace_core::Addr;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Pid;

/// A [`ChunkReading`] that waits to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    pub(super) pid: Pid,
    pub(super) parts: u32,
    pub(super) start: Addr,
    pub(super) since: Nanos,
    pub(super) until: Nanos,
    pub(super) ran: Option<(Nanos, Nanos)>,
    pub(super) last: bool,
    pub(super) huge: bool,
    pub(super) present: PageBits,
    pub(super) accessed: PageBits,
    pub(super) fresh: PageBits,
    pub(super) nodes: Vec<(NodeId, PageBits)>,
}

impl Reading {
    /// As a policy takes it.
    #[must_use]
    pub fn as_chunk(&self) -> ChunkReading<'_> {
        ChunkReading {
            pid: self.pid,
            parts: self.parts,
            start: self.start,
            since: self.since,
            until: self.until,
            ran: self.ran,
            last: self.last,
            huge: self.huge,
            present: self.present,
            accessed: self.accessed,
            fresh: self.fresh,
            nodes: &self.nodes,
        }
    }
}

/// A named page, as it was found; its bit is clear now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Looked {
    /// The page, or the huge page that maps it.
    pub page: PageRef,
    /// Where it is.
    pub node: NodeId,
    /// It was accessed since its bit was cleared before.
    pub accessed: bool,
}

/// Something the reader has to tell, in the order in which it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all are readings, side by side in one vector"
)]
pub enum Told {
    /// A chunk was read.
    Reading(Reading),
    /// Named pages of a process were looked at.
    Looked {
        /// The process.
        pid: Pid,
        /// What was found, of those that are in memory and whose bits can be cleared.
        looked: Vec<Looked>,
        /// How many were asked for.
        pages: u64,
        /// Processor time that it took: reading and clearing.
        busy: Nanos,
        /// What it takes of the process, as in [`Self::PassOver`].
        lost: Nanos,
    },
    /// All chunks of a process were read for the last time in a pass.
    PassOver {
        /// The process.
        pid: Pid,
        /// Of how many chunks the pass read one.
        parts: u32,
        /// Entries that were read at each rung: base pages and huge pages, each one.
        pages: u64,
        /// Processor time that the pass took: finding, clearing, reading.
        busy: Nanos,
        /// What it took of the process: a bit set again for each entry that was seen, at what that takes here.
        lost: Nanos,
    },
}

impl Told {
    /// Of whom it is.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        match self {
            Self::Reading(reading) => reading.pid,
            Self::PassOver { pid, .. } | Self::Looked { pid, .. } => *pid,
        }
    }
}
