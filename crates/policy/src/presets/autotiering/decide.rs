// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hint fault leads to.
//!
//! ```text
//! best node has room ── yes ──> there
//!   │ no
//! opm*: its least accessed page is less accessed ── yes ──> that makes room: reserve, exchange, or demotion first
//!   │ no
//! a better node has room ── yes ──> the best such (5a, 5b)
//!   │ no
//! cpmx, opmx: a page of the better node wants to come here ── yes ──> exchange (5c); else it waits for one
//! ```

use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Autotiering;
use super::moves::Flight;
use super::moves::Next;
use super::params::Mode;
use crate::event::Migration;
use crate::event::Reason;

/// A page that an accessing processor would have on another node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demand {
    pub(super) page: PageRef,
    /// Where it is.
    pub(super) node: NodeId,
    /// The best node for who accesses it.
    pub(super) best: NodeId,
    /// Whose view that is, by its place.
    pub(super) view: usize,
    /// Rounds in which it was accessed.
    pub(super) level: u8,
}

/// A page that may go.
#[derive(Debug, Clone, Copy)]
struct Victim {
    page: PageRef,
    /// Where it belongs, by who accessed it last.
    near: Option<NodeId>,
    /// Where there is room for it: that, or the next best.
    to: Option<NodeId>,
}

impl Autotiering {
    pub(super) fn decide(&mut self, demand: Demand) {
        let before = self.inflight.len();
        self.answer(demand);
        self.answered += u64::from(self.inflight.len() > before);
    }

    fn answer(&mut self, demand: Demand) {
        let Demand {
            page, node, best, ..
        } = demand;
        if self.room(best) >= page.size.bytes() {
            self.counters.to_best += 1;
            self.promote(page, node, best, Flight::from(node));
            return;
        }
        let demotes = self.params.mode.demotes();
        if demotes && self.make_room(demand) || self.next_best(demand) {
            return;
        }
        let exchanges = self.params.mode.exchanges();
        if !(exchanges && self.exchange_in_tier(demand)) {
            self.counters.unanswered += 1;
        }
    }

    /// 4.2: the least accessed page of the best node makes room, if it is less accessed.
    fn make_room(&mut self, demand: Demand) -> bool {
        let Demand {
            page, best, level, ..
        } = demand;
        let Some((lowest, key)) = self.lowest(best, page.size) else {
            return false;
        };
        if lowest >= level {
            self.counters.not_more_accessed += 1;
            return false;
        }
        if self.params.mode == Mode::OpmBd && self.take_reserved(demand) {
            return true;
        }
        let found = self.victim(best, lowest, key);
        let Some((victim, accessor)) = found else {
            return false;
        };
        let victim = self.placed(victim, best, accessor);
        self.swap_tiers(demand, victim) || self.demote_first(demand, victim)
    }

    /// 4.3: a reserved page is there at once; where there is none, one is made as without a reserve.
    fn take_reserved(&mut self, demand: Demand) -> bool {
        let Demand {
            page,
            node,
            best,
            level,
            ..
        } = demand;
        let params = self.params;
        let taken = self.reserve(best).take(page.size, level, &params);
        // Demotion may have to go on now.
        self.hurry();
        if !taken {
            self.counters.reserve_empty += 1;
            return false;
        }
        self.counters.from_reserve += 1;
        let flight = Flight {
            reserved: true,
            ..Flight::from(node)
        };
        self.promote(page, node, best, flight);
        true
    }

    /// Where a victim goes: to the slow node nearest to who accessed it last, else the next with room.
    fn placed(&self, page: PageRef, from: NodeId, accessor: Option<usize>) -> Victim {
        let last = accessor.and_then(|at| self.views.all().get(at));
        let view = last.or_else(|| self.views.nearest(from));
        let bytes = page.size.bytes();
        let lower = || view.into_iter().flat_map(|view| view.demotion(from));
        Victim {
            page,
            near: lower().next(),
            to: lower().find(|node| self.room(*node) >= bytes),
        }
    }

    /// 4.2: demotion and promotion as one exchange, where the victim goes to where the page comes from; or where there
    /// is no room for it at all, to a slow node.
    fn swap_tiers(&mut self, demand: Demand, victim: Victim) -> bool {
        let Demand {
            page,
            node,
            best,
            view,
            ..
        } = demand;
        let tier = |node| self.views.all()[view].seen(node).map(|seen| seen.tier);
        let fits = victim.near == Some(node) || victim.to.is_none() && tier(node) > tier(best);
        let can = self.params.mode == Mode::Opmx && self.can_exchange(page, victim.page);
        if !(fits && can) {
            return false;
        }
        self.counters.exchanges_of_tiers += 1;
        self.exchange(page, node, best, victim.page);
        true
    }

    /// 4.2: the victim first, then the page.
    fn demote_first(&mut self, demand: Demand, victim: Victim) -> bool {
        let Some(to) = victim.to else {
            return false;
        };
        self.counters.demotions_for_promotion += 1;
        let Demand {
            page, node, best, ..
        } = demand;
        self.mark_flying(page);
        let flight = Flight {
            then: Some(Next {
                page,
                from: node,
                to: best,
            }),
            ..Flight::from(best)
        };
        self.order(
            victim.page,
            flight,
            Migration::Demote { to },
            Reason::MakeRoom,
        );
        true
    }

