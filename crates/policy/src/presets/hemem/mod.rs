// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem (SOSP '21): sampled accesses, hot and cold first-in-first-out lists, a cooling clock.
//!
//! A sample counts a load or a store of its page; enough of them make it hot (3.1). Every 10 ms the
//! policy swaps hot pages of slow memory with cold ones of fast memory, those that are stored to often
//! first, and keeps some fast memory free (3.3). Where no fast page is cold nothing is swapped. Only
//! mappings of some size are managed.
//!
//! `docs/papers/hemem.md` lists each decision. What this does not do: sample (a tracker's), allocate
//! (the kernel's first touch does, fast memory first), copy (a mover's).
//!
//! With page-table scans in place of samples it is a preset of its own ([`PAGE_TABLE`], 5.1).
//!
//! * [`params`]; `page_table` (scans), `classify` (counts, cooling), `table` (8 bytes a page), `lists`, `regions` (what is
//!   managed), `migrate` (what is ordered); this file ties them
//!   together.

mod classify;
mod figures;
mod lists;
mod migrate;
mod page_table;
pub mod params;
mod regions;
mod table;

use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::Addr;
use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::Tiers;

use crate::Capabilities;
use crate::MachineOptions;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::kit::FreeMemory;
use crate::kit::TokenBucket;
use crate::kit::rate::bytes_in;
use crate::preset::Colour;
use classify::Seat;
use figures::Figures;
use lists::List;
pub use page_table::PAGE_TABLE;
pub use params::Params;
use regions::Regions;
use table::CLOCK_TURN;
use table::Meta;
use table::Table;
use table::Tier;

/// The lists that are looked through. Cold pages of slow memory need none, nor do fast ones of a
/// program with priority: nothing is ever taken from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Queue {
    FastHot,
    SlowHot,
    FastCold,
    /// Slow pages of programs with priority, hot or not.
    SlowPriority,
}

const QUEUES: usize = 4;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    samples_fast: u64,
    samples_slow: u64,
    samples_unmanaged: u64,
    samples_stores: u64,
    coolings: u64,
    swaps: u64,
    promoted_heavy: u64,
    reserve_cold: u64,
    reserve_arbitrary: u64,
    no_cold: u64,
    no_colder: u64,
    given_up: u64,
}

/// Where the cooling of pages that were not sampled has come to in a hot list (5.1's cooling thread).
#[derive(Debug, Default, Clone, Copy)]
struct Round {
    /// Sequence number of the next entry.
    next: u32,
    /// Entries still to look at.
    left: usize,
}

const EVERYTHING: Range = Range {
    start: Addr(0),
    end: Addr(u64::MAX),
};

/// HeMem: hot and cold lists by samples of a PMU.
pub static PRESET: Preset = SAMPLED;

const SAMPLED: Preset = Preset {
    name: "hemem",
    title: "hot and cold lists by samples of loads and stores",
    paper: Some("HeMem, SOSP '21"),
    needs: Capabilities::SAMPLES,
    // Writers wait: 3.4 of its paper.
    uses: Capabilities::MAPPINGS.union(Capabilities::WRITERS_WAIT),
    on_sockets: Capabilities::empty(),
    priorities: true,
    limits: false,
    colour: Colour {
        light: "#6a4fb3",
        dark: "#b39df0",
    },
    help: params::HELP,
    dilated: params::dilated,
    build: |settings, host| Ok(Box::new(Hemem::new(Params::read(settings)?, &host.tiers))),
};

