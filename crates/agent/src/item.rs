// SPDX-License-Identifier: MIT OR Apache-2.0
//! One page of a batch, from the command to the report.

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_proto::Report;

use crate::pages::EntryId;

/// A page on its way to another node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) seq: u64,
    pub(crate) addr: u64,
    pub(crate) size: PageSize,
    pub(crate) node: NodeId,
    pub(crate) keep_shadow: bool,
    /// Onto its shadow or not at all.
    pub(crate) shadow_only: bool,
    /// The frame in `staged` is equal to the page for certain.
    pub(crate) certain: bool,
    /// The frame in `staged` is the page's shadow.
    pub(crate) onto_shadow: bool,
    /// Where the page is now.
    pub(crate) old_node: NodeId,
    /// Its transaction.
    pub(crate) id: Option<EntryId>,
    /// A frame on the target node that belongs to this item.
    pub(crate) staged: Option<u64>,
    /// A slot that belongs to this item: empty until the page is out.
    pub(crate) slot: Option<u64>,
    /// The page is in the slot.
    pub(crate) out: bool,
    /// A huge page that did not move as a whole: the slot needs renewal.
    pub(crate) torn: bool,
    /// When it went out, ns.
    pub(crate) since: u64,
    /// How long it was inaccessible, ns.
    pub(crate) inaccessible: u64,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) errno: u8,
}

impl Item {
    pub(crate) fn new(
        seq: u64,
        addr: u64,
        size: PageSize,
        node: NodeId,
        keep_shadow: bool,
    ) -> Self {
        let outcome = match size {
            PageSize::Giant1G => Some(Outcome::NotManaged),
            _ if !addr.is_multiple_of(size.bytes()) => Some(Outcome::NotManaged),
            _ => None,
        };
        Self {
            seq,
            addr,
            size,
            node,
            keep_shadow,
            shadow_only: false,
            certain: false,
            onto_shadow: false,
            old_node: node,
            id: None,
            staged: None,
            slot: None,
            out: false,
            torn: false,
            since: 0,
            inaccessible: 0,
            outcome,
            errno: 0,
        }
    }

    /// Still to be done.
    pub(crate) const fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    pub(crate) const fn end(&self) -> u64 {
        self.addr + self.size.bytes()
    }

    /// Ends with what the kernel said and nobody foresaw.
    pub(crate) fn fail(&mut self, errno: Errno) {
        self.outcome = Some(Outcome::Failed);
        self.errno = u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX);
    }

    pub(crate) fn report(&self) -> Report {
        Report::Ended {
            seq: self.seq,
            outcome: self.outcome.unwrap_or(Outcome::Failed),
            addr: Addr(self.addr),
            value: self.inaccessible,
            errno: self.errno,
        }
    }
}

/// Items in order of address, cut where the next page is not the neighbour of the one before.
pub(crate) fn neighbours(items: &mut [Item]) -> impl Iterator<Item = &mut [Item]> {
    items.chunk_by_mut(|one, next| one.end() == next.addr && one.node == next.node)
}
