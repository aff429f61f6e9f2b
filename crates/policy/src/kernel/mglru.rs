// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's background demotion by generations (MGLRU, `CONFIG_LRU_GEN` in `mm/vmscan.c` of Linux
//! 6.12), for the anonymous pages of one fast node. It is what a kernel of today has; the two lists it
//! replaced are in [`super::kswapd`], which also knows when to begin and when to stop.
//!
//! Pages are in generations from `min_seq` to `max_seq`, two to four of them, each a queue.
//!
//! * **Aging** (`try_to_inc_max_seq`) walks the page tables. A page that was accessed since its bit was
//!   cleared is put into the youngest generation, then a new youngest one begins. After the first walk
//!   only those tables (512 entries) are walked in which at the last one, or near a page that was found
//!   accessed since, every eighth entry was accessed (`suitable_to_scan`, the Bloom filters).
//! * **Eviction** (`evict_folios`) takes up to 64 pages from the oldest generation that aging has not
//!   put elsewhere and looks at each through its mapping. One that was accessed goes to the youngest
//!   generation and its 63 neighbours are looked at, too (`lru_gen_look_around`); one that was not is
//!   demoted. From the two youngest generations nothing is taken: aging comes first then
//!   (`should_run_aging`), unless the priority is still the default.
//! * A round looks at all pages `>> priority`; the priority starts where that is expected to free
//!   enough (`set_initial_priority`) and falls while rounds do not (`balance_pgdat`).
//!
//! A page that comes by promotion is active: slow nodes do not age, so it was young there. Not here:
//! file pages, tiers of file pages, cgroups, the filters' false positives, and `kswapd_failures`; a
//! round that ends at priority 0 sleeps until the next wakeup. One thread does all of it, a look at a
//! page and an entry of a walked table cost it what [`super::KernelView`] says.

use std::collections::VecDeque;

use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_core::Space;

use super::kswapd::Kswapd;
use super::kswapd::PRIORITY;
use crate::event::Action;

/// `MAX_NR_GENS`, `MIN_NR_GENS`.
const GENS: usize = 4;
const GENS_MIN: u64 = 2;
/// `MIN_LRU_BATCH` and `MAX_LRU_BATCH`: 64 and 64 times that, pages.
const BATCH: u64 = 64;
const BATCH_MAX: u64 = 64 * BATCH;
/// Entries of a page table.
const TABLE: u32 = 512;
/// An accessed entry for each cache line of entries makes a table worth walking.
const ENTRIES_PER_LINE: u64 = 8;
/// Tables that are walked before their answers are taken in.
const TABLES_AT_ONCE: u32 = 64;

/// Instead of a generation: not on this node, or on its way from it.
const OFF: u8 = u8::MAX;
/// Taken from its queue to be looked at.
const ISOLATED: u8 = u8::MAX - 1;

/// What was asked for, until its last page has answered.
#[derive(Debug, Clone, Copy)]
enum Asked {
    /// A page that may be demoted.
    Page,
    /// A page table.
    Table { table: u32 },
    /// The neighbours of an accessed page.
    Around { table: u32, entries: u32 },
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    asked: Asked,
    /// The last unit that answers.
    last: u32,
    young: u64,
}

/// What the thread is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Between rounds.
    Rest,
    /// In a round that has looked at so many pages.
    Evict { scanned: u64 },
    /// Walking page tables, this one next.
    Walk { table: u32 },
}

/// What a look costs the thread, ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prices {
    pub(super) page: f64,
    pub(super) entry: f64,
}

/// One node's generations.
#[derive(Debug)]
pub(super) struct Mglru {
    node: NodeId,
    space: Space,
    prices: Prices,
    min_seq: u64,
    max_seq: u64,
    /// Units, the next to be evicted first. Some are in another generation by now.
    queues: [VecDeque<u32>; GENS],
    /// Base pages of each generation.
    pages: [u64; GENS],
    /// By unit.
    generation: Vec<u8>,
    /// By table: units in a queue or isolated.
    here: Vec<u16>,
    /// Tables to walk next time, all before the first; and what the present walk finds for that.
    filter: Option<Vec<bool>>,
    found: Vec<bool>,
    asks: VecDeque<Ask>,
    phase: Phase,
    /// Processor time left in this tick, ns.
    budget: f64,
    /// Waits for the next tick.
    done: bool,
}

