// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan carried out: to the best side where there is room, to the next where there is none.
//!
//! Every page is checked again when its order is given, so that it is in one order at most and goes
//! where it is not. What fails stays where it is and is planned again after some passes ([`super::stays`]).

use std::collections::VecDeque;

use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::Adaptive;
use super::decide::SIZES;
use super::places::Place;
use super::plan::Plan;
use super::queue::Run;
use super::stays::Stays;
use super::under_way::UnderWay;
use crate::event::Action;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
use crate::kit::free_memory::HIGH;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::pages::split;

/// What is planned, and what is under way.
#[derive(Debug)]
pub(super) struct Moves {
    pub(super) plan: Plan,
    pub(super) stays: Stays,
    under_way: UnderWay,
    most: usize,
    /// Under way, and not given yet.
    ready: VecDeque<Action>,
    /// Told of, and still under way.
    ended: Option<Ended>,
}

/// Orders for pages of a chunk that ended alike.
#[derive(Debug)]
struct Ended {
    of: (Key, PageSize),
    what: What,
    pages: PageBits,
}

/// What came of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Moved,
    Stays,
    NoRoom,
    Gone,
}

impl What {
    const fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Moved { .. } | Verdict::MovedOntoShadow => Self::Moved,
            Verdict::Dirtied | Verdict::Busy => Self::Stays,
            Verdict::NoMemory => Self::NoRoom,
            Verdict::Lost => Self::Gone,
        }
    }
}

impl Moves {
    pub(super) fn new(most: usize) -> Self {
        Self {
            plan: Plan::default(),
            stays: Stays::default(),
            under_way: UnderWay::default(),
            most,
            ready: VecDeque::new(),
            ended: None,
        }
    }

    pub(super) fn under_way(&self) -> u64 {
        let ended = self.ended.as_ref().map_or(0, |ended| ended.pages.count());
        (self.under_way.len() as u64).saturating_sub(u64::from(ended))
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.plan.bytes() + self.stays.bytes() + self.under_way.bytes()) as u64
    }

    /// Whether it is planned to move, or on its way.
    pub(super) fn has(&self, page: PageRef) -> bool {
        let (key, index) = split(page);
        let ended = self
            .ended
            .as_ref()
            .filter(|ended| ended.of == (key, page.size));
        let ended = ended.is_some_and(|ended| ended.pages.get(index));
        let touched = self.under_way.touched(key, page.size).get(index);
        (touched && !ended) || self.plan.has(page)
    }
}

impl Adaptive {
    /// The next order that can be given now.
    pub(super) fn next_move(&mut self) -> Option<Action> {
        if self.moves.ready.is_empty() && self.memory.is_known() {
            let sides = 0..self.moves.plan.0.len();
            sides.take_while(|side| !self.orders_to(*side)).count();
        }
        self.moves.ready.pop_front()
    }

    /// Orders pages of a chunk to a side, where some can go now. Who finds no room there waits for what makes it, and who makes room
    /// goes farther down.
    fn orders_to(&mut self, side: usize) -> bool {
        while let Some(run) = self.moves.plan.0[side].front() {
            let most = self.moves.most.saturating_sub(self.moves.under_way.len());
            if most == 0 {
                return false;
            }
            let pages = self.movable(&run);
            self.moves.plan.0[side].leave(&pages);
            if pages.is_empty() {
                continue;
            }
            let Some(on) = self.sides.of(run.from) else {
                self.moves.plan.0[side].leave(&PageBits::NONE);
                continue;
            };
            let bytes = run.size.bytes();
            let node = self.node_with_room(side, bytes).or_else(|| {
                let below = self.below_with_room(on, bytes).filter(|_| on < side)?;
                self.node_with_room(below, bytes)
            });
            if let Some(to) = node {
                let fit = usize::try_from(self.memory.room(to, HIGH) / bytes).unwrap_or(most);
                let run = Run { pages, ..run };
                if self.order(&run, (side, to), fit.min(most)) {
                    return true;
                }
                continue;
            }
            if on < side {
                self.moves.plan.0[side].clear();
            }
            return false;
        }
        false
    }

    /// Pages of a run that are still there, in no order, and not to be left alone for now.
    fn movable(&self, run: &Run) -> PageBits {
        let chunk = self.chunks.get(run.key);
        let there = chunk.filter(|chunk| chunk.size() == run.size);
        let there = there.map_or(PageBits::NONE, |chunk| chunk.at(run.from));
        let touched = self.moves.under_way.touched(run.key, run.size);
        let waiting = self
            .moves
            .stays
            .waiting((run.key, run.size), &self.processes);
        run.pages.and(&there).without(&touched).without(&waiting)
    }

