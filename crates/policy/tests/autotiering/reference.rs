// SPDX-License-Identifier: MIT OR Apache-2.0
//! AutoTiering as its paper's sentences have it, slow and plain: pages by their numbers, lists searched from the start.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Mode;
use terrace_policy::presets::autotiering::Params;

use super::machine::EACH;
use super::machine::HIGH;
use super::machine::MOVED;
use super::machine::Order;

/// Figure 1: the nodes as each socket has them, the best first.
const ORDER: [[u16; 4]; 2] = [[0, 1, 2, 3], [1, 0, 3, 2]];

#[derive(Debug, Clone)]
struct Page {
    node: u16,
    /// The last eight rounds, the latest last.
    history: Vec<bool>,
    accessor: Option<u16>,
    flying: bool,
}

impl Page {
    fn level(&self) -> usize {
        self.history.iter().filter(|bit| **bit).count()
    }
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    from: u16,
    to: u16,
    with: Option<u64>,
    then: Option<(u64, u16, u16)>,
    reserved: bool,
    refills: bool,
}

/// A node's memory, pages.
#[derive(Debug, Default, Clone, Copy)]
struct Memory {
    free: i64,
    coming: i64,
    full: bool,
    reserve: i64,
    leaving: i64,
    awake: Option<usize>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reference {
    params: Params,
    exchanges: bool,
    pages: BTreeMap<u64, Page>,
    /// By node and level: 2 MiB in the order in which a page of theirs came there.
    lists: BTreeMap<(u16, usize), Vec<u64>>,
    memory: [Memory; 4],
    /// Pages on a node that could not be migrated to another; some wait no more, or for others.
    waiting: BTreeMap<(u16, u16), Vec<u64>>,
    waits: BTreeMap<u64, (u16, u16)>,
    flights: BTreeMap<u64, Flight>,
    /// In a migration, if it has begun or not; also what was unmapped meanwhile.
    flying: BTreeSet<u64>,
    orders: Vec<Order>,
}

impl Reference {
    pub(crate) fn new(params: Params, exchanges: bool) -> Self {
        Self {
            params,
            exchanges,
            pages: BTreeMap::new(),
            lists: BTreeMap::new(),
            memory: [Memory::default(); 4],
            waiting: BTreeMap::new(),
            waits: BTreeMap::new(),
            flights: BTreeMap::new(),
            flying: BTreeSet::new(),
            orders: Vec::new(),
        }
    }

    pub(crate) fn sampled(&mut self, node: u16, free: u64) {
        let memory = &mut self.memory[usize::from(node)];
        memory.free = free.cast_signed();
        memory.full = false;
    }

    fn room(&self, node: u16) -> bool {
        let m = &self.memory[usize::from(node)];
        let free = (m.free - m.coming - HIGH.cast_signed()).max(0);
        !m.full && free - m.reserve >= 1
    }

    /// Lists are made anew of what pages have; who stays keeps its place.
    fn relist(&mut self, chunk: u64) {
        for node in [0, 1] {
            for level in 0..=8 {
                let mut pages = self.pages.range(chunk * EACH..(chunk + 1) * EACH);
                let is = pages.any(|(_, p)| p.node == node && !p.flying && p.level() == level);
                let list = self.lists.entry((node, level)).or_default();
                match (list.iter().position(|one| *one == chunk), is) {
                    (Some(at), false) => drop(list.remove(at)),
                    (None, true) => list.push(chunk),
                    _ => {}
                }
            }
        }
    }

    fn new_page(&mut self, n: u64, node: u16) {
        let page = Page {
            node,
            history: vec![true; 8],
            accessor: None,
            flying: self.flying.contains(&n),
        };
        self.pages.insert(n, page);
    }

    /// "shifted once a scan round"; who was not known is new, "at the hottest".
    pub(crate) fn round(&mut self, node: &BTreeMap<u64, u16>, accessed: impl Fn(u64) -> bool) {
        for (n, on) in node {
            match self.pages.get_mut(n) {
                None => self.new_page(*n, *on),
                Some(page) => {
                    page.history.remove(0);
                    page.history.push(accessed(*n));
                    if !page.flying {
                        page.node = *on;
                    }
                }
            }
        }
        let chunks: BTreeSet<u64> = node.keys().map(|n| n / EACH).collect();
        chunks.into_iter().for_each(|chunk| self.relist(chunk));
    }

