// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders and their ends.

use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Autotiering;
use super::known::Known;
use super::reserve::Reserve;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::kit::free_memory::HIGH;
use crate::kit::pages::Chunk;
use crate::kit::pages::split;

/// What is to follow when a page has gone: another takes its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) page: PageRef,
    pub(super) from: NodeId,
    pub(super) to: NodeId,
}

/// A migration under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) from: NodeId,
    pub(super) then: Option<Next>,
    /// It has a reserved page of its target.
    pub(super) reserved: bool,
    /// So many pages of that size come into reserve by it.
    pub(super) refills: Option<(PageSize, u32)>,
}

impl Flight {
    /// From that node, and that is all.
    pub(super) const fn from(from: NodeId) -> Self {
        Self {
            from,
            then: None,
            reserved: false,
            refills: None,
        }
    }
}

impl Autotiering {
    /// Bytes that a node has free, what is in reserve apart.
    pub(super) fn room(&self, node: NodeId) -> u64 {
        let at = self.upper.iter().position(|id| *id == node);
        let reserved = at.map_or(0, |at| self.reserves[at].bytes());
        self.memory.room(node, HIGH).saturating_sub(reserved)
    }

    /// A node's reserve.
    pub(super) fn reserve(&mut self, node: NodeId) -> &mut Reserve {
        let at = self.upper.iter().position(|id| *id == node);
        // Only nodes with a lower tier have victims, and so a reserve.
        &mut self.reserves[at.unwrap_or(0)]
    }

    /// Whether two pages can change places at once. Of different processes they can until it turned out that they
    /// cannot.
    pub(super) fn can_exchange(&self, one: PageRef, other: PageRef) -> bool {
        let alike = one.size == other.size && (one.pid == other.pid || self.across);
        self.exchanges && alike
    }

    pub(super) fn promote(&mut self, page: PageRef, from: NodeId, to: NodeId, flight: Flight) {
        debug_assert_ne!(from, to);
        let migration = Migration::Promote {
            to,
            keep_shadow: false,
        };
        self.order(page, flight, migration, Reason::HintFault);
    }

    pub(super) fn exchange(&mut self, page: PageRef, from: NodeId, to: NodeId, with: PageRef) {
        self.mark_flying(with);
        let migration = Migration::Exchange { to, with };
        self.order(page, Flight::from(from), migration, Reason::HintFault);
    }

    /// The page is in no list until its migration has ended.
    pub(super) fn mark_flying(&mut self, page: PageRef) {
        self.flying.insert(page);
        if let Some((key, chunk, index)) = self.pages.find(page) {
            chunk.flying.set(index);
            self.relist(key);
        }
    }

    pub(super) fn order(
        &mut self,
        page: PageRef,
        flight: Flight,
        migration: Migration,
        reason: Reason,
    ) {
        self.mark_flying(page);
        if !matches!(migration, Migration::Exchange { .. }) {
            let bytes = page.size.bytes();
            self.memory.ordered(flight.from, migration.target(), bytes);
        }
        self.inflight.insert(page, flight);
        self.actions.push_back(Action::Migrate {
            page,
            migration,
            mechanism: None,
            reason,
        });
        self.hurry();
    }

    /// A migration ended.
    pub(super) fn ended(&mut self, page: PageRef, migration: Migration, verdict: Verdict) {
        let Some(flight) = self.inflight.remove(&page) else {
            return;
        };
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        let to = migration.target();
        if let Migration::Exchange { with, .. } = migration {
            self.land(with, moved.then_some(flight.from));
            self.across &= moved || page.pid == with.pid;
        } else {
            let ways = (flight.from, to);
            self.memory.ended(ways, page.size.bytes(), moved, moved);
            self.account(page.size, &flight, to, verdict);
        }
        if verdict == Verdict::Lost {
            let (key, index) = split(page);
            let one = terrace_core::PageBits::one(index);
            self.flying.remove(&page);
            self.forget(key, &one);
        } else {
            self.land(page, moved.then_some(to));
        }
        let Some(next) = flight.then else { return };
        // It may have gone meanwhile.
        let found = self.pages.find(next.page);
        let waits = found.is_some_and(|(_, chunk, index)| chunk.node(index) == Some(next.from));
        if moved && waits {
            self.promote(next.page, next.from, next.to, Flight::from(next.from));
        } else {
            self.land(next.page, None);
        }
    }

    /// What a migration's end means to the reserves and to what is free.
    fn account(&mut self, size: PageSize, flight: &Flight, to: NodeId, verdict: Verdict) {
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        if let Some((size, pages)) = flight.refills {
            self.reserve(flight.from).left(size, pages, moved);
        }
        if verdict == Verdict::NoMemory {
            self.memory.mark_full(to);
        }
        if flight.reserved && verdict == Verdict::NoMemory {
            self.reserve(to).lost(size);
        } else if flight.reserved && !moved {
            self.reserve(to).put_back(size);
        }
    }

    /// A page is not in a migration any more; it is on that node now, or where it was.
    fn land(&mut self, page: PageRef, on: Option<NodeId>) {
        self.flying.remove(&page);
        let (key, index) = split(page);
        let same = |chunk: &&mut Chunk<Known>| chunk.size() == page.size;
        let Some(chunk) = self.pages.get_mut(key).filter(same) else {
            return;
        };
        chunk.flying.clear(index);
        // Of what was unmapped meanwhile nothing is known.
        if let Some(node) = on.filter(|_| chunk.node(index).is_some()) {
            chunk.place(index, node);
        }
        self.relist(key);
    }
}
