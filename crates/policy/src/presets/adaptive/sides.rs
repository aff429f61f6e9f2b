// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which places a plan takes for one, and between which of them pages change places.
//!
//! Places of one tier that take every process as long are one side: programs that run on the processors of all sockets see the
//! same DRAM everywhere. Pages move between any two sides, in the order of what an access saves at most:
//! from the slowest to the fastest first, straight to the best one that pays.

use terrace_core::NodeId;

use super::Adaptive;
use super::accessors::ALL;
use super::latencies::Reads;
use super::latencies::alike;
use super::places::Place;
use super::sight::Sight;

/// Places that are alike for every process, the fastest tier's first; by their order in the list a side is named.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sides(Vec<Vec<Place>>);

impl Sides {
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn places(&self, side: usize) -> &[Place] {
        &self.0[side]
    }

    /// The side of a place.
    pub(super) fn of(&self, place: Place) -> Option<usize> {
        self.0.iter().position(|places| places.contains(&place))
    }
}

/// Pages of `from` that go to `to`, and those that make room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Adaptive {
    /// The sides as processes see the places at present.
    pub(super) fn sides_now(&self) -> Sides {
        let nobody = self.latencies.reads_ns(&self.places, None);
        let mut seen: Vec<&Reads> = self.all_sights().map(|sight| &sight.reads).collect();
        if seen.is_empty() {
            seen.push(&nobody);
        }
        let tier = |place: Place| {
            let node = self.places.nodes(place).first();
            node.and_then(|node| self.tiers.tier_of(*node))
        };
        let sum = |place: Place| seen.iter().map(|reads| reads[place]).sum::<f64>();
        let mut order: Vec<Place> = (0..self.places.len()).collect();
        order.sort_by(|a, b| tier(*a).cmp(&tier(*b)).then(sum(*a).total_cmp(&sum(*b))));
        let mut sides: Vec<Vec<Place>> = Vec::new();
        for place in order {
            let same = |other: Place| {
                tier(place) == tier(other)
                    && seen.iter().all(|reads| alike(reads[place], reads[other]))
            };
            match sides.iter_mut().find(|side| same(side[0])) {
                Some(side) => side.push(place),
                None => sides.push(vec![place]),
            }
        }
        Sides(sides)
    }

    /// What an access saves that moves from one side to the other, by process; the most first.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let sides = &self.sides;
        let places = |pair: &Pair| [pair.from, pair.to].map(|side| sides.places(side)[0]);
        let all = || self.all_sights();
        let saves = |pair: &Pair| {
            let [from, to] = places(pair);
            let saved = all().map(|sight| sight.saved_ns(from, to));
            saved.reduce(f64::max).unwrap_or_default()
        };
        let differ = |pair: &Pair| {
            let [from, to] = places(pair);
            all().any(|sight| !alike(sight.reads[from], sight.reads[to]))
        };
        let pairs =
            (0..sides.len()).flat_map(|from| (0..sides.len()).map(move |to| Pair { from, to }));
        let mut pairs: Vec<Pair> = pairs
            .filter(|pair| saves(pair) > 0.0 && differ(pair))
            .collect();
        pairs.sort_by(|a, b| saves(b).total_cmp(&saves(a)));
        pairs
    }

    /// Memory as each process sees it, and who accesses some of its pages.
    pub(super) fn all_sights(&self) -> impl Iterator<Item = &Sight> {
        let all = self.processes.iter();
        all.flat_map(|(pid, process)| {
            let parts = self.chunks.census_of(*pid);
            let parts = parts.filter(|(accessor, _)| *accessor != ALL);
            let parts = parts.map(|(accessor, _)| process.sights.of(accessor));
            std::iter::once(process.sight()).chain(parts)
        })
    }

    /// The nodes of a side.
    pub(super) fn nodes_of(&self, side: usize) -> impl Iterator<Item = NodeId> + Clone + '_ {
        let places = self.sides.places(side).iter();
        places.flat_map(|place| self.places.nodes(*place).iter().copied())
    }
}
