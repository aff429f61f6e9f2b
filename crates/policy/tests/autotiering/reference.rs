// SPDX-License-Identifier: MIT OR Apache-2.0
//! AutoTiering as its paper's sentences have it, slow and plain: pages by their numbers, lists searched from the start.
//!
//! Where the preset leaves the paper on purpose so does this (docs/papers/autotiering.md): lists are of 2 MiB (row 7), the
//! next best node is tried also where the victim is accessed as much (row 8), the reserve is a number (row 9), and
//! `inflight_pages` demands are under way at most (row 14).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Mode;
use terrace_policy::presets::autotiering::Params;

use super::layouts::Layout;
use super::machine::EACH;
use super::machine::HIGH;
use super::machine::MOVED;
use super::machine::Order;
use super::machine::units;

#[derive(Debug, Clone)]
struct Page {
    node: u16,
    /// The last eight rounds, the latest last.
    history: Vec<bool>,
    /// The socket of who accessed it last.
    accessor: Option<usize>,
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
    /// Pages that come into reserve by it, and of which size.
    refills: Option<(usize, i64)>,
}

const fn plain(from: u16, to: u16) -> Flight {
    Flight {
        from,
        to,
        with: None,
        then: None,
        reserved: false,
        refills: None,
    }
}

/// Of 4 KiB and of 2 MiB.
const SIZES: [i64; 2] = [1, 512];

/// Which of them a page is of.
const fn size(n: u64) -> usize {
    (units(n) > 1) as usize
}

/// Reserved pages of a size.
#[derive(Debug, Default, Clone, Copy)]
struct Reserve {
    here: i64,
    leaving: i64,
    awake: Option<usize>,
    filled: bool,
}

/// A node's memory, of 4 KiB.
#[derive(Debug, Default, Clone, Copy)]
struct Memory {
    free: i64,
    coming: i64,
    full: bool,
    reserve: [Reserve; 2],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Reference {
    layout: &'static Layout,
    params: Params,
    exchanges: bool,
    pages: BTreeMap<u64, Page>,
    /// By node, size and level: 2 MiB in the order in which a page of theirs came there.
    lists: BTreeMap<(u16, usize, usize), Vec<u64>>,
    /// By number of a node.
    memory: Vec<Memory>,
    /// Huge pages were seen.
    huge: bool,
    /// Pages on a node that could not be migrated to another; some wait no more, or for others.
    waiting: BTreeMap<(u16, u16), Vec<u64>>,
    waits: BTreeMap<u64, (u16, u16)>,
    flights: BTreeMap<u64, Flight>,
    /// In a migration, if it has begun or not; also what was unmapped meanwhile.
    flying: BTreeSet<u64>,
    orders: Vec<Order>,
}

impl Reference {
    pub(crate) fn new(layout: &'static Layout, params: Params, exchanges: bool) -> Self {
        Self {
            layout,
            params,
            exchanges,
            pages: BTreeMap::new(),
            lists: BTreeMap::new(),
            memory: vec![Memory::default(); layout.numbers()],
            huge: false,
            waiting: BTreeMap::new(),
            waits: BTreeMap::new(),
            flights: BTreeMap::new(),
            flying: BTreeSet::new(),
            orders: Vec::new(),
        }
    }

    fn memory(&mut self, node: u16) -> &mut Memory {
        &mut self.memory[usize::from(node)]
    }

    pub(crate) fn sampled(&mut self, node: u16, free: u64) {
        let memory = self.memory(node);
        memory.free = free.cast_signed();
        memory.full = false;
        self.fill(node);
    }

    fn free(&self, node: u16) -> i64 {
        let m = &self.memory[usize::from(node)];
        let reserved: i64 = m.reserve.iter().zip(SIZES).map(|(r, u)| r.here * u).sum();
        let free = (m.free - m.coming - HIGH.cast_signed()).max(0);
        if m.full { 0 } else { free - reserved }
    }

    fn room(&self, n: u64, node: u16) -> bool {
        self.free(node) >= units(n).cast_signed()
    }

