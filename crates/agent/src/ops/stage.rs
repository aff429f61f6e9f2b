// SPDX-License-Identifier: MIT OR Apache-2.0
//! How far a page of a batch is, and what it has with it there. Pure.
//!
//! ```text
//! Waiting ─ Staged ─ Admitted ─ Placed ─ Out ─ In ─ Verifying ─ Ended
//! ```
//!
//! Each stage holds what a page has there and nothing else. A page goes on by value, and frames and slots
//! cannot be copied: each is with one page or has been given back. An end holds neither. Until a page is out it
//! can end at once ([`Agent::abort`](crate::state::agent::Agent::abort)); once it was, it ends by way of `In`.

use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_proto::Outcome;

use crate::ops::item::End;
use crate::state::pages::EntryId;

/// What is at the address that a page is moved in from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A copy made while the page was accessible: to be compared.
    Copied,
    /// A copy made while the page was out: equal for certain.
    Streamed,
    /// The page's shadow: to be compared.
    Shadow,
    /// A copy in a worker's buffer, from which nothing is moved.
    Buffer,
}

/// A copy of the page, or the place for one.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) addr: u64,
    pub(crate) kind: Kind,
}

/// An address of ours that a page can be moved out to.
#[derive(Debug)]
pub(crate) struct Slot(u64);

impl Source {
    /// Who takes the address answers for the frame.
    pub(crate) const fn give_away(self) -> u64 {
        self.addr
    }
}

impl Slot {
    pub(crate) const fn new(addr: u64) -> Self {
        Self(addr)
    }

    /// Who takes the address answers for the slot.
    pub(crate) const fn give_away(self) -> u64 {
        self.0
    }
}

/// What is in a slot that a page is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    Nothing,
    /// A page that nobody needs any more.
    Page,
    /// A huge page went page by page: at least a page table.
    Pieces,
    /// Something that nobody put there: the slot is lost.
    Unknown,
}

/// Under a transaction; the page is where it was.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) id: EntryId,
    pub(crate) source: Source,
}

/// As before, and with an empty slot.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) id: EntryId,
    source: Source,
    slot: Slot,
}

/// The page is in the slot, its address empty.
#[derive(Debug)]
pub(crate) struct Out {
    pub(crate) id: EntryId,
    pub(crate) source: Source,
    slot: Slot,
    /// It went as a whole.
    whole: bool,
    /// When it went, ns.
    since: u64,
}

/// The page is in again, or the program has given it back; who waits for it is to be woken.
#[derive(Debug)]
pub(crate) struct In {
    pub(crate) id: EntryId,
    pub(crate) since: u64,
    pub(crate) slot: Slot,
    pub(crate) left: Left,
    /// What was not moved in.
    pub(crate) unused: Option<Source>,
    /// How it ends, unless its shadow turns out stale.
    pub(crate) end: End,
}

/// In and protected again; its old page, in the slot, is to be its shadow.
#[derive(Debug)]
pub(crate) struct Verifying {
    pub(crate) id: EntryId,
    slot: Slot,
    /// How long it was inaccessible, ns.
    inaccessible: u64,
}

/// How far a page is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Nothing was done.
    #[default]
    Waiting,
    /// There is a frame for the copy.
    Staged(Source),
    Admitted(Admitted),
    Placed(Placed),
    Out(Out),
    In(In),
    Verifying(Verifying),
    Ended(End),
}

impl Admitted {
    pub(crate) fn place(self, slot: Slot) -> Placed {
        let Self { id, source } = self;
        Placed { id, source, slot }
    }
}

impl Placed {
    pub(crate) const fn slot(&self) -> u64 {
        self.slot.0
    }

    /// Takes the slot away.
    pub(crate) fn unplace(self) -> (Admitted, Slot) {
        let Self { id, source, slot } = self;
        (Admitted { id, source }, slot)
    }

    /// All of the page was moved out.
    pub(crate) fn out(self, since: u64, whole: bool) -> Out {
        let Self { id, source, slot } = self;
        Out {
            id,
            source,
            slot,
            whole,
            since,
        }
    }

    /// Part of a huge page was moved out, and is not out any more.
    pub(crate) fn out_in_part(self, since: u64, end: impl Into<End>) -> In {
        self.out(since, false).stays(end)
    }
}

impl Out {
    pub(crate) const fn slot(&self) -> u64 {
        self.slot.0
    }

    /// The copy was moved in, from what is returned; the old page stays in the slot.
    pub(crate) fn arrived(self) -> (In, Source) {
        let outcome = match self.source.kind {
            Kind::Shadow => Outcome::ShadowHit,
            Kind::Copied | Kind::Streamed | Kind::Buffer => Outcome::Done,
        };
        self.in_again(outcome.into())
    }

    /// What was in the slot was moved in, as a whole or not.
    pub(crate) fn back(self, whole: bool, end: impl Into<End>) -> In {
        let mut page = self.stays(end);
        if page.left == Left::Page {
            page.left = if whole { Left::Nothing } else { Left::Pieces };
        }
        page
    }

    /// What is in the slot stays there: the page is in by a copy of it, or given back.
    pub(crate) fn stays(self, end: impl Into<End>) -> In {
        let (mut page, source) = self.in_again(end.into());
        page.unused = Some(source);
        page
    }

    /// The page is in by a copy of what is in the slot, of a huge one perhaps a part of that itself.
    pub(crate) fn stays_in_part(self, size: PageSize, end: impl Into<End>) -> In {
        match size {
            PageSize::Base4K => self.stays(end),
            _ => self.back(false, end),
        }
    }

    fn in_again(self, end: End) -> (In, Source) {
        let page = In {
            id: self.id,
            since: self.since,
            slot: self.slot,
            left: if self.whole { Left::Page } else { Left::Pieces },
            unused: None,
            end,
        };
        (page, self.source)
    }

