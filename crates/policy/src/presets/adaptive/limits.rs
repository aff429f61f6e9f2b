// SPDX-License-Identifier: MIT OR Apache-2.0
//! Floors and ceilings: what programs may have of fast memory beside others.
//!
//! ```text
//! ceiling   what is above it goes down, the least worth first; then no more comes up than goes down of the same program
//! floor     below it a program's pages come up that pay, whatever those of others are worth that make room; at it
//!           no others push them out
//! ```
//!
//! Values are in ns for all, so fast memory has one price, and a limit is an offset on it: without end for those on one side of it. A
//! program's own pages change places with each other as they do without. Who has limits was asked to be where nobody knows that it pays, so it has
//! no ledger.

use std::collections::BTreeMap;

use terrace_core::Pid;

use super::Adaptive;
use super::chunks::Counts;
use super::process::Process;
use super::select;
use super::select::Bounds;
use super::select::Group;
use super::select::Quotas;
use super::sides::Pair;
use super::sight::Sight;
use super::worth::GROUPS;
use super::worth::Worth;
use crate::event::Share;

/// What is put on the worth of pages below a floor, ns: more than any page is worth.
const LIFT: f64 = 1e15;

/// Who has limits, and what they have, base pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    fast: u64,
    floor: u64,
    ceiling: u64,
}

/// Those who have limits.
#[derive(Debug, Clone, Default)]
pub(super) struct Limits {
    /// By part of a process, in the order of the groups: which owner it belongs to, if that has limits.
    of: Vec<Option<usize>>,
    /// Likewise, as far as fast memory is on one side only of a pair for it.
    here: Vec<Option<usize>>,
    owners: Vec<Owner>,
}

/// How many pages of an owner a step may move, or of all others.
type Most<'a> = &'a dyn Fn(Option<usize>) -> u64;

/// In which order it takes them.
type Order = fn(&[Group]) -> Vec<usize>;

/// Two sides between which a plan is made in steps.
struct Steps {
    sides: [Vec<Group>; 2],
    bounds: Bounds,
    all: Quotas,
}

impl Adaptive {
    /// Limits as they are now.
    pub(super) fn limits(&self, counts: &Counts) -> Limits {
        let mut limits = Limits::default();
        let mut whose: BTreeMap<Pid, usize> = BTreeMap::new();
        for ((pid, _), census) in counts {
            let share = self.shares.get(pid).filter(|share| share.is_limited());
            let owner = share.map(|share| {
                *whose.entry(share.whose.unwrap_or(*pid)).or_insert_with(|| {
                    limits.owners.push(Owner::of(share));
                    limits.owners.len() - 1
                })
            });
            if let Some(owner) = owner {
                let process = self.processes.get(pid);
                let sight = process.map(Process::sight);
                limits.owners[owner].fast += sight.map_or(0, |sight| sight.on_fastest(census));
            }
            limits.of.push(owner);
        }
        limits
    }

    /// Owners above their ceilings, and the sides where their fast pages may be.
    pub(super) fn above_ceiling(&self, limits: &Limits) -> Vec<(usize, usize)> {
        let above = (0..limits.owners.len()).filter(|owner| limits.above(*owner) > 0);
        let sides = (0..self.sides.len()).filter(|side| {
            let place = self.sides.places(*side)[0];
            let mut all = self.processes.values();
            all.any(|process| process.sight().is_fastest(place))
        });
        let sides: Vec<usize> = sides.collect();
        above
            .flat_map(|owner| sides.iter().map(move |side| (owner, *side)))
            .collect()
    }

    /// Sets limits to a pair of sides, between which fast memory begins for these processes; whether there are any.
    pub(super) fn limit(&self, limits: &mut Limits, pair: Pair, worth: &Worth<'_>) -> bool {
        let fast = |sight: &Sight, side: usize| sight.is_fastest(self.sides.places(side)[0]);
        let begins = |sight: &Sight| fast(sight, pair.to) && !fast(sight, pair.from);
        let of = limits.of.iter().zip(worth.means());
        let here = of.map(|(of, sight)| of.filter(|_| sight.is_some_and(begins)));
        limits.here = here.collect();
        limits.here.iter().any(Option::is_some)
    }

    /// Whether a process has a floor or a ceiling.
    pub(super) fn is_limited(&self, pid: Pid) -> bool {
        self.shares.get(&pid).is_some_and(Share::is_limited)
    }
}

impl Owner {
    fn of(share: &Share) -> Self {
        Self {
            fast: 0,
            floor: share.floor_bytes / 4096,
            ceiling: share.ceiling_bytes.map_or(u64::MAX, |bytes| bytes / 4096),
        }
    }

    /// Pages that may come up.
    const fn below(&self) -> u64 {
        self.ceiling.saturating_sub(self.fast)
    }

    /// Pages that others may push out.
    const fn spare(&self) -> u64 {
        self.fast.saturating_sub(self.floor)
    }
}