    /// 4.1: where the best node is full, the best one that has room, if that is better than where the page is.
    fn next_best(&mut self, demand: Demand) -> bool {
        let Demand {
            page,
            node,
            best,
            view,
            ..
        } = demand;
        let view = &self.views.all()[view];
        let has_room = |to: &NodeId| *to != best && self.room(*to) >= page.size.bytes();
        let Some(to) = view.better(node).find(has_room) else {
            return false;
        };
        let same = view.migration(node).any(|other| other == to);
        let count = if same {
            &mut self.counters.to_nearer_slow
        } else {
            &mut self.counters.to_other_fast
        };
        *count += 1;
        self.promote(page, node, to, Flight::from(node));
        true
    }

    /// 4.1, 5c: changes places with a page that could not come from the other side; else waits for one.
    fn exchange_in_tier(&mut self, demand: Demand) -> bool {
        let Demand {
            page, node, view, ..
        } = demand;
        let wanted = self.views.all()[view].migration(node).next();
        let Some(wanted) = wanted else {
            return false;
        };
        let Some(with) = self.partner(wanted, node, page.size) else {
            self.defer(page, node, wanted);
            return true;
        };
        self.counters.exchanges_in_tier += 1;
        if self.can_exchange(page, with) {
            self.exchange(page, node, wanted, with);
        } else {
            // One after the other, by what the nodes have in reserve.
            self.mark_flying(page);
            let flight = Flight {
                then: Some(Next {
                    page,
                    from: node,
                    to: wanted,
                }),
                ..Flight::from(wanted)
            };
            self.promote(with, wanted, node, flight);
        }
        true
    }

    /// A page on a node that could not be migrated to another.
    fn partner(&mut self, on: NodeId, to: NodeId, size: PageSize) -> Option<PageRef> {
        let waiting = self.deferred.get_mut(&(on, to))?;
        for _ in 0..waiting.len().min(self.params.exchange_scan) {
            let page = waiting.pop_front()?;
            if self.waits.get(&page) != Some(&(on, to)) {
                continue;
            }
            let found = self.pages.find(page);
            let still = found.is_some_and(|(_, chunk, index)| {
                chunk.node(index) == Some(on) && !chunk.flying.get(index)
            });
            if still && size != page.size {
                waiting.push_back(page);
                continue;
            }
            self.waits.remove(&page);
            if still {
                return Some(page);
            }
        }
        None
    }

    /// Remembers a page that could not be migrated, once; of too many the oldest is dropped. Where it waited for another
    /// pair of nodes, it has moved since, or others access it: what stands in that queue counts no more.
    fn defer(&mut self, page: PageRef, on: NodeId, to: NodeId) {
        if self.waits.insert(page, (on, to)) == Some((on, to)) {
            return;
        }
        let waiting = self.deferred.entry((on, to)).or_default();
        waiting.push_back(page);
        if waiting.len() > super::DEFERRED_MAX
            && let Some(oldest) = waiting.pop_front()
            && self.waits.get(&oldest) == Some(&(on, to))
        {
            self.waits.remove(&oldest);
        }
    }

    /// 4.3: what a node has free at the start is in its reserve first; of 2 MiB from when there are such pages.
    pub(super) fn fill(&mut self, node: NodeId) {
        if self.params.mode != Mode::OpmBd || !self.upper.contains(&node) {
            return;
        }
        let params = self.params;
        let huge = self.huge.then_some(PageSize::Huge2M);
        for size in [PageSize::Base4K].into_iter().chain(huge) {
            let room = self.room(node);
            self.reserve(node).fill(size, room, &params);
        }
    }

    /// `kdemoted` (4.3): fills up the reserves that are awake, the least accessed pages first, in one batch.
    pub(super) fn refill(&mut self) {
        let params = self.params;
        for at in 0..self.reserves.len() {
            let node = self.upper[at];
            for size in [PageSize::Base4K, PageSize::Huge2M] {
                let wanted = self.reserves[at].wanted(size, &params);
                let (mut lacking, below) = wanted.unwrap_or((0, 0));
                while lacking > 0 && self.inflight.len() < params.inflight_pages {
                    let Some(pages) = self.demote_for_reserve(node, size, below) else {
                        break;
                    };
                    lacking = lacking.saturating_sub(pages);
                }
            }
        }
    }

    /// Demotes the least accessed page of a node, if it is under that level; gives how many pages of that size it was.
    fn demote_for_reserve(&mut self, node: NodeId, size: PageSize, below: u8) -> Option<u32> {
        let (lowest, key) = self
            .lowest(node, size)
            .filter(|(level, _)| *level < below)?;
        let (page, accessor) = self.victim(node, lowest, key)?;
        let to = self.placed(page, node, accessor).to?;
        let pages = u32::try_from(page.size.bytes() / size.bytes()).ok()?;
        self.counters.demotions_in_background += 1;
        self.reserve(node).leaves(size, pages);
        let flight = Flight {
            refills: Some((size, pages)),
            ..Flight::from(node)
        };
        self.order(page, flight, Migration::Demote { to }, Reason::FastPressure);
        Some(pages)
    }
}