    pub(crate) fn unmap(&mut self, chunk: u64) {
        self.pages.retain(|n, _| n / EACH != chunk);
        self.relist(chunk);
        self.waits.retain(|n, _| n / EACH != chunk);
    }

    fn fly(&mut self, n: u64) {
        self.flying.insert(n);
        if let Some(page) = self.pages.get_mut(&n) {
            page.flying = true;
        }
        self.relist(n / EACH);
    }

    fn order(&mut self, n: u64, flight: Flight) {
        self.fly(n);
        if flight.with.is_none() {
            self.memory[usize::from(flight.to)].coming += 1;
        }
        self.flights.insert(n, flight);
        self.orders.push((n, flight.to, flight.with));
    }

    /// What was ordered since the last time; the background demotion has run by then.
    pub(crate) fn orders(&mut self) -> Vec<Order> {
        if self.params.mode == Mode::OpmBd {
            self.refill();
        }
        std::mem::take(&mut self.orders)
    }

    pub(crate) fn fault(&mut self, n: u64, node: u16, cpu: Option<u16>) {
        if !self.pages.contains_key(&n) {
            self.new_page(n, node);
        }
        let page = self.pages.get_mut(&n).expect("known");
        page.accessor = cpu.or(page.accessor);
        if page.flying {
            return;
        }
        page.node = node;
        self.relist(n / EACH);
        let order = ORDER[usize::from(cpu.unwrap_or(0))];
        if node == order[0] || self.flights.len() >= self.params.inflight_pages {
            return;
        }
        self.demand(n, node, order);
    }

    fn demand(&mut self, n: u64, node: u16, order: [u16; 4]) {
        let best = order[0];
        let mode = self.params.mode;
        let plain = |to| Flight {
            from: node,
            to,
            with: None,
            then: None,
            reserved: false,
            refills: false,
        };
        if self.room(best) {
            return self.order(n, plain(best));
        }
        let demotes = matches!(mode, Mode::Opm | Mode::Opmx | Mode::OpmBd);
        if demotes && self.make_room(n, node, best) {
            return;
        }
        let better = order.iter().take_while(|other| **other != node);
        if let Some(to) = better.clone().find(|to| self.room(**to)) {
            return self.order(n, plain(*to));
        }
        let wanted = better.clone().find(|to| **to / 2 == node / 2);
        if let (Some(to), true) = (wanted, matches!(mode, Mode::Cpmx | Mode::Opmx)) {
            self.in_tier(n, node, *to);
        }
    }

    /// The lowest level on a node, and its oldest page.
    fn lowest(&self, node: u16) -> Option<(usize, u64)> {
        let mut levels = (0..=8).map(|level| (level, self.lists.get(&(node, level))));
        let (level, chunk) = levels.find_map(|(level, list)| Some((level, *list?.first()?)))?;
        let mut pages = self.pages.range(chunk * EACH..(chunk + 1) * EACH);
        let (n, _) = pages.find(|(_, p)| p.node == node && !p.flying && p.level() == level)?;
        Some((level, *n))
    }

    /// Slow nodes for a page of a fast one: "where the page was previously accessed".
    fn down(&self, n: u64, from: u16) -> [u16; 2] {
        let cpu = self.pages[&n].accessor.unwrap_or(from);
        let order = ORDER[usize::from(cpu)];
        [order[2], order[3]]
    }

    fn make_room(&mut self, n: u64, node: u16, best: u16) -> bool {
        let level = self.pages[&n].level();
        let Some((_, victim)) = self.lowest(best).filter(|(lowest, _)| *lowest < level) else {
            return false;
        };
        if self.params.mode == Mode::OpmBd {
            return self.reserved(n, node, best, level);
        }
        let down = self.down(victim, best);
        let to = down.into_iter().find(|to| self.room(*to));
        let fused = down[0] == node || to.is_none() && node >= 2;
        if self.params.mode == Mode::Opmx && self.exchanges && fused {
            self.fly(victim);
            let flight = Flight {
                from: node,
                to: best,
                with: Some(victim),
                then: None,
                reserved: false,
                refills: false,
            };
            self.order(n, flight);
            return true;
        }
        let Some(to) = to else { return false };
        self.fly(n);
        let then = Some((n, node, best));
        self.order(
            victim,
            Flight {
                from: best,
                to,
                with: None,
                then,
                reserved: false,
                refills: false,
            },
        );
        true
    }

