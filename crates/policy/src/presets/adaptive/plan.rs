// SPDX-License-Identifier: MIT OR Apache-2.0
//! A plan: for each pair of sides what changes places, and the pages of it.
//!
//! A page is in one order at most: what one pair takes the next has no more. So the pair between which an access saves most comes
//! first, and a page goes straight to the best side that pays.

use terrace_core::PageRef;
use terrace_core::Pid;

use super::Adaptive;
use super::balance::Balance;
use super::chunks::Counts;
use super::classes::CLASSES;
use super::explain;
use super::limits::Limits;
use super::moves::Moves;
use super::places::Place;
use super::queue::Queue;
use super::select;
use super::select::Bounds;
use super::select::Group;
use super::select::Quotas;
use super::sides::Pair;
use super::take;
use super::whole_ns;
use super::worth::GROUPS;
use super::worth::Worth;
use crate::belief::PlanBelief;

/// What goes where: by the side that it goes to.
#[derive(Debug, Default)]
pub(super) struct Plan(pub(super) Vec<Queue>);

impl Plan {
    pub(super) fn has(&self, page: PageRef) -> bool {
        self.0.iter().any(|queue| queue.has(page))
    }

    /// Drops the orders of a process.
    pub(super) fn drop_of(&mut self, pid: Pid) {
        self.0.iter_mut().for_each(|queue| queue.drop_of(pid));
    }

    /// Bytes that this takes.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(Queue::bytes).sum()
    }
}

/// What all quotas of a plan come to.
#[derive(Debug, Default)]
pub(super) struct Sums {
    /// What the pages save from then on, ns a second, and what the moves take, ns.
    pub(super) saves: f64,
    pub(super) spends: f64,
    gain: f64,
    swapped: u64,
}

/// What is left of each side to be planned, and what was taken of it.
struct Taking {
    /// Base pages by side; by part of a process, size and class.
    left: Vec<Vec<u64>>,
    /// Base pages that fit, by side.
    room: Vec<u64>,
    /// How many more may come up.
    most: u64,
    /// By the side that they go to and then as `left`.
    taken: Vec<Vec<Vec<u64>>>,
}

impl Taking {
    fn take(&mut self, pair: Pair, quotas: &Quotas) {
        let ways = [
            (pair.from, pair.to, &quotas.up),
            (pair.to, pair.from, &quotas.down),
        ];
        for (from, to, quotas) in ways {
            let taken = &mut self.taken[to][from];
            for ((left, taken), pages) in self.left[from].iter_mut().zip(taken).zip(quotas) {
                *left -= pages;
                *taken += pages;
            }
        }
        let (up, down) = (sum(&quotas.up), sum(&quotas.down));
        self.room[pair.to] = self.room[pair.to].saturating_sub(up - quotas.swapped);
        self.room[pair.from] = self.room[pair.from].saturating_sub(down - quotas.swapped);
        self.most -= up;
    }
}

fn sum(pages: &[u64]) -> u64 {
    pages.iter().sum()
}

/// Base pages that fit into so many bytes, none into less than nothing.
pub(super) fn base_pages(bytes: i128) -> u64 {
    u64::try_from(bytes / 4096).unwrap_or(0)
}

impl Adaptive {
    /// Plans anew by what is known now.
    pub(super) fn plan(&mut self, counts: &Counts) -> Sums {
        self.sides = self.sides_now();
        let sides = self.sides.len();
        let stays = &mut self.moves.stays;
        let movable = stays.without_waiting(counts, &self.chunks, &self.processes);
        let mut taking = Taking {
            left: (0..sides)
                .map(|side| left(&movable, self.sides.places(side)))
                .collect(),
            room: (0..sides)
                .map(|side| base_pages(self.spare(side)))
                .collect(),
            most: self.params.plan_pages as u64,
            taken: vec![vec![vec![0; counts.len() * GROUPS]; sides]; sides],
        };
        let all: u64 = taking.left.iter().map(|left| sum(left)).sum();
        let mut planned = PlanBelief::default();
        let mut sums = Sums::default();
        let mut balance = std::mem::take(&mut self.balance);
        let worth = self.known(counts);
        let mut limits = self.limits(counts);
        for side in 0..sides {
            let short = base_pages(self.shortage(side));
            let all = (&mut limits, None);
            let down = self.relieve((side, short), all, &worth, &mut taking, &mut sums);
            planned.down_pages += down;
        }
        for (owner, side) in self.above_ceiling(&limits) {
            let short = limits.above(owner);
            let only = (&mut limits, Some(owner));
            let down = self.relieve((side, short), only, &worth, &mut taking, &mut sums);
            planned.down_pages += down;
        }
        for pair in self.pairs() {
            let shift = self.may_shift(&mut balance, pair, &worth, counts);
            let within = (shift, &mut limits);
            let one = self.exchange(pair, &worth, within, &mut taking, &mut sums);
            explain::add(&mut planned, one);
        }
        self.balance = balance;
        self.planned = planned;
        self.latencies.planned();
        self.draw(counts, &taking);
        self.send_home();
        self.counters.pages = all;
        self.counters.value_possible_ns = whole_ns(sums.gain);
        self.counters.swaps += sums.swapped;
        sums
    }