    /// Each slot holds the other's page now.
    pub(crate) const fn exchange(&mut self, other: &mut Self) {
        std::mem::swap(&mut self.slot, &mut other.slot);
        std::mem::swap(&mut self.whole, &mut other.whole);
    }
}

impl In {
    /// Whether the old page can be the shadow: the copy is in, and the slot holds all of the old page.
    pub(crate) fn can_keep_shadow(&self) -> bool {
        self.unused.is_none() && self.left == Left::Page && self.end.outcome == Outcome::Done
    }

    /// Protected again, and who waited woken.
    ///
    /// # Errors
    ///
    /// Itself, where there is no old page to compare it with.
    pub(crate) fn verify(self, inaccessible: u64) -> Result<Verifying, Self> {
        if !self.can_keep_shadow() {
            return Err(self);
        }
        Ok(Verifying {
            id: self.id,
            slot: self.slot,
            inaccessible,
        })
    }
}

impl Verifying {
    pub(crate) const fn slot(&self) -> u64 {
        self.slot.0
    }

    /// Ends, its transaction having ended; with the slot, in which the old page is.
    pub(crate) fn end(self, outcome: Outcome) -> (Stage, Slot) {
        let end = End {
            inaccessible: Nanos(self.inaccessible),
            ..outcome.into()
        };
        (Stage::Ended(end), self.slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::pages::Pages;

    const COPY: u64 = 0x7000;
    const SLOT: u64 = 0x9000;

    fn placed(kind: Kind, slot: u64) -> Placed {
        let id = Pages::default().begin(0x1000, PageSize::Base4K);
        let source = Source { addr: COPY, kind };
        let id = id.expect("free");
        Admitted { id, source }.place(Slot(slot))
    }

    /// What a page has with it: its slot, what is in that, the frame it did not use.
    fn has(page: &In) -> (u64, Left, Option<u64>) {
        let unused = page.unused.as_ref().map(|source| source.addr);
        (page.slot.0, page.left, unused)
    }

    #[test]
    fn who_does_not_move_has_frame_and_empty_slot_to_give_back() {
        let (admitted, slot) = placed(Kind::Copied, SLOT).unplace();
        assert_eq!((admitted.source.addr, slot.0), (COPY, SLOT));
    }

    #[test]
    fn who_arrives_leaves_the_old_page_in_the_slot() {
        let (page, from) = placed(Kind::Copied, SLOT).out(5, true).arrived();
        assert_eq!((has(&page), from.addr), ((SLOT, Left::Page, None), COPY));
        assert_eq!((page.end.outcome, page.since), (Outcome::Done, 5));
        let shadow = page.verify(7).expect("there is an old page");
        assert_eq!((shadow.slot.0, shadow.inaccessible), (SLOT, 7));
        // The old page of one that went onto its shadow is on the faster node: nobody's shadow.
        let (page, _) = placed(Kind::Shadow, SLOT).out(5, true).arrived();
        assert_eq!(page.end.outcome, Outcome::ShadowHit);
        assert!(page.verify(7).is_err());
    }

    #[test]
    fn who_goes_back_leaves_the_slot_empty_and_the_frame_unused() {
        let page = placed(Kind::Copied, SLOT)
            .out(5, true)
            .back(true, Outcome::Dirtied);
        assert_eq!(has(&page), (SLOT, Left::Nothing, Some(COPY)));
        let page = page.verify(7).expect_err("no old page");
        assert_eq!(has(&page), (SLOT, Left::Nothing, Some(COPY)));
    }

    #[test]
    fn who_is_in_by_a_copy_or_gone_leaves_everything_behind() {
        for why in [Outcome::Busy, Outcome::Dirtied, Outcome::Gone] {
            let page = placed(Kind::Copied, SLOT).out(5, true).stays(why);
            assert_eq!(has(&page), (SLOT, Left::Page, Some(COPY)));
            assert_eq!(page.end.outcome, why);
            assert!(page.verify(7).is_err());
        }
    }

    #[test]
    fn a_slot_once_in_pieces_stays_so() {
        let torn = || placed(Kind::Copied, SLOT).out(5, false);
        let (arrived, _) = torn().arrived();
        assert_eq!(arrived.left, Left::Pieces);
        assert!(!arrived.can_keep_shadow());
        assert_eq!(torn().back(true, Outcome::Dirtied).left, Left::Pieces);
        assert_eq!(torn().stays(Outcome::Gone).left, Left::Pieces);
        let whole = || placed(Kind::Copied, SLOT).out(5, true);
        for (size, left) in [
            (PageSize::Base4K, Left::Page),
            (PageSize::Huge2M, Left::Pieces),
        ] {
            let page = whole().stays_in_part(size, Outcome::Busy);
            assert_eq!(has(&page), (SLOT, left, Some(COPY)));
        }
        let whole = whole();
        assert_eq!(whole.back(false, Outcome::Dirtied).left, Left::Pieces);
        let part = placed(Kind::Copied, SLOT).out_in_part(5, Outcome::Busy);
        assert_eq!(has(&part), (SLOT, Left::Pieces, Some(COPY)));
    }

    #[test]
    fn an_exchange_leaves_each_with_the_slot_it_came_from() {
        let mut one = placed(Kind::Buffer, SLOT).out(5, true);
        let mut other = placed(Kind::Buffer, 2 * SLOT).out(6, false);
        one.exchange(&mut other);
        let (one, other) = (
            one.back(true, Outcome::Done),
            other.back(true, Outcome::Done),
        );
        assert_eq!((one.slot.0, one.left), (2 * SLOT, Left::Pieces));
        assert_eq!((other.slot.0, other.left), (SLOT, Left::Nothing));
    }
}
