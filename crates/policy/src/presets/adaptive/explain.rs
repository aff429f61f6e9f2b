// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is believed of a process, as it is told to people.

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Adaptive;
use super::Process;
use super::chunk::Chunk;
use super::classes::CLASSES;
use super::classes::class_of;
use super::classes::class_rate;
use super::classes::rate_of;
use super::decide::SIZES;
use super::latencies;
use super::select::Group;
use super::select::Quotas;
use super::sight::Sight;
use crate::belief::About;
use crate::belief::AccessedBelief;
use crate::belief::Belief;
use crate::belief::ClassBelief;
use crate::belief::LedgerBelief;
use crate::belief::PageBelief;
use crate::belief::PlanBelief;
use crate::belief::ShareBelief;
use crate::belief::SplitBelief;
use crate::kit::pages::page_of;
use crate::kit::pages::split;

/// What decides between two sides.
pub(super) fn planned(slow: &[Group], fast: &[Group], room: u64, quotas: &Quotas) -> PlanBelief {
    let there = |groups: &[Group], of: fn(&Group) -> f64| -> Vec<f64> {
        groups
            .iter()
            .filter(|group| group.pages > 0)
            .map(of)
            .collect()
    };
    let best = there(slow, |group| group.place - group.cost);
    let least = there(fast, |group| group.place + group.cost);
    PlanBelief {
        up_pages: quotas.up.iter().sum(),
        down_pages: quotas.down.iter().sum(),
        gain_ns: quotas.gain,
        best_slow_ns: best.into_iter().reduce(f64::max),
        least_fast_ns: least.into_iter().reduce(f64::min),
        room_pages: room,
        under_way: 0,
    }
}

/// Visits a second of so many base pages in base pages and in huge ones, each at that rate.
#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
fn visits(sizes: [u64; 2], rate: f64) -> f64 {
    let pages = sizes.into_iter().zip(SIZES);
    let pages = pages.map(|(pages, size)| pages as f64 / size.base_pages() as f64);
    pages.sum::<f64>() * rate
}

/// What was planned between two more sides: where most is to be had says why.
pub(super) fn add(all: &mut PlanBelief, one: PlanBelief) {
    let most = |belief: &PlanBelief| {
        let best = belief.best_slow_ns?;
        Some(
            best - belief
                .least_fast_ns
                .filter(|_| belief.room_pages == 0)
                .unwrap_or_default(),
        )
    };
    if most(&one) > most(all) {
        all.best_slow_ns = one.best_slow_ns;
        all.least_fast_ns = one.least_fast_ns;
        all.room_pages = one.room_pages;
    }
    all.up_pages += one.up_pages;
    all.down_pages += one.down_pages;
    all.gain_ns += one.gain_ns;
}

impl Adaptive {
    /// Nothing of a process that no reading has told of.
    pub(super) fn believes(&self, now: Nanos, about: About) -> Option<Belief> {
        let process = self.processes.get(&about.pid)?;
        Some(Belief {
            saved_ns: self.saved_at_most(process.sight()),
            accesses_a_visit: process.accesses.of_a_visit(),
            move_base_ns: self.costs.of(PageSize::Base4K),
            move_huge_ns: self.costs.of(PageSize::Huge2M),
            pass_s: process.pass_s,
            passes: process.pass,
            horizon_s: self.params.horizon.as_secs_f64(),
            surprised_s: process.surprised.map(|at| now.since(at).as_secs_f64()),
            share: self.shares.get(&about.pid).map(|share| ShareBelief {
                priority: share.priority,
                floor_bytes: share.floor_bytes,
                ceiling_bytes: share.ceiling_bytes,
            }),
            ledger: self.has_ledger(about.pid).then(|| LedgerBelief {
                earned_ns: process.ledger.earned,
                spent_ns: process.ledger.spent,
                may_ns: process.ledger.may(self.once(about.pid)),
            }),
            split: self.split_belief(about, process),
            accessed_from: self.accessed_beliefs(about, process),
            classes: self.class_beliefs(about, process),
            plan: PlanBelief {
                under_way: self.moves.under_way(),
                ..self.planned
            },
            page: about
                .page
                .and_then(|addr| self.page_belief(about, addr, process)),
        })
    }

    fn split_belief(&self, about: About, process: &Process) -> Option<SplitBelief> {
        let pages = process.skew.in_parts(&self.chunks, about.pid);
        (pages > 0).then_some(SplitBelief {
            pages,
            adds: process.skew.share,
            walk_ns: self.splitting.walk,
        })
    }

    /// What an access saves between the slowest memory and the fastest, ns.
    fn saved_at_most(&self, sight: &Sight) -> f64 {
        let (least, most) = latencies::ends(&sight.reads, &self.places);
        most - least
    }

    fn accessed_beliefs(&self, about: About, process: &Process) -> Vec<AccessedBelief> {
        let parts = self.chunks.census_of(about.pid);
        let known = parts.filter_map(|(accessor, census)| {
            let node = self.latencies.node_of(accessor)?.0;
            let pages = census.1.iter().sum();
            Some(AccessedBelief { node, pages })
        });
        let known = known.filter(|of| of.pages > 0 && process.runs_on.is_none());
        known.collect()
    }

    fn class_beliefs(&self, about: About, process: &Process) -> Vec<ClassBelief> {
        let saved = self.saved_at_most(process.sight());
        let parts = || {
            let all = self.chunks.census_of(about.pid);
            all.map(|(accessor, census)| (process.sights.of(accessor), census))
        };
        let beliefs = (0..CLASSES).rev().map(|class| {
            // By place: base pages of both sizes, and how many pages they are.
            let places = parts().flat_map(|(sight, census)| {
                (0..self.places.len()).map(move |place| {
                    let sizes = [0, 1].map(|huge: usize| census.0[huge][place][class]);
                    (sight.is_fastest(place), sizes)
                })
            });
            let mut belief = ClassBelief {
                rate: if class == 0 { 0.0 } else { class_rate(class) },
                fast_pages: 0,
                slow_pages: 0,
                visits: 0.0,
                value_ns: process.values[class] * saved,
            };
            for (fast, sizes) in places {
                let pages = if fast {
                    &mut belief.fast_pages
                } else {
                    &mut belief.slow_pages
                };
                *pages += sizes.iter().sum::<u64>();
                belief.visits += visits(sizes, process.rates[class]);
            }
            belief
        });
        beliefs
            .filter(|one| one.fast_pages + one.slow_pages > 0)
            .collect()
    }

    fn page_belief(&self, about: About, addr: Addr, process: &Process) -> Option<PageBelief> {
        let (key, index) = split(PageRef {
            pid: about.pid,
            addr,
            size: PageSize::Base4K,
        });
        let chunk: &Chunk = self.chunks.get(key)?;
        let index = if chunk.huge { 0 } else { index };
        if !chunk.present.get(index) {
            return None;
        }
        let (level, page) = (chunk.levels[index], page_of(key, index, chunk.size()));
        let accessor = chunk.accessors.mostly();
        let sight = process.sights.of(accessor);
        Some(PageBelief {
            address: page.addr.0,
            bytes: page.size.bytes(),
            fast: sight.is_fastest(chunk.spread.get(index)),
            accessed_from: self
                .latencies
                .node_of(accessor)
                .filter(|_| process.runs_on.is_none())
                .map(|node| node.0),
            rate: (level > 0).then(|| rate_of(level)),
            value_ns: process.values[class_of(level)] * self.saved_at_most(sight),
            move_ns: self.costs.of(page.size),
            moving: self.moves.has(page),
        })
    }
}
