// SPDX-License-Identifier: MIT OR Apache-2.0
//! AutoTiering (ATC '21): several sockets with several tiers each; access tier before locality.
//!
//! ```text
//! hint fault ──> the accessing socket's best node, if it has room
//!                 └─ full ─> opm*: its least accessed page (LAP) goes to the slow node near who accessed it last
//!                            cpm*: the next best node with room        *x: two pages change places
//! ```
//!
//! Every socket has its own order of the nodes ([`terrace_core::Views`]): all fast ones before all slow ones (3.1). A
//! hint fault is a demand for the best of them (4.1). What is rarely accessed is known by a history of eight bits a
//! page, shifted once a scan round (4.2.1); opportunistic modes demote the least accessed page where the faulting one
//! is accessed more (4.2), from a reserve of free pages that is refilled in the background (4.3) or as one exchange.
//!
//! Nothing takes the place of a page that is accessed as much, and nothing else limits the rate. Rounds get longer as
//! AutoNUMA's do.
//! `docs/papers/autotiering.md` has each decision.
//!
//! * [`params`]; `history`, `accessors` and `lap` (of each page, and the lists made of it), `known` (what is known of pages), `reserve`
//!   (free pages in reserve), `measured` (reads, for the order of the nodes); `decide` what a fault leads to, `moves` orders and their ends; this file ties them together.

mod accessors;
mod decide;
mod figures;
mod history;
mod known;
mod lap;
mod measured;
mod moves;
pub mod params;
mod reserve;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Views;

use crate::Capabilities;
use crate::MachineOptions;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::event::ScanScope;
use crate::kernel::scan_period::ScanPeriod;
use crate::kit::FreeMemory;
use crate::kit::Pages;
use crate::kit::pages::Key;
use crate::kit::pages::split;
use crate::preset::Colour;
use decide::Demand;
use figures::Figures;
use known::Known;
use lap::Laps;
use measured::Measured;
use moves::Flight;
pub use params::Mode;
pub use params::Params;
use reserve::Reserve;

/// Pages of a pair of nodes that wait for a partner at most: more than a round could match.
const DEFERRED_MAX: usize = 4096;
/// Rounds of eight that make a page hot in figure 11.
const HOT_ROUNDS: usize = 7;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    demands: u64,
    to_best: u64,
    to_other_fast: u64,
    to_nearer_slow: u64,
    unanswered: u64,
    exchanges_in_tier: u64,
    exchanges_of_tiers: u64,
    demotions_for_promotion: u64,
    demotions_in_background: u64,
    from_reserve: u64,
    reserve_empty: u64,
    not_more_accessed: u64,
}