    /// "We keep a page pool of a few reserved pages": from the first on, as far as memory is free.
    fn fill(&mut self, node: u16) {
        if self.params.mode != Mode::OpmBd || self.layout.tier(node) != 0 {
            return;
        }
        let sizes = 1 + usize::from(self.huge);
        for (size, pages) in SIZES.into_iter().enumerate().take(sizes) {
            let free = self.free(node).max(0) / pages;
            let full = self.wanted(size).0;
            let reserve = &mut self.memory(node).reserve[size];
            if !std::mem::replace(&mut reserve.filled, true) {
                let lacking = (full - reserve.here - reserve.leaving).max(0);
                reserve.here += free.min(lacking);
            }
        }
    }

    /// How many pages of a size the reserve is to have, and below how many demotion wakes.
    fn wanted(&self, size: usize) -> (i64, i64) {
        let p = &self.params;
        let both = [
            (p.reserved_pages, p.reserved_low),
            (p.reserved_huge, p.reserved_huge_low),
        ];
        (i64::from(both[size].0), i64::from(both[size].1))
    }

    /// Lists are made anew of what pages have; who stays keeps its place.
    fn relist(&mut self, chunk: u64) {
        let size = size(chunk * EACH);
        for node in self.layout.fast() {
            for level in 0..=8 {
                let mut pages = self.pages.range(chunk * EACH..(chunk + 1) * EACH);
                let is = pages.any(|(_, p)| p.node == node && !p.flying && p.level() == level);
                let list = self.lists.entry((node, size, level)).or_default();
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
        self.huge |= units(n) > 1;
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
            self.memory(flight.to).coming += units(n).cast_signed();
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
        let socket = self.layout.socket(cpu);
        let page = self.pages.get_mut(&n).expect("known");
        page.accessor = cpu.map(|_| socket).or(page.accessor);
        if page.flying {
            return;
        }
        page.node = node;
        self.relist(n / EACH);
        let better = self.layout.better(socket, node);
        if better.is_empty() || self.flights.len() >= self.params.inflight_pages {
            return;
        }
        self.demand(n, node, &better);
    }

    fn demand(&mut self, n: u64, node: u16, better: &[u16]) {
        let best = better[0];
        let mode = self.params.mode;
        if self.room(n, best) {
            return self.order(n, plain(node, best));
        }
        let demotes = matches!(mode, Mode::Opm | Mode::Opmx | Mode::OpmBd);
        if demotes && self.make_room(n, node, best) {
            return;
        }
        if let Some(to) = better.iter().find(|to| self.room(n, **to)) {
            return self.order(n, plain(node, *to));
        }
        let same = |to: &&u16| self.layout.tier(**to) == self.layout.tier(node);
        let wanted = better.iter().find(same);
        if let (Some(to), true) = (wanted, matches!(mode, Mode::Cpmx | Mode::Opmx)) {
            self.in_tier(n, node, *to);
        }
    }

    /// The lowest level on a node, and its oldest page; for a base page a huge one where there is no other.
    fn lowest(&self, node: u16, of: usize) -> Option<(usize, u64)> {
        let in_size = |size| {
            let mut levels = (0..=8).map(|level| (level, self.lists.get(&(node, size, level))));
            levels.find_map(|(level, list)| Some((level, *list?.first()?)))
        };
        let (level, chunk) = (of..2).find_map(in_size)?;
        let mut pages = self.pages.range(chunk * EACH..(chunk + 1) * EACH);
        let (n, _) = pages.find(|(_, p)| p.node == node && !p.flying && p.level() == level)?;
        Some((level, *n))
    }

    /// Slow nodes for a page of a fast one: "where the page was previously accessed".
    fn down(&self, n: u64, from: u16) -> Vec<u16> {
        let place = self.layout.ids().position(|id| id == from).expect("a node");
        let socket = self.pages[&n].accessor.unwrap_or(self.layout.near[place]);
        self.layout.lower(socket, from)
    }

    fn make_room(&mut self, n: u64, node: u16, best: u16) -> bool {
        let level = self.pages[&n].level();
        let lowest = self.lowest(best, size(n));
        let Some((_, victim)) = lowest.filter(|(lowest, _)| *lowest < level) else {
            return false;
        };
        if self.params.mode == Mode::OpmBd && self.reserved(n, node, best, level) {
            return true;
        }
        let down = self.down(victim, best);
        let to = down.iter().copied().find(|to| self.room(victim, *to));
        let fused = down.first() == Some(&node) || to.is_none() && self.layout.tier(node) > 0;
        let can = self.exchanges && size(n) == size(victim);
        if self.params.mode == Mode::Opmx && can && fused {
            self.fly(victim);
            let with = Some(victim);
            self.order(
                n,
                Flight {
                    with,
                    ..plain(node, best)
                },
            );
            return true;
        }
        let Some(to) = to else { return false };
        self.fly(n);
        let then = Some((n, node, best));
        self.order(
            victim,
            Flight {
                then,
                ..plain(best, to)
            },
        );
        true
    }

    /// "The reserved pages allow us to immediately serve the promotion request"; below the mark the thread wakes.
    fn reserved(&mut self, n: u64, node: u16, best: u16, level: usize) -> bool {
        let (_, low) = self.wanted(size(n));
        let reserve = &mut self.memory(best).reserve[size(n)];
        let there = reserve.here > 0;
        reserve.here -= i64::from(there);
        if reserve.here < low {
            reserve.awake = reserve.awake.max(Some(level));
        }
        if there {
            let reserved = true;
            self.order(
                n,
                Flight {
                    reserved,
                    ..plain(node, best)
                },
            );
        }
        there
    }

    /// "demoting the least accessed pages in a batch"
    fn refill(&mut self) {
        for (node, size) in self.layout.fast().flat_map(|node| [(node, 0), (node, 1)]) {
            let full = self.wanted(size).0;
            let reserve = &mut self.memory(node).reserve[size];
            let Some(below) = reserve.awake.take() else {
                continue;
            };
            let mut lacking = full - reserve.here - reserve.leaving;
            while lacking > 0 && self.flights.len() < self.params.inflight_pages {
                let lowest = self.lowest(node, size).filter(|(level, _)| *level < below);
                let Some((_, n)) = lowest else { break };
                let mut down = self.down(n, node).into_iter();
                let Some(to) = down.find(|to| self.room(n, *to)) else {
                    break;
                };
                let pages = units(n).cast_signed() / SIZES[size];
                self.memory(node).reserve[size].leaving += pages;
                let refills = Some((size, pages));
                self.order(
                    n,
                    Flight {
                        refills,
                        ..plain(node, to)
                    },
                );
                lacking -= pages;
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
            let page = self.pages.get(&other);
            let here = page.is_some_and(|page| page.node == to && !page.flying);
            if here && size(other) != size(n) {
                waiting.push(other);
                continue;
            }
            self.waits.remove(&other);
            if here {
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
            let with = Some(with);
            self.order(
                n,
                Flight {
                    with,
                    ..plain(node, to)
                },
            );
        } else {
            self.fly(n);
            let then = Some((n, node, to));
            self.order(
                with,
                Flight {
                    then,
                    ..plain(to, node)
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
            self.account(n, &flight, verdict);
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
                self.order(next, plain(from, to));
            } else {
                self.land(next, None);
            }
        }
    }

    fn account(&mut self, n: u64, flight: &Flight, verdict: Verdict) {
        let moved = i64::from(verdict == MOVED);
        let units = units(n).cast_signed();
        let to = self.memory(flight.to);
        to.coming -= units;
        to.free = (to.free - units * moved).max(0);
        to.full |= verdict == Verdict::NoMemory;
        let reserve = &mut to.reserve[size(n)];
        if flight.reserved && verdict == Verdict::NoMemory {
            reserve.here = 0;
        } else if flight.reserved && moved == 0 {
            reserve.here += 1;
        }
        let from = self.memory(flight.from);
        from.free += units * moved;
        if let Some((size, pages)) = flight.refills {
            from.reserve[size].leaving -= pages;
            from.reserve[size].here += pages * moved;
        }
    }
}
