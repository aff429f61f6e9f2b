// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages are asked to be split, as [`super::skew`] chooses them: [`A_SECOND`] at most, of all processes.

use terrace_core::Nanos;
use terrace_core::PageSize;

use super::Adaptive;
use super::accessors::Accessor;
use super::accessors::Part;
use super::chunks::Counts;
use super::later;
use super::plan::base_pages;
use super::select::Group;
use super::sides::Pair;
use super::skew::Terms;
use super::worth::GROUPS;
use crate::event::Action;
use crate::kit::pages::page_of;

/// More are not split in a second.
const A_SECOND: f64 = 8.0;

/// What it takes to split, and whether that can be done here.
#[derive(Debug, Default)]
pub(super) struct Splitting {
    unserved: bool,
    /// w and x, ns.
    pub(super) walk: f64,
    split: f64,
    /// When pages were split last.
    at: Nanos,
}

impl Splitting {
    /// What a visit takes more, and splitting a page.
    #[expect(clippy::cast_precision_loss, reason = "short times")]
    pub(super) const fn measured(&mut self, walk: Nanos, split: Nanos) {
        (self.walk, self.split) = (walk.0 as f64, split.0 as f64);
    }

    /// The machine does not do that.
    pub(super) const fn refused(&mut self) {
        self.unserved = true;
    }
}

/// What all pages are worth between the two sides that differ most.
struct Market {
    pair: Pair,
    sides: [Vec<Group>; 2],
    price: f64,
}

impl Adaptive {
    /// Asks for pages to be split that are worth more so, and for some to see which are.
    pub(super) fn split(&mut self, now: Nanos, counts: &Counts) {
        let horizon = self.params.horizon.as_secs_f64();
        let seconds = now.since(self.splitting.at).as_secs_f64();
        self.splitting.at = now;
        for (pid, process) in &mut self.processes {
            self.counters.splits += process.skew.look(&self.chunks, *pid);
        }
        if !self.params.split || self.splitting.unserved || self.parts() > 1 {
            return;
        }
        let Some(market) = self.market(counts) else {
            return;
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative"
        )]
        let mut most = (A_SECOND * seconds) as usize;
        let all: Vec<Part> = counts.keys().copied().collect();
        let mut end = 0;
        for parts in all.chunk_by(|(one, _), (other, _)| one == other) {
            let own = end * GROUPS..(end + parts.len()) * GROUPS;
            end += parts.len();
            let pid = &parts[0].0;
            let parts: Vec<Accessor> = parts.iter().map(|(_, accessor)| *accessor).collect();
            let Some(process) = self.processes.get_mut(pid) else {
                continue;
            };
            let terms = Terms {
                sides: [0, 1].map(|side: usize| &market.sides[side][own.clone()]),
                parts: &parts,
                rates: &process.rates,
                fast: self.sides.places(market.pair.to),
                price: market.price,
                moves: 2.0 * self.costs.of(PageSize::Base4K) / horizon,
                split: self.splitting.split / horizon,
                walk: self.splitting.walk / process.accesses.of_a_visit(),
            };
            let of = (&self.chunks, *pid, process.pass);
            for (number, visits) in process.skew.choose(of, &terms, most) {
                let page = page_of((*pid, number), 0, PageSize::Huge2M);
                if !self.moves.has(page) {
                    process.skew.ask(number, process.pass, visits);
                    self.asks.push_back(Action::Split { page });
                    most -= 1;
                }
            }
        }
    }

    /// Nothing where there are no huge pages, or room for all.
    fn market(&self, counts: &Counts) -> Option<Market> {
        if counts.values().all(|census| census.1[1] == 0) {
            return None;
        }
        let pair = self.pairs().first().copied()?;
        let sides = self.all_groups(&self.known(counts), counts, pair);
        let price = later::price_between(&sides, base_pages(self.spare(pair.to)));
        (price > 0.0).then_some(Market { pair, sides, price })
    }
}