impl Mglru {
    pub(super) fn new(node: NodeId, space: &Space, prices: Prices) -> Self {
        let units = space.units() as usize;
        let tables = units.div_ceil(TABLE as usize);
        Self {
            node,
            space: space.clone(),
            prices,
            min_seq: 0,
            max_seq: GENS_MIN + 1,
            queues: Default::default(),
            pages: [0; GENS],
            generation: vec![OFF; units],
            here: vec![0; tables],
            filter: None,
            found: vec![false; tables],
            asks: VecDeque::new(),
            phase: Phase::Rest,
            budget: 0.0,
            done: true,
        }
    }

    fn pages_of(&self, unit: u32) -> u64 {
        self.space.bytes(unit) >> 12
    }

    /// A page is on the node now, or a demotion of it has failed: into the youngest generation.
    pub(super) fn add(&mut self, unit: u32) {
        if self.generation[unit as usize] == OFF {
            self.here[(unit / TABLE) as usize] += 1;
            self.enqueue(unit);
        }
    }

    fn enqueue(&mut self, unit: u32) {
        let youngest = index(self.max_seq);
        self.generation[unit as usize] = number(youngest);
        self.queues[youngest].push_back(unit);
        self.pages[youngest] += self.pages_of(unit);
    }

    /// A page goes.
    fn remove(&mut self, unit: u32) {
        self.generation[unit as usize] = OFF;
        self.here[(unit / TABLE) as usize] -= 1;
    }

    /// Whether there is something to do before the next tick.
    pub(super) fn ready(&self, kswapd: &Kswapd) -> bool {
        kswapd.awake() && !self.done && self.asks.is_empty()
    }

    /// A tick of that length.
    pub(super) fn tick(&mut self, ns: f64) {
        self.budget = (self.budget + ns).min(ns);
        self.done = false;
    }

    /// Goes on until it has to wait for answers, for migrations, or for the next tick.
    pub(super) fn go(&mut self, kswapd: &mut Kswapd, actions: &mut VecDeque<Action>) {
        while self.ready(kswapd) {
            if self.budget <= 0.0 {
                self.done = true;
                return;
            }
            match self.phase {
                Phase::Rest => self.begin(kswapd),
                Phase::Evict { scanned } => self.evict(scanned, kswapd, actions),
                Phase::Walk { table } => self.walk(table, kswapd, actions),
            }
        }
    }

    /// Begins a round, or sleeps.
    fn begin(&mut self, kswapd: &mut Kswapd) {
        if kswapd.reached() {
            kswapd.sleep();
        } else if kswapd.waits() {
            self.done = true;
        } else {
            if kswapd.priority == PRIORITY {
                kswapd.priority = self.first_priority(kswapd);
            }
            kswapd.freed = 0;
            self.phase = Phase::Evict { scanned: 0 };
        }
    }

    /// `set_initial_priority`.
    fn first_priority(&self, kswapd: &Kswapd) -> u32 {
        let wanted = kswapd.to_reclaim();
        if wanted < BATCH {
            return PRIORITY;
        }
        let young = [self.max_seq, self.max_seq - 1].map(|seq| self.pages[index(seq)]);
        let inactive = self.total() - young.iter().sum::<u64>();
        let bits = |n: u64| i64::from(u64::BITS - n.leading_zeros());
        let priority = bits(inactive) - 1 - bits(wanted - 1);
        let priority = priority.clamp(i64::from(PRIORITY / 2), i64::from(PRIORITY));
        u32::try_from(priority).expect("clamped")
    }

    fn total(&self) -> u64 {
        self.pages.iter().sum()
    }

    /// `should_run_aging`.
    fn should_age(&self) -> bool {
        if self.min_seq + GENS_MIN > self.max_seq {
            return true;
        }
        if self.min_seq + GENS_MIN < self.max_seq {
            return false;
        }
        let total = self.total();
        let young = self.pages[index(self.max_seq)];
        let old = self.pages[index(self.max_seq - GENS_MIN)];
        young * GENS_MIN > total || old * (GENS_MIN + 2) < total
    }