    /// Where a side is short of so many base pages some go, whatever that costs: of all but who is at a floor, or of one who has limits.
    /// Gives how many.
    fn relieve(
        &self,
        (side, short): (usize, u64),
        (limits, only): (&mut Limits, Option<usize>),
        worth: &Worth<'_>,
        taking: &mut Taking,
        sums: &mut Sums,
    ) -> u64 {
        let short = short.min(self.params.plan_pages as u64);
        let Some(to) = self.below_with_room(side, 4096).filter(|_| short > 0) else {
            return 0;
        };
        let pair = Pair { from: to, to: side };
        let left = [to, side].map(|side| taking.left[side].as_slice());
        let [_, mut groups] = self.worth(worth, left, pair, 0);
        match only {
            Some(owner) => limits.keep_only(&mut groups, owner),
            None if self.limit(limits, pair, worth) => limits.keep_spare(&mut groups),
            None => {}
        }
        let nothing = vec![Group::default(); groups.len()];
        let bounds = Bounds {
            room: 0,
            short,
            most: 0,
            shift: f64::INFINITY,
        };
        let quotas = select::quotas(&nothing, &groups, bounds);
        sums.add(&quotas);
        taking.take(pair, &quotas);
        limits.moved(&quotas);
        sum(&quotas.down)
    }

    /// What changes places between two sides.
    fn exchange(
        &self,
        pair: Pair,
        worth: &Worth<'_>,
        (shift, limits): (f64, &mut Limits),
        taking: &mut Taking,
        sums: &mut Sums,
    ) -> PlanBelief {
        let left = [pair.from, pair.to].map(|side| taking.left[side].as_slice());
        let room = taking.room[pair.to];
        let sides = self.worth(worth, left, pair, room);
        let bounds = Bounds {
            room,
            short: 0,
            most: taking.most,
            shift,
        };
        let [mut slow, fast] = sides;
        self.afford(worth, &mut slow, room);
        let quotas = if self.limit(limits, pair, worth) {
            limits.quotas([&slow, &fast], bounds)
        } else {
            select::quotas(&slow, &fast, bounds)
        };
        sums.add(&quotas);
        taking.take(pair, &quotas);
        explain::planned(&slow, &fast, room, &quotas)
    }

    /// Accesses a second that may change sides, of those that both serve.
    fn may_shift(
        &self,
        balance: &mut Balance,
        pair: Pair,
        worth: &Worth<'_>,
        counts: &Counts,
    ) -> f64 {
        if !self.params.balance {
            return f64::INFINITY;
        }
        let [from, to] = [pair.from, pair.to].map(|side| self.sides.places(side)[0]);
        let [own, other] = self.served(worth, counts, pair);
        if from < to {
            balance.most((from, to), [own, other])
        } else {
            balance.most((to, from), [other, own])
        }
    }

    /// Takes the pages of the quotas.
    fn draw(&mut self, counts: &Counts, taking: &Taking) {
        let Moves { plan, stays, .. } = &mut self.moves;
        plan.0.clear();
        plan.0.resize_with(self.sides.len(), Queue::default);
        let any = taking
            .taken
            .iter()
            .flatten()
            .flatten()
            .any(|pages| *pages > 0);
        if any {
            let waiting = |of| stays.waiting(of, &self.processes);
            let mut left = take::Left::new(&self.sides, counts.keys().copied(), &taking.taken);
            self.cursor = take::take(&self.chunks, self.cursor, &mut left, plan, waiting);
        }
    }

    /// Pages where no place is faster for their process.
    pub(super) fn on_fastest(&self, counts: &Counts) -> u64 {
        let all = counts.iter().filter_map(|((pid, accessor), census)| {
            let process = self.processes.get(pid)?;
            Some(process.sights.of(*accessor).on_fastest(census))
        });
        all.sum()
    }
}

impl Sums {
    fn add(&mut self, quotas: &Quotas) {
        self.saves += quotas.saves;
        self.spends += quotas.spends;
        self.gain += quotas.gain;
        self.swapped += quotas.swapped;
    }
}

/// Base pages in these places by part of a process, size and class.
pub(super) fn left(counts: &Counts, places: &[Place]) -> Vec<u64> {
    let mut left = Vec::with_capacity(counts.len() * GROUPS);
    for census in counts.values() {
        for size in census.0.iter() {
            let there = |class: usize| {
                places
                    .iter()
                    .map(move |place| size[*place][class])
                    .sum::<u64>()
            };
            left.extend((0..CLASSES).map(there));
        }
    }
    left
}
