// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it is worth for all groups to be on one side and not on another: D ([`super::later`]), or V ([`super::value`]) without
//! (`later=false`).
//!
//! D is by what pages do over eight passes ([`super::lag`]), or in the first one ([`super::first`]).
//!
//! What an access saves between two sides is less than 0 for a process that is farther from the faster one: its pages
//! give way for nothing.

use std::rc::Rc;

use terrace_core::Pid;

use super::Adaptive;
use super::Process;
use super::accessors::Part;
use super::balance::Served;
use super::chunks::Counts;
use super::classes::CLASSES;
use super::decide::SIZES;
use super::first::Fit;
use super::lag::LAG;
use super::later;
use super::later::Terms;
use super::ledger;
use super::matrix::Matrix;
use super::plan::left;
use super::select;
use super::select::Group;
use super::sides::Pair;
use super::sight::Sight;
use crate::event::Share;

/// What a process does.
enum Known {
    /// Over eight passes.
    Lag(Matrix),
    /// In its first one.
    First(Option<Fit>),
}

/// A part of a process, with the time that what is known is of, s.
#[derive(Clone)]
struct Of<'a> {
    process: &'a Process,
    /// Memory as its pages see it.
    sight: &'a Sight,
    /// Absent where V decides.
    known: Option<Rc<Known>>,
    pass: f64,
    /// How many times what it saves counts.
    weight: f64,
}

/// What a process saves counts once more for each step of its priority.
fn weight(share: &Share) -> f64 {
    1.0 + f64::from(share.priority)
}

/// All parts of processes with pages, in their order.
pub(super) struct Worth<'a>(Vec<Option<Of<'a>>>);

/// Groups of a part of a process.
pub(super) const GROUPS: usize = SIZES.len() * CLASSES;

impl<'a> Of<'a> {
    fn new(process: &'a Process, weight: f64, later: bool) -> Self {
        let (known, passes) = if !later {
            (None, 1)
        } else if let Some(first) = process.transitions.first() {
            (Some(Rc::new(Known::First(first.fit()))), 1)
        } else {
            (Some(Rc::new(Known::Lag(process.lag.matrix()))), LAG)
        };
        Self {
            process,
            sight: process.sight(),
            known,
            pass: process.pass_s * f64::from(passes),
            weight,
        }
    }
}

impl Worth<'_> {
    /// Memory as their processes see it in the mean, of those in that order that are known.
    pub(super) fn means(&self) -> impl Iterator<Item = Option<&Sight>> {
        let all = self.0.iter();
        all.map(|of| of.as_ref().map(|of| of.process.sight()))
    }
}

impl Adaptive {
    /// What is known when a plan is made.
    pub(super) fn known(&self, counts: &Counts) -> Worth<'_> {
        let mut last: Option<(Pid, Of<'_>)> = None;
        let of = |(pid, accessor): &Part| {
            if last.as_ref().is_none_or(|(of, _)| of != pid) {
                let process = self.processes.get(pid)?;
                let weight = self.shares.get(pid).map_or(1.0, weight);
                last = Some((*pid, Of::new(process, weight, self.params.later)));
            }
            let (_, of) = last.clone()?;
            let sight = of.process.sights.of(*accessor);
            Some(Of { sight, ..of })
        };
        Worth(counts.keys().map(of).collect())
    }

    /// Groups of both sides of a pair with their worth, where so many more base pages fit: `left` are their base pages, by part
    /// of a process, size and class.
    pub(super) fn worth(
        &self,
        worth: &Worth<'_>,
        left: [&[u64]; 2],
        pair: Pair,
        room: u64,
    ) -> [Vec<Group>; 2] {
        let ends = [pair.from, pair.to];
        let rates = ends.map(|side| self.all_rates(worth, side));
        let mut sides = [0, 1].map(|end| self.groups(worth, left[end], &rates[end], pair));
        if self.params.later {
            let price = later::price_between(&sides, room);
            let mut at = |ask: f64| {
                for (groups, rates) in sides.iter_mut().zip(&rates) {
                    let all = groups.chunks_mut(GROUPS).zip(&worth.0).zip(rates);
                    for ((groups, of), rates) in all {
                        if let Some(of) = of {
                            self.places(groups, of, rates, (pair, price, ask));
                        }
                    }
                }
                select::asks(&sides, room, ask)
            };
            let ask = later::asked(&mut at);
            // Where nothing is asked the first look was the last.
            if ask > 0.0 {
                at(ask);
            }
        }
        sides
    }

    /// All groups of both sides of a pair, without D.
    pub(super) fn all_groups(
        &self,
        worth: &Worth<'_>,
        counts: &Counts,
        pair: Pair,
    ) -> [Vec<Group>; 2] {
        [pair.from, pair.to].map(|side| {
            let pages = left(counts, self.sides.places(side));
            self.groups(worth, &pages, &self.all_rates(worth, side), pair)
        })
    }