    /// A step of `try_to_shrink_lruvec`.
    fn evict(&mut self, scanned: u64, kswapd: &mut Kswapd, actions: &mut VecDeque<Action>) {
        let age = self.should_age();
        if age && kswapd.priority < PRIORITY {
            self.found.fill(false);
            self.phase = Phase::Walk { table: 0 };
            return;
        }
        let all = if self.min_seq + GENS_MIN > self.max_seq {
            0
        } else {
            self.total() >> kswapd.priority
        };
        if kswapd.waits() {
            self.phase = Phase::Rest;
            return;
        }
        if scanned >= all || kswapd.freed >> 12 >= kswapd.to_reclaim() {
            self.end_round(scanned, kswapd);
            return;
        }
        let looked = self.isolate(actions);
        self.oldest_are_empty();
        if looked == 0 {
            self.end_round(scanned, kswapd);
        } else {
            self.phase = Phase::Evict {
                scanned: scanned + looked,
            };
        }
    }

    /// What `balance_pgdat` does after a round.
    fn end_round(&mut self, scanned: u64, kswapd: &mut Kswapd) {
        self.phase = Phase::Rest;
        if kswapd.did_too_little(scanned) {
            kswapd.priority -= 1;
            if kswapd.priority == 0 {
                kswapd.sleep();
            }
        }
    }

    /// `scan_folios`: sorts the oldest queue and asks for up to 64 pages of it. Gives how many were
    /// handled; 0 where none can be had.
    fn isolate(&mut self, actions: &mut VecDeque<Action>) -> u64 {
        if self.max_seq - self.min_seq + 1 == GENS_MIN {
            return 0;
        }
        let oldest = index(self.min_seq);
        let (mut looked, mut isolated) = (0, 0);
        while looked < BATCH_MAX
            && isolated < BATCH
            && let Some(unit) = self.queues[oldest].pop_front()
        {
            let pages = self.pages_of(unit);
            looked += pages;
            let generation = self.generation[unit as usize];
            if generation == number(oldest) {
                self.pages[oldest] -= pages;
                self.generation[unit as usize] = ISOLATED;
                isolated += pages;
                self.ask(Asked::Page, unit, 1, unit, actions);
            } else if usize::from(generation) < GENS {
                self.queues[usize::from(generation)].push_back(unit);
            }
        }
        looked
    }

    fn ask(
        &mut self,
        asked: Asked,
        first: u32,
        units: u32,
        last: u32,
        actions: &mut VecDeque<Action>,
    ) {
        self.budget -= if units == 1 {
            self.prices.page
        } else {
            f64::from(units) * self.prices.entry
        };
        self.asks.push_back(Ask {
            asked,
            last,
            young: 0,
        });
        actions.push_back(Action::ProbeRange {
            node: Some(self.node),
            page: self.space.page(first),
            pages: units,
        });
    }

    /// A page was looked at. Those that are to be demoted are told by the result.
    pub(super) fn probed(
        &mut self,
        unit: u32,
        accessed: bool,
        actions: &mut VecDeque<Action>,
    ) -> bool {
        let generation = self.generation[unit as usize];
        if accessed && usize::from(generation) < GENS {
            // `folio_update_gen`: it stays in its queue until somebody gets there.
            let youngest = index(self.max_seq);
            let pages = self.pages_of(unit);
            self.pages[usize::from(generation)] -= pages;
            self.pages[youngest] += pages;
            self.generation[unit as usize] = number(youngest);
        }
        if accessed && let Some(ask) = self.asks.front_mut() {
            ask.young += 1;
        }
        let ended = self.asks.front().is_some_and(|ask| ask.last == unit);
        if let Some(ask) = ended.then(|| self.asks.pop_front()).flatten() {
            self.answered(&ask);
        }
        if generation != ISOLATED {
            return false;
        }
        if accessed {
            self.enqueue(unit);
            self.look_around(unit, actions);
        } else {
            self.remove(unit);
        }
        !accessed
    }

