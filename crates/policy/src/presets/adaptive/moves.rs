// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan carried out: to the best side where there is room, to the next where there is none.
//!
//! Every page is checked again when its order is given, so that it is in one order at most and goes
//! where it is not. What fails stays where it is and is planned again after the next pass.

use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Pid;

use super::Adaptive;
use super::Process;
use super::chunk::Key;
use super::chunk::page_of;
use super::classes::class_of;
use super::decide::SIZES;
use super::places::Place;
use super::plan::Plan;
use super::queue::Order;
use super::queue::Queue;
use super::under_way::UnderWay;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;

/// What is planned, and what is under way.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) plan: Plan,
    under_way: UnderWay,
    most: usize,
}

/// Where a page goes from, where to, and where it first was.
#[derive(Debug, Clone, Copy)]
struct Way {
    from: Place,
    to: Place,
    home: Place,
}

impl Moves {
    pub(super) fn new(most: usize) -> Self {
        Self {
            plan: Plan::default(),
            under_way: UnderWay::default(),
            most,
        }
    }

    pub(super) fn under_way(&self) -> u64 {
        self.under_way.len() as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.plan.bytes() + self.under_way.bytes()) as u64
    }

    /// Whether it is planned to move, or on its way.
    pub(super) fn has(&self, page: PageRef) -> bool {
        self.under_way.touches(page) || self.plan.has(page)
    }
}

impl Adaptive {
    /// The next order that can be given now: to the best side first.
    pub(super) fn next_move(&mut self) -> Option<Action> {
        if !self.memory.is_known() {
            return None;
        }
        if self.moves.under_way.len() >= self.moves.most {
            return None;
        }
        (0..self.moves.plan.0.len()).find_map(|side| self.next_to(side))
    }

    /// The next order to a side. Who finds no room there waits for what makes it, and who makes room goes farther down.
    fn next_to(&mut self, side: usize) -> Option<Action> {
        while let Some(Order { page, from }) = self.moves.plan.0[side].front() {
            let bytes = page.size.bytes();
            let lies = self.chunks.lies(page);
            let home = lies.and_then(|(place, home)| (place == from).then_some(home));
            let free = home.filter(|_| !self.moves.under_way.touches(page));
            let Some((on, home)) = self.sides.of(from).zip(free) else {
                self.moves.plan.0[side].pop_front();
                continue;
            };
            let node = self.node_with_room(side, bytes).or_else(|| {
                let below = self.below_with_room(on, bytes).filter(|_| on < side)?;
                self.node_with_room(below, bytes)
            });
            if let Some(to) = node {
                let way = Way {
                    from,
                    to: self.places.of(to),
                    home,
                };
                let Some(up) = self.pays(page, way, side) else {
                    // Nor is room made for its pages any more.
                    self.moves.plan.drop_of(page.pid);
                    continue;
                };
                self.moves.plan.0[side].pop_front();
                return Some(self.order(page, (from, to), up));
            }
            if on < side {
                self.moves.plan.0[side].clear();
            }
            return None;
        }
        None
    }

    /// What a process may owe once, ns: what it takes to move each of its pages.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn once(&self, pid: Pid) -> f64 {
        let sizes = self.chunks.census().get(&pid).map(|census| census.1);
        let sizes = sizes.unwrap_or_default().into_iter().zip(SIZES);
        let pages = sizes.map(|(pages, size)| (pages as f64 / size.base_pages() as f64, size));
        pages.map(|(pages, size)| pages * self.costs.of(size)).sum()
    }

    /// Whether a page that moves so goes up; nothing where its process has not earned that. It is charged for it: who gives way does
    /// not pay, and who goes where it first was may always.
    fn pays(&mut self, page: PageRef, way: Way, side: usize) -> Option<bool> {
        let goes_up = |process: &Process| process.saved_ns(way.from, way.to) > 0.0;
        if !self.processes.get(&page.pid).is_some_and(goes_up) {
            return Some(false);
        }
        let room = self.spare(side) >= i128::from(page.size.bytes());
        let takes = self.costs.of(page.size) * if room { 1.0 } else { 2.0 };
        let free = way.home == way.to || !self.has_ledger(page.pid);
        let once = self.once(page.pid);
        let ledger = &mut self.processes.get_mut(&page.pid)?.ledger;
        (free || takes <= ledger.may(once)).then(|| {
            ledger.spend(takes);
            true
        })
    }

    fn order(&mut self, page: PageRef, (from, to): (Place, NodeId), up: bool) -> Action {
        let source = self.places.only_node(from);
        self.memory.ordered(source, to, page.size.bytes());
        self.moves.under_way.begin(page, (source, to));
        let keep_shadow = false;
        let migration = if up {
            Migration::Promote { to, keep_shadow }
        } else {
            Migration::Demote { to }
        };
        Action::Migrate {
            page,
            migration,
            mechanism: None,
            reason: Reason::Pays,
        }
    }

    /// An order has ended.
    pub(super) fn end_move(&mut self, page: PageRef, verdict: Verdict) {
        let Some((from, to)) = self.moves.under_way.end(page) else {
            return;
        };
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.memory
            .ended((from, to), page.size.bytes(), moved, moved);
        match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => {
                self.chunks.moved(page, self.places.of(to));
            }
            Verdict::Lost => self.chunks.lost(page),
            Verdict::Dirtied | Verdict::Busy | Verdict::NoMemory => {}
        }
    }

    /// Pages that were seen within a pass go to the fastest side at once while there is room: the sooner seen, the
    /// sooner they are asked for.
    pub(super) fn promote_early(&mut self, key: Key, pages: PageBits) {
        let Some((process, chunk)) = self.processes.get(&key.0).zip(self.chunks.get(key)) else {
            return;
        };
        let fastest =
            (0..self.sides.len()).find(|side| process.is_fastest(self.sides.places(*side)[0]));
        let Some(side) = fastest else {
            return;
        };
        let plan = &mut self.moves.plan.0;
        if plan.len() <= side {
            plan.resize_with(side + 1, Queue::default);
        }
        let knows = self.memory.is_known() && !self.balance.is_loaded();
        // How much of it is fast a plan says.
        let share = self.shares.get(&key.0).copied().unwrap_or_default();
        let knows = knows && share.ceiling_bytes.is_none();
        if plan[side].len() >= self.params.inflight_pages || !knows {
            return;
        }
        let queued = plan[side].queued();
        let mut room = self.spare(side) - i128::from(queued);
        let size = chunk.size();
        let cost = self.costs.of(size);
        let bytes = i128::from(size.bytes());
        for page in pages.pages() {
            if room < bytes {
                break;
            }
            let from = chunk.spread.get(page);
            let saved = process.saved_ns(from, self.sides.places(side)[0]);
            if process.values[class_of(chunk.levels[page])] * saved > cost {
                room -= bytes;
                let page = page_of(key, page, size);
                self.moves.plan.0[side].push(Order { page, from });
                self.counters.early += 1;
            }
        }
    }
}