    /// Leaves of pages that may go up those that their processes can pay for, where so many more fit.
    pub(super) fn afford(&self, worth: &Worth<'_>, groups: &mut [Group], room: u64) {
        let keys = self.chunks.census().keys();
        let parts: Vec<(&Part, &Option<Of<'_>>)> = keys.zip(&worth.0).collect();
        let mut groups = groups;
        // A process pays for all of its parts together.
        for parts in parts.chunk_by(|(one, _), (other, _)| one.0 == other.0) {
            let (own, others) = groups.split_at_mut(parts.len() * GROUPS);
            groups = others;
            let ((pid, _), of) = parts[0];
            if let Some(of) = of.as_ref().filter(|_| self.has_ledger(*pid)) {
                let may = of.process.ledger.may(self.once(*pid));
                ledger::afford(own, may, room);
            }
        }
    }

    /// Groups of one side without D.
    #[expect(clippy::cast_precision_loss, reason = "base pages of a page")]
    fn groups(
        &self,
        worth: &Worth<'_>,
        left: &[u64],
        rates: &[[f64; CLASSES]],
        pair: Pair,
    ) -> Vec<Group> {
        let mut groups = Vec::with_capacity(left.len());
        for ((of, left), rates) in worth.0.iter().zip(left.chunks(GROUPS)).zip(rates) {
            let visit = of.as_ref().map_or(0.0, |of| of.process.visit_saves(1.0));
            let saved = of.as_ref().map_or(0.0, |of| self.saved(of, pair));
            for (size, left) in SIZES.into_iter().zip(left.chunks(CLASSES)) {
                let each = size.base_pages() as f64;
                let cost = self.costs.of(size) / each;
                // Visits of a base page for each of this one.
                let part = of.as_ref().map_or(1.0, |of| of.process.visits_of(size)) / each;
                for (class, pages) in left.iter().enumerate() {
                    let value = of.as_ref().map_or(0.0, |of| of.process.values[class]);
                    let value = value * saved * part;
                    groups.push(Group {
                        pages: *pages,
                        value,
                        place: value,
                        cost,
                        saves: rates[class] * visit * saved * part,
                        load: rates[class] * visit * part,
                    });
                }
            }
        }
        groups
    }

    /// What both sides of a pair serve, those pages too that are not to move now, and what their reads take those whose accesses these are.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn served(&self, worth: &Worth<'_>, counts: &Counts, pair: Pair) -> [Served; 2] {
        let groups = self.all_groups(worth, counts, pair);
        let places = [pair.from, pair.to].map(|side| self.sides.places(side)[0]);
        let (mut all, mut accesses, mut reads) = (0.0, [0.0; 2], [0.0; 2]);
        for (at, of) in worth.0.iter().enumerate() {
            let Some(of) = of else { continue };
            let own = [0, 1].map(|end: usize| {
                let own = &groups[end][at * GROUPS..(at + 1) * GROUPS];
                own.iter()
                    .map(|group| group.load * group.pages as f64)
                    .sum::<f64>()
            });
            let both = own[0] + own[1];
            all += both;
            for end in 0..2 {
                accesses[end] += own[end];
                reads[end] += both * of.sight.reads[places[end]];
            }
        }
        [0, 1].map(|end| Served {
            accesses: accesses[end],
            read_ns: if all > 0.0 { reads[end] / all } else { 0.0 },
        })
    }

    /// What an access of these pages saves as it counts, ns.
    fn saved(&self, of: &Of<'_>, pair: Pair) -> f64 {
        let first = |side: usize| self.sides.places(side)[0];
        of.sight.saved_ns(first(pair.from), first(pair.to)) * of.weight
    }

    fn visit_saves(&self, of: &Of<'_>, pair: Pair) -> f64 {
        of.process.visit_saves(self.saved(of, pair))
    }

    /// Visits a second of all parts' pages on that side, by class.
    fn all_rates(&self, worth: &Worth<'_>, side: usize) -> Vec<[f64; CLASSES]> {
        let of = |of: &Option<Of<'_>>| match of {
            Some(of) => self.rates(of, side),
            None => [0.0; CLASSES],
        };
        worth.0.iter().map(of).collect()
    }

    /// Visits a second of its pages on that side, by class.
    fn rates(&self, of: &Of<'_>, side: usize) -> [f64; CLASSES] {
        match of.known.as_deref() {
            Some(Known::Lag(_)) => of.process.lag.rates(self.sides.places(side)),
            Some(Known::First(_)) | None => of.process.rates,
        }
    }

    /// D of the places of one part's groups on a side.
    #[expect(clippy::cast_precision_loss, reason = "base pages of a page")]
    fn places(
        &self,
        groups: &mut [Group],
        of: &Of<'_>,
        rates: &[f64; CLASSES],
        (pair, price, ask): (Pair, f64, f64),
    ) {
        let Some(known) = &of.known else {
            return;
        };
        for (groups, size) in groups.chunks_mut(CLASSES).zip(SIZES) {
            if groups.iter().all(|group| group.pages == 0) {
                continue;
            }
            let each = size.base_pages() as f64;
            let terms = Terms {
                pass: of.pass,
                gamma: (-of.pass / self.params.horizon.as_secs_f64()).exp(),
                saved_ns: self.visit_saves(of, pair) * of.process.visits_of(size),
                price: price * each,
                cost: self.costs.of(size),
                ask: ask * each,
            };
            let worth = match known.as_ref() {
                Known::Lag(m) => later::differences(m, rates, terms),
                Known::First(Some(fit)) => fit.differences(terms),
                Known::First(None) => [0.0; CLASSES],
            };
            for (group, worth) in groups.iter_mut().zip(worth) {
                group.place = worth / each;
            }
        }
    }
}