    /// What follows for the tables to walk next.
    fn answered(&mut self, ask: &Ask) {
        match ask.asked {
            Asked::Page => {}
            Asked::Table { table } => {
                self.found[table as usize] = ask.young * ENTRIES_PER_LINE >= u64::from(TABLE);
            }
            Asked::Around { table, entries } => {
                if ask.young * ENTRIES_PER_LINE >= u64::from(entries)
                    && let Some(filter) = &mut self.filter
                {
                    filter[table as usize] = true;
                }
            }
        }
    }

    /// `lru_gen_look_around`: the 64 entries around, of the same table.
    fn look_around(&mut self, unit: u32, actions: &mut VecDeque<Action>) {
        let region = self.space.region(unit);
        if region.size != PageSize::Base4K {
            return;
        }
        let (start, end) = (region.unit, region.unit + region.count);
        let table = unit / TABLE;
        let (start, end) = (start.max(table * TABLE), end.min((table + 1) * TABLE));
        let window = u32::try_from(BATCH).expect("64");
        let first = unit.saturating_sub(window / 2).max(start);
        let end = (first + window).min(end);
        let first = end.saturating_sub(window).max(start);
        // The isolated ones may be on their way when the answer comes.
        let here = |unit: &u32| usize::from(self.generation[*unit as usize]) < GENS;
        if let Some(last) = (first..end).rev().find(here)
            && end - first > 1
        {
            let entries = end - first;
            self.ask(
                Asked::Around { table, entries },
                first,
                entries,
                last,
                actions,
            );
        }
    }

    /// A step of a walk, or its end.
    fn walk(&mut self, table: u32, kswapd: &mut Kswapd, actions: &mut VecDeque<Action>) {
        let tables = u32::try_from(self.here.len()).expect("fewer than units");
        let units = self.space.units();
        let mut table = table;
        let mut asked = 0;
        while table < tables && asked < TABLES_AT_ONCE {
            let wanted = self
                .filter
                .as_ref()
                .is_none_or(|filter| filter[table as usize]);
            let first = table * TABLE;
            let end = (first + TABLE).min(units);
            // Larger pages have no table to leave out.
            let large = self.space.region(first).size != PageSize::Base4K;
            let here = |unit: &u32| self.generation[*unit as usize] != OFF;
            if self.here[table as usize] > 0
                && (wanted || large)
                && let Some(last) = (first..end).rev().find(here)
            {
                self.ask(Asked::Table { table }, first, end - first, last, actions);
                asked += 1;
            }
            table += 1;
        }
        self.phase = Phase::Walk { table };
        if asked == 0 {
            self.filter = Some(std::mem::take(&mut self.found));
            self.found = vec![false; self.here.len()];
            self.begin_generation();
            self.end_round(0, kswapd);
        }
    }

    /// `inc_max_seq`.
    fn begin_generation(&mut self) {
        if self.max_seq - self.min_seq + 1 == GENS as u64 {
            let (oldest, next) = (index(self.min_seq), index(self.min_seq + 1));
            while let Some(unit) = self.queues[oldest].pop_front() {
                let generation = usize::from(self.generation[unit as usize]);
                let to = if generation == oldest {
                    next
                } else {
                    generation
                };
                if generation == oldest {
                    let pages = self.pages_of(unit);
                    self.pages[oldest] -= pages;
                    self.pages[next] += pages;
                    self.generation[unit as usize] = number(next);
                }
                if to < GENS {
                    self.queues[to].push_front(unit);
                }
            }
            self.min_seq += 1;
        }
        self.max_seq += 1;
    }

    /// `try_to_inc_min_seq`.
    fn oldest_are_empty(&mut self) {
        while self.min_seq + GENS_MIN <= self.max_seq && self.queues[index(self.min_seq)].is_empty()
        {
            self.min_seq += 1;
        }
    }
}

/// The place of a generation.
fn index(seq: u64) -> usize {
    usize::try_from(seq % GENS as u64).expect("below GENS")
}

fn number(index: usize) -> u8 {
    u8::try_from(index).expect("below GENS")
}

#[cfg(test)]
#[path = "mglru_tests.rs"]
mod tests;