/// The policy's state.
#[derive(Debug)]
pub struct Hemem {
    params: Params,
    table: Table,
    lists: [List; QUEUES],
    regions: Regions,
    tiers: Tiers,
    memory: FreeMemory,
    /// The migration rate limit (3.2).
    limit: TokenBucket,
    /// The cooling clock.
    clock: u16,
    /// Of the two hot lists, in the order of [`Queue`].
    rounds: [Round; 2],
    /// The clock has advanced since the last round began.
    round_due: bool,
    inflight: usize,
    inflight_bytes: u64,
    /// Pages that were unmapped while they were migrated: until that ends nothing is ordered for what
    /// is mapped there now.
    orphans: BTreeSet<(Pid, Addr)>,
    /// Of the fast tier.
    inventory: migrate::Inventory,
    /// For slow pages of programs with priority.
    search: migrate::Inventory,
    deadline: Nanos,
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Hemem {
    /// For a machine with these tiers.
    #[must_use]
    pub fn new(params: Params, tiers: &Tiers) -> Self {
        Self {
            table: Table::new(params.page_size),
            lists: Default::default(),
            regions: Regions::default(),
            tiers: tiers.clone(),
            memory: FreeMemory::new(tiers),
            limit: TokenBucket::default(),
            clock: 0,
            rounds: [Round::default(); 2],
            round_due: false,
            inflight: 0,
            inflight_bytes: 0,
            orphans: BTreeSet::new(),
            inventory: migrate::Inventory::new(params.inventory_interval),
            search: migrate::Inventory::new(params.inventory_interval),
            deadline: Nanos::ZERO,
            actions: VecDeque::from_iter(params.scan_interval.map(|pass| Action::ReadAccessed {
                shortest: pass,
                pass,
                parts: 1,
            })),
            counters: Counters::default(),
            params,
        }
    }

    /// The fast tier's size.
    fn fast_bytes(&self) -> u64 {
        self.tiers.top().map(|node| node.capacity_bytes).sum()
    }

    fn threshold(&self) -> u64 {
        self.params.threshold(self.fast_bytes())
    }

    /// The list a page belongs to.
    fn queue_of(&self, unit: u32, meta: Meta) -> Option<Queue> {
        if meta.moving() {
            return None;
        }
        let priority = self.regions.priority(self.table.pid(unit));
        match (meta.tier(), priority) {
            (Tier::Unknown, _) | (Tier::Fast, true) => None,
            (Tier::Fast, false) if meta.hot() => Some(Queue::FastHot),
            (Tier::Fast, false) => Some(Queue::FastCold),
            (Tier::Slow, true) => Some(Queue::SlowPriority),
            (Tier::Slow, false) => meta.hot().then_some(Queue::SlowHot),
        }
    }

    /// Takes a page out of its list; `queue` is the one that its entry says.
    fn unlist(&mut self, unit: u32, queue: Option<Queue>) {
        let meta = self.table.get(unit);
        if let (true, Some(queue)) = (meta.listed(), queue) {
            let list = &mut self.lists[queue as usize];
            list.remove(meta.seq);
            let mut out = meta;
            out.set_listed(false);
            self.table.set(unit, out);
            if list.wants_packing() {
                let table = &mut self.table;
                let mut nobody = 0;
                let round = self.rounds.get_mut(queue as usize);
                let come_to = round.map_or(&mut nobody, |round| &mut round.next);
                list.pack(come_to, |unit, seq| {
                    let mut meta = table.get(unit);
                    meta.seq = seq;
                    table.set(unit, meta);
                });
            }
        }
    }

    /// Gives a page its new entry and puts it where that belongs.
    fn put(&mut self, unit: u32, mut new: Meta, seat: Seat) {
        let old = self.table.get(unit);
        let (from, to) = (self.queue_of(unit, old), self.queue_of(unit, new));
        if old.listed() && from == to && seat == Seat::Keep {
            new.seq = old.seq;
            new.set_listed(true);
            self.table.set(unit, new);
            return;
        }
        self.unlist(unit, from);
        new.set_listed(false);
        if let Some(queue) = to {
            let list = &mut self.lists[queue as usize];
            // Write-heavy pages are first, whichever memory they come to (3.3).
            let front = match seat {
                Seat::Front => true,
                Seat::Back => false,
                Seat::Keep => new.heavy() && new.hot(),
            };
            new.seq = if front {
                list.push_front(unit)
            } else {
                list.push_back(unit)
            };
            new.set_listed(true);
        }
        self.table.set(unit, new);
    }

    /// An access was sampled.
    fn sampled(&mut self, page: PageRef, node: NodeId, write: bool) {
        let fast = self.tiers.is_top(node);
        self.counters.samples_fast += u64::from(fast);
        self.counters.samples_slow += u64::from(!fast);
        self.counters.samples_stores += u64::from(write);
        let Some(unit) = self.managed(page) else {
            self.counters.samples_unmanaged += 1;
            return;
        };
        let mut meta = self.table.get(unit);
        if !meta.moving() {
            meta.set_tier(if fast { Tier::Fast } else { Tier::Slow });
        }
        let cooled = classify::cool(&mut meta, self.clock, &self.params);
        let (seat, advances) = classify::count(&mut meta, write, &self.params);
        if advances {
            self.counters.coolings += 1;
            self.clock = (self.clock + 1) % CLOCK_TURN;
            self.round_due = true;
        }
        let seat = if seat == Seat::Keep { cooled } else { seat };
        self.put(unit, meta, seat);
    }

    /// The page's unit, if it is managed; made where it is new. Bound of memory: 2^32 units.
    fn managed(&mut self, page: PageRef) -> Option<u32> {
        if !self
            .regions
            .holds(page.pid, page.addr, self.params.page_size)
        {
            return None;
        }
        let first = page.addr.align_down(self.params.page_size);
        if self.orphans.contains(&(page.pid, first)) {
            return None;
        }
        self.table.find_or_make(page.pid, page.addr)
    }

    /// A page was found on a node. What is known of a page by its samples counts more, but for slow parts of what is to
    /// be fast in whole.
    fn resident(&mut self, page: PageRef, node: NodeId) {
        let fast = self.tiers.is_top(node);
        let first = page.addr.align_down(self.params.page_size).0;
        let size = self.params.page_size.bytes();
        let end = page.addr.0 + page.size.bytes();
        for addr in (first..end).step_by(usize::try_from(size).unwrap_or(usize::MAX)) {
            let part = PageRef {
                addr: Addr(addr),
                ..page
            };
            let Some(unit) = self.managed(part) else {
                continue;
            };
            let mut meta = self.table.get(unit);
            let part = meta.tier() == Tier::Fast && !fast && self.regions.priority(page.pid);
            if (meta.tier() == Tier::Unknown || part) && !meta.moving() {
                meta.set_tier(if fast { Tier::Fast } else { Tier::Slow });
                meta.set_retries(0);
                self.put(unit, meta, Seat::Keep);
                let asked = if fast {
                    &mut self.inventory
                } else {
                    &mut self.search
                };
                asked.found();
            }
        }
    }

    fn mapped(&mut self, pid: Pid, range: Range) {
        if self.regions.mapped(pid, range, self.threshold()) {
            self.inventory.renew();
            self.search.renew();
        }
    }

    fn forget(&mut self, pid: Pid, range: Range) {
        self.regions.unmapped(pid, range);
        for unit in self.table.units(pid, range) {
            let meta = self.table.get(unit);
            let queue = self.queue_of(unit, meta);
            self.unlist(unit, queue);
            if meta.moving() {
                self.orphans.insert((pid, self.table.page(unit).addr));
            }
            self.table.set(unit, Meta::default());
        }
        self.table.drop_blocks(pid, range);
    }

    fn set_priority(&mut self, pid: Pid, on: bool) {
        let units = self.table.units(pid, EVERYTHING);
        for &unit in &units {
            let queue = self.queue_of(unit, self.table.get(unit));
            self.unlist(unit, queue);
        }
        let threshold = self.threshold();
        if self.regions.set_priority(pid, on, threshold) {
            self.inventory.renew();
            self.search.renew();
        }
        for unit in units {
            let meta = self.table.get(unit);
            self.put(unit, meta, Seat::Keep);
        }
    }

    /// Cools stale pages of the hot lists that no sample has come to, some at a time.
    fn cool_unsampled(&mut self) {
        if std::mem::take(&mut self.round_due) && self.params.cooling_pages > 0 {
            for (round, list) in self.rounds.iter_mut().zip(&self.lists) {
                // One that is under way goes on and round, so that long lists are gone through, too.
                if round.left == 0 {
                    round.next = list.first();
                }
                round.left = list.span();
            }
        }
        for queue in 0..self.rounds.len() {
            let mut budget = self.params.cooling_pages;
            while self.rounds[queue].left > 0 && budget > 0 {
                let (seq, unit) = self.lists[queue].at_or_first(self.rounds[queue].next);
                self.rounds[queue].next = seq.wrapping_add(1);
                self.rounds[queue].left -= 1;
                budget -= 1;
                let Some(unit) = unit else { continue };
                let mut meta = self.table.get(unit);
                if meta.clock() != self.clock {
                    let seat = classify::cool(&mut meta, self.clock, &self.params);
                    self.put(unit, meta, seat);
                }
            }
        }
    }
}

impl Policy for Hemem {
    fn name(&self) -> &'static str {
        if self.params.scan_interval.is_some() {
            PAGE_TABLE.name
        } else {
            PRESET.name
        }
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            sample_period: Some(self.params.sample_period)
                .filter(|_| self.params.scan_interval.is_none()),
            copy_threads: Some(self.params.copy_threads),
            // The paper's scans have a thread for themselves (5.1).
            reads_regardless: self.params.scan_interval.is_some(),
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::Sampled {
                page, node, write, ..
            } => self.sampled(page, node, write),
            Event::Resident { page, node } => self.resident(page, node),
            Event::Ended {
                page,
                migration,
                verdict,
                ..
            } => self.ended(page, migration, verdict),
            Event::Mapped { pid, range } => self.mapped(pid, range),
            Event::Unmapped { pid, range } => self.forget(pid, range),
            Event::Gone { pid } => {
                self.forget(pid, EVERYTHING);
                self.regions.gone(pid);
            }
            Event::Share { pid, share } => self.set_priority(pid, share.priority > 0),
            Event::Memory { node, memory } => {
                if !self.memory.is_known() {
                    self.deadline = now;
                }
                self.memory.sampled_amid_orders(node, memory);
            }
            // HeMem's one source of accesses are samples; it keeps no shadows.
            Event::HintFault { .. }
            | Event::Armed { .. }
            | Event::Probed { .. }
            | Event::Moved { .. }
            | Event::Watched { .. }
            | Event::Latency { .. }
            | Event::Parts { .. }
            | Event::Faulted { .. }
            | Event::Runs { .. }
            | Event::Refused { .. }
            | Event::ShadowLost { .. } => {}
        }
    }

    fn accessed(&mut self, _now: Nanos, reading: &ChunkReading<'_>) {
        self.scanned(reading);
    }

    fn tick(&mut self, now: Nanos) {
        self.deadline = now + self.params.policy_interval;
        self.cool_unsampled();
        if !self.memory.is_known() || !self.params.migrate {
            return;
        }
        // Two intervals' worth may be used at once, and always one swap of pages.
        let (rate, interval) = (self.params.max_migration_rate, self.params.policy_interval);
        let most = bytes_in(interval + interval, rate).max(2 * self.page_bytes());
        self.limit.fill(now, rate, most);
        self.look_for_pages(now);
        self.restore_reserve(now);
        self.promote(now);
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<Measurement> {
        let listed = |queue: Queue| self.lists[queue as usize].len() as u64;
        let lists: u64 = self.lists.iter().map(List::bytes).sum();
        Figures {
            managed_bytes: self.regions.managed_bytes(),
            managed_threshold: self.threshold(),
            samples_fast: self.counters.samples_fast,
            samples_slow: self.counters.samples_slow,
            samples_unmanaged: self.counters.samples_unmanaged,
            samples_stores: self.counters.samples_stores,
            coolings: self.counters.coolings,
            fast_hot: listed(Queue::FastHot),
            fast_cold: listed(Queue::FastCold),
            slow_hot: listed(Queue::SlowHot),
            slow_priority: listed(Queue::SlowPriority),
            swaps: self.counters.swaps,
            promoted_write_heavy: self.counters.promoted_heavy,
            demoted_for_reserve: self.counters.reserve_cold,
            demoted_arbitrary: self.counters.reserve_arbitrary,
            ticks_without_cold: self.counters.no_cold,
            ticks_without_colder: self.counters.no_colder,
            given_up: self.counters.given_up,
            metadata_bytes: self.table.bytes() + lists,
        }
        .values()
    }
}