    /// Orders the first so many of these pages, as far as their process can pay for them; what it cannot pay for, and all of its that is
    /// planned, does not go. Whether any does.
    fn order(&mut self, run: &Run, (side, to): (usize, NodeId), most: usize) -> bool {
        let (pid, bytes) = (run.key.0, run.size.bytes());
        let place = self.places.of(to);
        let of = self.processes.get(&pid).zip(self.chunks.get(run.key));
        let sight = of.map(|(process, chunk)| process.sight_of(chunk));
        let up = sight.is_some_and(|sight| sight.saved_ns(run.from, place) > 0.0);
        let (going, paid) = if up {
            self.pays(run, (side, place), most)
        } else {
            (first(&run.pages, most), true)
        };
        let left = run.pages.without(&going);
        self.moves.plan.0[side].leave(&left);
        if !paid {
            // Nor is room made for its pages any more.
            self.moves.plan.drop_of(pid);
        }
        if going.is_empty() {
            return false;
        }
        let source = self.places.only_node(run.from);
        let count = u64::from(going.count());
        self.memory.ordered(source, to, count * bytes);
        let of = (run.key, run.size);
        self.moves.under_way.begin(of, &going, (source, to));
        let keep_shadow = false;
        let migration = if up {
            Migration::Promote { to, keep_shadow }
        } else {
            Migration::Demote { to }
        };
        let orders = going.pages().map(|page| Action::Migrate {
            page: page_of(run.key, page, run.size),
            migration,
            mechanism: None,
            reason: Reason::Pays,
        });
        self.moves.ready.extend(orders);
        true
    }

    /// What a process may owe once, ns: what it takes to move each of its pages.
    pub(super) fn once(&self, pid: Pid) -> f64 {
        let pages = self.chunks.pages_of(pid).into_iter().zip(SIZES);
        pages.map(|(pages, size)| pages * self.costs.of(size)).sum()
    }

    /// The first so many of these pages, which go up, as far as their process has earned that; whether it has for all of them. It is
    /// charged: who gives way does not pay, and who goes where it first was may always.
    fn pays(&mut self, run: &Run, (side, to): (usize, Place), most: usize) -> (PageBits, bool) {
        let pid = run.key.0;
        let bytes = i128::from(run.size.bytes());
        let cost = self.costs.of(run.size);
        let comes = self.sides.of(to) == Some(side);
        let (mut spare, once) = (self.spare(side), self.once(pid));
        let has_ledger = self.has_ledger(pid);
        let mut going = PageBits::NONE;
        let (chunk, process) = (self.chunks.get(run.key), self.processes.get_mut(&pid));
        let Some((chunk, process)) = chunk.zip(process) else {
            return (going, true);
        };
        let home = chunk.home().unwrap_or(&chunk.spread);
        for page in run.pages.pages().take(most) {
            let takes = if spare >= bytes { cost } else { 2.0 * cost };
            let free = !has_ledger || home.get(page) == to;
            if !free && takes > process.ledger.may(once) {
                return (going, false);
            }
            process.ledger.spend(takes);
            if comes {
                spare -= bytes;
            }
            going.set(page);
        }
        (going, true)
    }

    /// An order has ended: kept until one of another chunk has, or something else comes.
    pub(super) fn end_move(&mut self, page: PageRef, verdict: Verdict) {
        let (key, index) = split(page);
        let (of, what) = ((key, page.size), What::of(verdict));
        let alike = |ended: &&mut Ended| (ended.of, ended.what) == (of, what);
        if let Some(ended) = self.moves.ended.as_mut().filter(alike) {
            ended.pages.set(index);
            return;
        }
        self.take_ends();
        let pages = PageBits::one(index);
        self.moves.ended = Some(Ended { of, what, pages });
    }

    /// Takes in what has ended.
    pub(super) fn take_ends(&mut self) {
        let Some(Ended { of, what, pages }) = self.moves.ended.take() else {
            return;
        };
        let moved = what == What::Moved;
        for ((from, to), pages) in self.moves.under_way.end(of, &pages) {
            let bytes = u64::from(pages.count()) * of.1.bytes();
            self.memory.ended((from, to), bytes, moved, moved);
            match what {
                What::Moved => {
                    self.chunks.moved(of, &pages, self.places.of(to));
                    self.moves.stays.forget(of, &pages);
                }
                What::Gone => {
                    self.moves.stays.forget(of, &pages);
                    let pages = pages.pages().map(|page| page_of(of.0, page, of.1));
                    pages.for_each(|page| self.chunks.lost(page));
                }
                What::NoRoom => self.memory.mark_full(to),
                What::Stays => {
                    if let Some(process) = self.processes.get(&of.0.0) {
                        self.moves.stays.refused(of, &pages, process.pass);
                    }
                }
            }
        }
    }
}

/// The first so many of these pages.
fn first(pages: &PageBits, most: usize) -> PageBits {
    let mut first = PageBits::NONE;
    pages.pages().take(most).for_each(|page| first.set(page));
    first
}