/// AutoTiering: tier before locality, least accessed pages, exchange.
pub static PRESET: Preset = Preset {
    name: "autotiering",
    title: "several sockets: access tier before locality, least accessed pages make room, exchange",
    paper: Some("AutoTiering, ATC '21"),
    needs: Capabilities::HINT_FAULTS.union(Capabilities::ACCESSED_BITS),
    uses: Capabilities::EXCHANGE.union(Capabilities::LATENCIES),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#38761d",
        dark: "#93c47d",
    },
    help: params::HELP,
    dilated: params::dilated,
    build: |settings, host| {
        let params = Params::read(settings)?;
        let exchanges = host.given.contains(Capabilities::EXCHANGE);
        Ok(Box::new(Autotiering::new(
            params,
            host.views.clone(),
            exchanges,
        )))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Autotiering {
    params: Params,
    /// As they are described and measured.
    views: Views,
    measured: Measured,
    /// All memory nodes.
    nodes: Vec<NodeId>,
    /// Those that have a lower tier: what is on them is listed, and may go down.
    upper: Vec<NodeId>,
    pages: Pages<Known>,
    /// For each of the upper nodes two sets: of base pages and of huge ones.
    laps: Laps<Key>,
    /// By the upper nodes' places.
    reserves: Vec<Reserve>,
    /// Huge pages were seen: some are to be in reserve, too.
    huge: bool,
    memory: FreeMemory,
    inflight: BTreeMap<PageRef, Flight>,
    /// Pages of those: each one, its partner, and what is to follow it. Also of what was unmapped meanwhile.
    flying: BTreeSet<PageRef>,
    /// Pages that are on a node and could not be migrated to another, and some that wait there no more.
    deferred: BTreeMap<(NodeId, NodeId), VecDeque<PageRef>>,
    /// Of those that wait the two nodes.
    waits: BTreeMap<PageRef, (NodeId, NodeId)>,
    /// Whether the mover exchanges pages, and those of two processes.
    exchanges: bool,
    across: bool,
    /// When the last round over a process ended.
    watched: BTreeMap<Pid, Nanos>,
    /// How long the scanner's rounds are, as AutoNUMA has it.
    scan: ScanPeriod,
    scope: ScanScope,
    /// Demands in this round of the scanner, and those of them that were answered.
    demands: u64,
    answered: u64,
    /// How long readings were asked to take.
    pass: Nanos,
    actions: VecDeque<Action>,
    deadline: Nanos,
    counters: Counters,
}

impl Autotiering {
    /// For a machine whose memory is seen so; `exchanges` says whether its mover has two pages change places.
    #[must_use]
    pub fn new(params: Params, views: Views, exchanges: bool) -> Self {
        let first = views.of(None);
        let seen = || first.into_iter().flat_map(|view| view.nodes());
        let mut nodes: Vec<NodeId> = seen().map(|seen| seen.node).collect();
        nodes.sort_unstable();
        let lower = |node: &NodeId| first.is_some_and(|view| view.demotion(*node).next().is_some());
        let upper: Vec<NodeId> = nodes.iter().copied().filter(lower).collect();
        // Remote fast memory is armed, too, where there is more than one view of what is remote.
        let scope = if views.all().len() > 1 {
            ScanScope::All
        } else {
            ScanScope::Slow
        };
        let mut policy = Self {
            laps: Laps::new(2 * upper.len()),
            reserves: vec![Reserve::default(); upper.len()],
            huge: false,
            nodes,
            upper,
            measured: Measured::new(views.clone()),
            views,
            pages: Pages::default(),
            memory: FreeMemory::default(),
            inflight: BTreeMap::new(),
            flying: BTreeSet::new(),
            deferred: BTreeMap::new(),
            waits: BTreeMap::new(),
            exchanges,
            across: true,
            watched: BTreeMap::new(),
            pass: Nanos::ZERO,
            scan: ScanPeriod::new(params.scan_period_min, params.scan_period_max, u32::MAX),
            scope,
            demands: 0,
            answered: 0,
            actions: VecDeque::new(),
            deadline: Nanos::ZERO,
            counters: Counters::default(),
            params,
        };
        policy.rescan(Nanos::ZERO);
        policy
    }

    /// The scanner's period, as AutoNUMA adapts it: longer while most accesses are where they should be, twice as long
    /// where most demands could not be answered.
    fn rescan(&mut self, now: Nanos) {
        if now >= self.scan.due {
            if 2 * self.answered < self.demands {
                self.scan.migration_failed();
            }
            (self.demands, self.answered) = (0, 0);
        }
        let scope = self.scope;
        if let Some(period) = self.scan.tick(now) {
            self.actions.push_back(Action::Scan { scope, period });
            self.ask();
        }
    }

    /// There is something to do at once.
    const fn hurry(&mut self) {
        self.deadline = Nanos::ZERO;
    }

    /// A page was touched: if who touched it has a better node for it, that is a demand. Pages of 1 GiB have no
    /// accessed bits that are read.
    fn hint_fault(&mut self, now: Nanos, page: PageRef, node: NodeId, cpu_node: Option<NodeId>) {
        if page.size == PageSize::Giant1G || !self.nodes.contains(&node) {
            return;
        }
        let Some(view) = self.views.index_of(cpu_node) else {
            return;
        };
        let at = split(page);
        let who = cpu_node.map(|_| view);
        self.seen(now, at, (page.size, node), who);
        let (key, index) = at;
        let best = self.views.all()[view].better(node).next();
        let chunk = self.pages.get(key).filter(|chunk| !chunk.flying.get(index));
        self.scan.fault(best.is_none());
        let (Some(best), Some(chunk)) = (best, chunk) else {
            return;
        };
        self.counters.demands += 1;
        self.demands += 1;
        if self.inflight.len() >= self.params.inflight_pages {
            self.counters.unanswered += 1;
            return;
        }
        let level = chunk.own.history.level(index);
        self.decide(Demand {
            page,
            node,
            best,
            view,
            level,
        });
    }

    fn bytes(&self) -> u64 {
        let queued: usize = self.deferred.values().map(VecDeque::capacity).sum();
        let waiting = self.waits.len() * size_of::<(PageRef, (NodeId, NodeId))>();
        let deferred = queued * size_of::<PageRef>() + waiting;
        self.pages.bytes() + self.laps.bytes() + deferred as u64
    }
}

impl Policy for Autotiering {
    fn name(&self) -> &'static str {
        "autotiering"
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            first_placement: self.params.first_placement,
            exchanges: self.params.mode.exchanges(),
            demotes_in_fault: matches!(self.params.mode, Mode::Opm | Mode::Opmx),
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault {
                page,
                node,
                cpu_node,
                ..
            } => self.hint_fault(now, page, node, cpu_node),
            Event::Ended {
                page,
                migration,
                verdict,
                ..
            } => self.ended(page, migration, verdict),
            Event::Watched { pid, .. } => self.round_ended(now, pid),
            Event::Unmapped { pid, range } => {
                for (key, pages) in self.pages.within(pid, range) {
                    self.forget(key, &pages);
                }
            }
            Event::Gone { pid } => {
                for key in self.pages.unread(pid, Nanos::MAX) {
                    self.forget(key, &PageBits::ALL);
                }
                self.watched.remove(&pid);
            }
            Event::Latency { from, node, read } => {
                if let Some(views) = self.measured.took(from, node, read) {
                    self.views = views;
                }
            }
            Event::Memory { node, memory } => {
                self.memory.sampled(node, memory);
                self.fill(node);
            }
            Event::Armed { .. }
            | Event::Sampled { .. }
            | Event::Mapped { .. }
            | Event::Resident { .. }
            | Event::ShadowLost { .. }
            | Event::Probed { .. }
            | Event::Moved { .. }
            | Event::Parts { .. }
            | Event::Faulted { .. }
            | Event::Runs { .. }
            | Event::Refused { .. }
            | Event::Share { .. } => {}
        }
    }

    fn accessed(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        self.read(now, reading);
    }

    fn tick(&mut self, now: Nanos) {
        self.rescan(now);
        self.refill();
        // What was ordered is taken now.
        self.deadline = now + self.params.scan_period_min;
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<Measurement> {
        let c = &self.counters;
        let reserved = || self.reserves.iter().map(Reserve::pages);
        let (hot_fast, hot) = self.accessed_in(HOT_ROUNDS);
        Figures {
            demands: c.demands,
            to_best: c.to_best,
            to_other_fast: c.to_other_fast,
            to_nearer_slow: c.to_nearer_slow,
            unanswered: c.unanswered,
            deferred: self.waits.len() as u64,
            exchanges_in_tier: c.exchanges_in_tier,
            exchanges_of_tiers: c.exchanges_of_tiers,
            demotions_for_promotion: c.demotions_for_promotion,
            demotions_in_background: c.demotions_in_background,
            from_reserve: c.from_reserve,
            reserve_empty: c.reserve_empty,
            not_more_accessed: c.not_more_accessed,
            reserved_pages: reserved().map(|(base, _)| u64::from(base)).sum(),
            reserved_huge_pages: reserved().map(|(_, huge)| u64::from(huge)).sum(),
            hot_fast,
            hot,
            metadata_bytes: self.bytes(),
        }
        .values()
    }
}
