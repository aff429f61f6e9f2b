// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan carried out: promotions where there is room, a demotion where there is none.
//!
//! Every page is checked again when its order is given, so that it is in one order at most and goes
//! where it is not. What fails stays where it is and is planned again after the next pass.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Adaptive;
use super::chunks::Key;
use super::chunks::page_of;
use super::classes::class_of;
use super::select::Plan;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;

/// What is planned, and what is under way.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) plan: Plan,
    under_way: BTreeMap<PageRef, NodeId>,
    most: usize,
}

impl Moves {
    pub(super) fn new(most: usize) -> Self {
        Self {
            plan: Plan::default(),
            under_way: BTreeMap::new(),
            most,
        }
    }

    pub(super) fn under_way(&self) -> u64 {
        self.under_way.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        let lists = self.plan.up.capacity() + self.plan.down.capacity();
        ((lists + self.under_way.len()) * size_of::<PageRef>()) as u64
    }

    /// Whether it is planned to move, or on its way.
    pub(super) fn has(&self, page: PageRef) -> bool {
        let plan = &self.plan;
        self.busy(page) || plan.up.contains(&page) || plan.down.contains(&page)
    }

    /// Whether an order is under way that has to do with the page's addresses.
    fn busy(&self, page: PageRef) -> bool {
        let chunk = page.addr.align_down(PageSize::Huge2M);
        let named = |addr, size| PageRef {
            pid: page.pid,
            addr,
            size,
        };
        if page.size == PageSize::Base4K {
            return self.under_way.contains_key(&page)
                || self.under_way.contains_key(&named(chunk, PageSize::Huge2M));
        }
        let first = named(chunk, PageSize::Base4K);
        let last = named(Addr(chunk.0 + CHUNK_BYTES - 1), PageSize::Giant1G);
        self.under_way.range(first..=last).next().is_some()
    }
}

impl Adaptive {
    /// The next order that can be given now.
    pub(super) fn next_move(&mut self) -> Option<Action> {
        if !self.memory.is_known() {
            return None;
        }
        while self.moves.under_way.len() < self.moves.most {
            let up = self.next_up();
            if up.is_some() {
                return up;
            }
            let page = self.moves.plan.down.pop_front()?;
            if self.moves.busy(page) || !self.chunks.is(page, true) {
                continue;
            }
            let Some(to) = self.slow_for(page.size.bytes()) else {
                self.moves.plan.down.clear();
                return None;
            };
            return Some(self.order(page, Migration::Demote { to }));
        }
        None
    }

    fn next_up(&mut self) -> Option<Action> {
        while let Some(&page) = self.moves.plan.up.front() {
            if self.moves.busy(page) || !self.chunks.is(page, false) {
                self.moves.plan.up.pop_front();
                continue;
            }
            let to = self.fast_for(page.size.bytes())?;
            self.moves.plan.up.pop_front();
            let keep_shadow = false;
            return Some(self.order(page, Migration::Promote { to, keep_shadow }));
        }
        None
    }

    fn order(&mut self, page: PageRef, migration: Migration) -> Action {
        self.memory
            .ordered(None, migration.target(), page.size.bytes());
        self.moves.under_way.insert(page, migration.target());
        Action::Migrate {
            page,
            migration,
            mechanism: None,
            reason: Reason::Pays,
        }
    }

    /// An order has ended.
    pub(super) fn end_move(&mut self, page: PageRef, migration: Migration, verdict: Verdict) {
        let Some(to) = self.moves.under_way.remove(&page) else {
            return;
        };
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.memory
            .ended((None, to), page.size.bytes(), moved, moved);
        let up = matches!(migration, Migration::Promote { .. });
        match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => self.chunks.moved(page, up),
            Verdict::Lost => self.chunks.lost(page),
            Verdict::Dirtied | Verdict::Busy | Verdict::NoMemory => {}
        }
    }

    /// Pages that were seen within a pass go up at once while there is room: the sooner seen, the
    /// sooner they are asked for.
    pub(super) fn promote_early(&mut self, key: Key, pages: PageBits) {
        let queued = self.moves.plan.up.iter().map(|page| page.size.bytes());
        let queued: u64 = if self.moves.plan.up.len() < self.params.inflight_pages {
            queued.sum()
        } else {
            return;
        };
        let mut room = self.spare() - i128::from(queued);
        if room <= 0 || !self.memory.is_known() {
            return;
        }
        let Some(process) = self.processes.get(&key.0) else {
            return;
        };
        let Some(chunk) = self.chunks.get(key) else {
            return;
        };
        let size = chunk.size();
        let cost = self.costs.of(size);
        let bytes = i128::from(size.bytes());
        for page in pages.pages() {
            if room < bytes {
                break;
            }
            if process.values[class_of(chunk.levels[page])] > cost {
                room -= bytes;
                self.moves.plan.up.push_back(page_of(key, page, size));
                self.counters.early += 1;
            }
        }
    }
}
