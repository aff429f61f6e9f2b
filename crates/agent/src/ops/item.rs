// SPDX-License-Identifier: MIT OR Apache-2.0
//! One page of a batch, from the command to the report: what is asked, and how far it is.

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_proto::Outcome;
use terrace_proto::Report;

use crate::ops::stage::Slot;
use crate::ops::stage::Stage;
use crate::state::pages::EntryId;

/// What is asked about shadows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Nothing.
    Move,
    /// The old page is to stay as the shadow.
    KeepShadow,
    /// Onto its shadow or not at all.
    OntoShadow,
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    pub(crate) seq: u64,
    pub(crate) addr: u64,
    pub(crate) size: PageSize,
    pub(crate) node: NodeId,
    pub(crate) wish: Wish,
}

impl Order {
    pub(crate) const fn bytes(&self) -> u64 {
        self.size.bytes()
    }

    pub(crate) const fn end(&self) -> u64 {
        self.addr + self.size.bytes()
    }
}

/// How an order ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) outcome: Outcome,
    pub(crate) errno: u8,
    /// How long the page was inaccessible.
    pub(crate) inaccessible: Nanos,
}

impl From<Outcome> for End {
    fn from(outcome: Outcome) -> Self {
        Self {
            outcome,
            errno: 0,
            inaccessible: Nanos::ZERO,
        }
    }
}

impl From<Errno> for End {
    /// What the kernel said and nobody foresaw.
    fn from(errno: Errno) -> Self {
        Self {
            errno: u8::try_from(errno.raw_os_error()).unwrap_or(u8::MAX),
            ..Outcome::Failed.into()
        }
    }
}

impl End {
    pub(crate) const fn report(self, seq: u64, addr: u64) -> Report {
        Report::Ended {
            seq,
            outcome: self.outcome,
            addr: Addr(addr),
            inaccessible: self.inaccessible,
            errno: self.errno,
        }
    }
}

/// A page on its way to another node.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) order: Order,
    /// The node that the page was on when it was looked at.
    pub(crate) from: NodeId,
    pub(crate) stage: Stage,
}

impl Item {
    pub(crate) fn new(order: Order) -> Self {
        let fits = order.size != PageSize::Giant1G && order.addr.is_multiple_of(order.bytes());
        let stage = if fits {
            Stage::Waiting
        } else {
            Stage::Ended(Outcome::NotManaged.into())
        };
        Self {
            order,
            from: order.node,
            stage,
        }
    }

    /// Still to be done.
    pub(crate) const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Waiting)
    }

    /// Goes on to where `next` says, by value.
    pub(crate) fn step(&mut self, next: impl FnOnce(Stage) -> Stage) {
        self.stage = next(std::mem::take(&mut self.stage));
    }

    /// Gets a slot.
    pub(crate) fn place(&mut self, slot: Slot) {
        self.step(|stage| match stage {
            Stage::Admitted(page) => Stage::Placed(page.place(slot)),
            other => other,
        });
    }

    /// All of the page was moved out.
    pub(crate) fn go_out(&mut self, since: u64, whole: bool) {
        self.step(|stage| match stage {
            Stage::Placed(page) => Stage::Out(page.out(since, whole)),
            other => other,
        });
    }

    /// Part of a huge page was moved out, and is not out any more.
    pub(crate) fn go_out_in_part(&mut self, since: u64, end: End) {
        self.step(|stage| match stage {
            Stage::Placed(page) => Stage::In(page.out_in_part(since, end)),
            other => other,
        });
    }

    /// Ends an order that has nothing to give back yet; others end by the steps of a transaction.
    pub(crate) fn end(&mut self, end: impl Into<End>) {
        if self.is_open() {
            self.stage = Stage::Ended(end.into());
        }
    }

    /// The transaction of a page that is where it was.
    pub(crate) const fn waits_in(&self) -> Option<EntryId> {
        match &self.stage {
            Stage::Admitted(page) => Some(page.id),
            Stage::Placed(page) => Some(page.id),
            _ => None,
        }
    }

    pub(crate) const fn ended(&self) -> Option<End> {
        match self.stage {
            Stage::Ended(end) => Some(end),
            _ => None,
        }
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.ended().map(|end| end.outcome)
    }

    pub(crate) fn report(&self) -> Report {
        let end = self.ended().unwrap_or_else(|| Outcome::Failed.into());
        end.report(self.order.seq, self.order.addr)
    }
}

/// Items in order of address, cut where the next page is not the neighbour of the one before.
pub(crate) fn neighbours(items: &mut [Item]) -> impl Iterator<Item = &mut [Item]> {
    items.chunk_by_mut(|one, next| {
        one.order.end() == next.order.addr && one.order.node == next.order.node
    })
}

/// Items whose pages are under a transaction and not out yet, neighbours together.
pub(crate) fn waiting_runs(items: &mut [Item]) -> impl Iterator<Item = &mut [Item]> {
    let waits = |item: &Item| item.waits_in().is_some();
    let runs = items.chunk_by_mut(move |one, next| {
        waits(one) && waits(next) && one.order.end() == next.order.addr
    });
    runs.filter(move |run| waits(&run[0]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::stage::Kind;
    use crate::ops::stage::Source;

    fn item(addr: u64, size: PageSize) -> Item {
        Item::new(Order {
            seq: 1,
            addr,
            size,
            node: NodeId(0),
            wish: Wish::Move,
        })
    }

    #[test]
    fn what_cannot_be_a_page_ends_at_once() {
        assert!(item(0x1000, PageSize::Base4K).is_open());
        for wrong in [
            item(0x1001, PageSize::Base4K),
            item(0x1000, PageSize::Huge2M),
            item(0, PageSize::Giant1G),
        ] {
            assert_eq!(wrong.outcome(), Some(Outcome::NotManaged));
        }
    }

    #[test]
    fn who_has_a_frame_does_not_end_without_giving_it_back() {
        let mut item = item(0x1000, PageSize::Base4K);
        let (addr, kind) = (0x7000, Kind::Copied);
        item.stage = Stage::Staged(Source { addr, kind });
        item.end(Outcome::Done);
        assert!(matches!(item.stage, Stage::Staged(_)));
    }

    #[test]
    fn the_first_end_is_the_one_reported() {
        let mut item = item(0x1000, PageSize::Base4K);
        item.end(Errno::INVAL);
        item.end(Outcome::Done);
        let Report::Ended { outcome, errno, .. } = item.report() else {
            panic!("a report of an end");
        };
        assert_eq!((outcome, errno), (Outcome::Failed, 22));
    }
}