impl Limits {
    /// Base pages above an owner's ceiling.
    pub(super) fn above(&self, owner: usize) -> u64 {
        let Owner { fast, ceiling, .. } = self.owners[owner];
        fast.saturating_sub(ceiling)
    }

    /// Leaves of these groups the pages of one owner.
    pub(super) fn keep_only(&mut self, groups: &mut [Group], owner: usize) {
        self.here.clone_from(&self.of);
        self.cap(groups, &all_of(owner), select::least_first);
    }

    /// Leaves of these groups what is above floors.
    pub(super) fn keep_spare(&self, groups: &mut [Group]) {
        let spare = |of: Option<usize>| of.map_or(u64::MAX, |of| self.owners[of].spare());
        self.cap(groups, &spare, select::least_first);
    }

    /// Leaves of each owner's pages as many as may move, in that order; of all others likewise.
    fn cap(&self, groups: &mut [Group], most: Most<'_>, order: Order) {
        let mut left: Vec<u64> = (0..self.owners.len())
            .map(|owner| most(Some(owner)))
            .collect();
        let mut others = most(None);
        for index in order(groups) {
            let left = self.here[index / GROUPS].map_or(&mut others, |owner| &mut left[owner]);
            let pages = &mut groups[index].pages;
            *pages = (*pages).min(*left);
            *left -= *pages;
        }
    }

    /// So many pages came up and went down.
    pub(super) fn moved(&mut self, quotas: &Quotas) {
        for (process, owner) in self.here.iter().enumerate() {
            let Some(owner) = owner else { continue };
            let own = process * GROUPS..(process + 1) * GROUPS;
            let sum = |pages: &[u64]| pages[own.clone()].iter().sum::<u64>();
            let fast = &mut self.owners[*owner].fast;
            *fast = (*fast + sum(&quotas.up)).saturating_sub(sum(&quotas.down));
        }
    }

    /// What changes places between two sides within limits.
    pub(super) fn quotas(&mut self, sides: [&[Group]; 2], bounds: Bounds) -> Quotas {
        let all = Quotas::none(sides[0].len(), sides[1].len());
        let sides = sides.map(<[Group]>::to_vec);
        let mut steps = Steps { sides, bounds, all };
        for owner in 0..self.owners.len() {
            self.own_pages(owner, &mut steps);
            self.up_to_floor(owner, &mut steps);
        }
        let up = |of: Option<usize>| of.map_or(u64::MAX, |of| self.owners[of].below());
        let down = |of: Option<usize>| of.map_or(u64::MAX, |of| self.owners[of].spare());
        let quotas = steps.step(self, [&up, &down], 0.0, steps.bounds);
        self.moved(&quotas);
        steps.all
    }

    /// A program's own pages.
    fn own_pages(&self, owner: usize, steps: &mut Steps) {
        let bounds = Bounds {
            room: 0,
            ..steps.bounds
        };
        let own = all_of(owner);
        steps.step(self, [&own, &own], 0.0, bounds);
    }

    /// Pages below a floor come up where they pay.
    fn up_to_floor(&mut self, owner: usize, steps: &mut Steps) {
        let Owner {
            fast,
            floor,
            ceiling,
        } = self.owners[owner];
        let missing = floor.min(ceiling).saturating_sub(fast);
        if missing == 0 {
            return;
        }
        let own = |of: Option<usize>| if of == Some(owner) { missing } else { 0 };
        let others = |of: Option<usize>| match of {
            Some(of) if of == owner => 0,
            Some(of) => self.owners[of].spare(),
            None => u64::MAX,
        };
        let quotas = steps.step(self, [&own, &others], LIFT, steps.bounds);
        self.moved(&quotas);
    }
}

/// All pages of an owner and none of others.
fn all_of(owner: usize) -> impl Fn(Option<usize>) -> u64 {
    move |of| if of == Some(owner) { u64::MAX } else { 0 }
}

impl Steps {
    /// These of both sides, where those that come up are worth so much more.
    fn step(
        &mut self,
        limits: &Limits,
        [up, down]: [Most<'_>; 2],
        lift: f64,
        bounds: Bounds,
    ) -> Quotas {
        let [mut slow, mut fast] = self.sides.clone();
        limits.cap(&mut slow, up, select::best_first);
        limits.cap(&mut fast, down, select::least_first);
        for group in slow.iter_mut().filter(|group| group.value > group.cost) {
            group.place += lift;
        }
        let quotas = select::quotas(&slow, &fast, bounds);
        let moved: u64 = quotas.up.iter().sum();
        self.bounds.room -= moved - quotas.swapped;
        self.bounds.most -= moved;
        let load = |group: &Group| group.load;
        self.bounds.shift -= select::total(&slow, &quotas.up, load);
        self.bounds.shift += select::total(&fast, &quotas.down, load);
        for (groups, moved) in self.sides.iter_mut().zip([&quotas.up, &quotas.down]) {
            for (group, moved) in groups.iter_mut().zip(moved) {
                group.pages -= moved;
            }
        }
        self.all.add(&quotas);
        quotas
    }
}

#[cfg(test)]
#[path = "limits_tests.rs"]
mod tests;