    /// "The reserved pages allow us to immediately serve the promotion request"; below the mark the thread wakes.
    fn reserved(&mut self, n: u64, node: u16, best: u16, level: usize) -> bool {
        let low = i64::from(self.params.reserved_low);
        let memory = &mut self.memory[usize::from(best)];
        let there = memory.reserve > 0;
        memory.reserve -= i64::from(there);
        if memory.reserve < low {
            memory.awake = memory.awake.max(Some(level));
        }
        if there {
            self.order(
                n,
                Flight {
                    from: node,
                    to: best,
                    with: None,
                    then: None,
                    reserved: true,
                    refills: false,
                },
            );
        }
        there
    }

    /// "demoting the least accessed pages in a batch"
    fn refill(&mut self) {
        for node in [0, 1] {
            let memory = &mut self.memory[usize::from(node)];
            let Some(below) = memory.awake.take() else {
                continue;
            };
            let lacking = i64::from(self.params.reserved_pages) - memory.reserve - memory.leaving;
            for _ in 0..lacking {
                if self.flights.len() >= self.params.inflight_pages {
                    break;
                }
                let lowest = self.lowest(node).filter(|(level, _)| *level < below);
                let Some((_, n)) = lowest else { break };
                let down = self.down(n, node).into_iter().find(|to| self.room(*to));
                let Some(to) = down else { break };
                self.memory[usize::from(node)].leaving += 1;
                self.order(
                    n,
                    Flight {
                        from: node,
                        to,
                        with: None,
                        then: None,
                        reserved: false,
                        refills: true,
                    },
                );
            }
        }
    }

    /// "we keep track of which pages fail to be migrated", and exchange those of both sides.
    fn in_tier(&mut self, n: u64, node: u16, to: u16) {
        let waiting = self.waiting.entry((to, node)).or_default();
        let mut partner = None;
        for _ in 0..waiting.len().min(self.params.exchange_scan) {
            let other = waiting.remove(0);
            if self.waits.get(&other) != Some(&(to, node)) {
                continue;
            }
            self.waits.remove(&other);
            let page = self.pages.get(&other);
            if page.is_some_and(|page| page.node == to && !page.flying) {
                partner = Some(other);
                break;
            }
        }
        let Some(with) = partner else {
            if self.waits.insert(n, (node, to)) != Some((node, to)) {
                self.waiting.entry((node, to)).or_default().push(n);
            }
            return;
        };
        if self.exchanges {
            self.fly(with);
            self.order(
                n,
                Flight {
                    from: node,
                    to,
                    with: Some(with),
                    then: None,
                    reserved: false,
                    refills: false,
                },
            );
        } else {
            self.fly(n);
            let then = Some((n, node, to));
            self.order(
                with,
                Flight {
                    from: to,
                    to: node,
                    with: None,
                    then,
                    reserved: false,
                    refills: false,
                },
            );
        }
    }

    fn land(&mut self, n: u64, on: Option<u16>) {
        self.flying.remove(&n);
        if let Some(page) = self.pages.get_mut(&n).filter(|page| page.flying) {
            page.flying = false;
            page.node = on.unwrap_or(page.node);
            self.relist(n / EACH);
        }
    }

    pub(crate) fn ended(&mut self, n: u64, verdict: Verdict) {
        let flight = self.flights.remove(&n).expect("under way");
        let moved = verdict == MOVED;
        if let Some(with) = flight.with {
            self.land(with, moved.then_some(flight.from));
        } else {
            let to = &mut self.memory[usize::from(flight.to)];
            to.coming -= 1;
            to.free = (to.free - i64::from(moved)).max(0);
            to.full |= verdict == Verdict::NoMemory;
            if flight.reserved && verdict == Verdict::NoMemory {
                to.reserve = 0;
            } else if flight.reserved && !moved {
                to.reserve += 1;
            }
            let from = &mut self.memory[usize::from(flight.from)];
            from.free += i64::from(moved);
            if flight.refills {
                from.leaving -= 1;
                from.reserve += i64::from(moved);
            }
        }
        if verdict == Verdict::Lost {
            self.flying.remove(&n);
            self.pages.remove(&n);
            self.relist(n / EACH);
            self.waits.remove(&n);
        } else {
            self.land(n, moved.then_some(flight.to));
        }
        if let Some((next, from, to)) = flight.then {
            let waits = self.pages.get(&next).is_some_and(|page| page.node == from);
            if moved && waits {
                self.order(
                    next,
                    Flight {
                        from,
                        to,
                        with: None,
                        then: None,
                        reserved: false,
                        refills: false,
                    },
                );
            } else {
                self.land(next, None);
            }
        }
    }
}
