// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono (EuroSys '25): captured idle time (CIT), candidate filtering, thresholds that tune themselves.
//!
//! ```text
//! CIT of a slow page < TH ──> candidate ──again < TH in the next round──> queue ──rate limit──> fast tier
//!                               └──not: out                                        <──LRU, up to pro──┘
//! victims of both tiers ──> heat maps ──> overlap: TH, misplacement ratio ──> rate limit
//! ```
//!
//! A page's idle time is from the clearing of its accessed bit to the reading that shows it or, as in the paper, from the
//! arming of its hint fault to the fault. Below the threshold in two rounds (3.1.2) the page is promoted,
//! asynchronously and at a limited rate. Threshold and limit follow the heat maps of both tiers (DCSC, 3.2.2) or the
//! threshold alone the limit (3.2.1). Under the high watermark pages are demoted in LRU order until the pro watermark
//! (3.3.1); where demoted pages are soon candidates again, the limit is halved (3.3.2). A huge page's threshold is a
//! 512th (3.4). Times are ns, idle times those of base pages ([`heat::as_base`]). `docs/papers/chrono.md` has each decision.
//!
//! * [`params`]; `filter` takes faults and readings in; [`queue`], [`tuning`], [`heat`] and `dcsc` (statistics) are the
//!   paper's parts, `victims` whom they are of; `migrate` gives orders and takes their ends; `marks` is what is kept of pages; this file ties them
//!   together.

mod dcsc;
mod figures;
mod filter;
pub mod heat;
mod marks;
mod migrate;
pub mod params;
pub mod queue;
pub mod tuning;
mod victims;

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Tiers;

use crate::Capabilities;
use crate::KernelScanner;
use crate::MachineOptions;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::event::ScanScope;
use crate::kit::FreeMemory;
use crate::kit::Residents;
use crate::kit::TokenBucket;
use crate::kit::rate;
use crate::kit::two_lists::List;
use crate::preset::Colour;
use dcsc::Dcsc;
use figures::Figures;
use marks::Demoted;
use marks::Marks;
use migrate::Flight;
pub use params::Params;
use params::Probe;
use params::Source;
use params::TuningKind;
use queue::Queue;
use tuning::Tuning;

/// The first rung of a pass is such a part of the threshold: what is hotter need not be told apart.
const FINER: u64 = 32;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    faults_slow: u64,
    candidates: u64,
    lost: u64,
    enqueued: u64,
    thrashed: u64,
}

/// Chrono: captured idle time, heat maps and LRU order by accessed bits; the first two by hint faults if asked for.
pub static PRESET: Preset = Preset {
    name: "chrono",
    title: "captured idle time of pages, thresholds from heat maps of the tiers",
    paper: Some("Chrono, EuroSys '25"),
    needs: Capabilities::HINT_FAULTS.union(Capabilities::ACCESSED_BITS),
    uses: Capabilities::CHOSEN_FAULTS,
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#b45f06",
        dark: "#f6b26b",
    },
    help: params::HELP,
    dilated: params::dilated,
    build: |settings, host| {
        let params = Params::read(settings, host.given)?;
        Ok(Box::new(Chrono::new(params, host.tiers.clone())))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Chrono {
    params: Params,
    tiers: Tiers,
    residents: Residents<Marks>,
    memory: FreeMemory,
    tuning: Tuning,
    dcsc: Dcsc,
    queue: Queue,
    allowance: TokenBucket,
    /// A promotion waits for room.
    starved: bool,
    /// Nodes that demotion is at work on.
    demoting: BTreeSet<NodeId>,
    demoted: Demoted,
    /// How long the next round of a page may take: a scan period, and by accessed bits the pass after it.
    round: Nanos,
    inflight: BTreeMap<PageRef, Flight>,
    /// When the last pass over the accessed bits of a process ended.
    watched: BTreeMap<Pid, Nanos>,
    /// The first rung and the length of passes, as asked for.
    asked: (Nanos, Nanos),
    /// A page counts as accessed, for the lists, that a reading so soon after the clearing shows.
    window: Nanos,
    /// When that was looked at last.
    window_at: Nanos,
    /// There are huge pages.
    huge: bool,
    looked: Nanos,
    /// Bytes of addresses that the scanner was asked for.
    scanned: u64,
    actions: VecDeque<Action>,
    deadline: Nanos,
    counters: Counters,
}

impl Chrono {
    /// For a machine with these tiers.
    #[must_use]
    pub fn new(params: Params, tiers: Tiers) -> Self {
        let mut chrono = Self {
            residents: Residents::new(&tiers),
            memory: FreeMemory::new(&tiers),
            tuning: Tuning::new(params),
            dcsc: Dcsc::new(params),
            queue: Queue::new(params.queue_bytes),
            allowance: TokenBucket::default(),
            starved: false,
            demoting: BTreeSet::new(),
            demoted: Demoted::default(),
            round: params.scan_period,
            inflight: BTreeMap::new(),
            watched: BTreeMap::new(),
            asked: (Nanos::ZERO, Nanos::ZERO),
            window: Nanos::MAX,
            window_at: Nanos::ZERO,
            huge: false,
            looked: Nanos::ZERO,
            scanned: 0,
            actions: VecDeque::new(),
            deadline: Nanos::ZERO,
            counters: Counters::default(),
            params,
            tiers,
        };
        chrono.scan();
        chrono.ask();
        chrono
    }

    /// Asks the scanner for passes, of what there is now.
    fn scan(&mut self) {
        self.scanned = self.residents.pages.mapped_bytes();
        let Params { cit, probe, .. } = self.params;
        let scope = if probe == Probe::Faults {
            ScanScope::All
        } else {
            ScanScope::Slow
        };
        let period = self.params.scan_period;
        if cit == Source::Faults || probe == Probe::Faults {
            self.actions.push_back(Action::Scan { scope, period });
        }
    }

    /// Asks for passes over the accessed bits: as long as the scanner's over what is known now and, where idle times
    /// are from them, longer than the threshold; with a first rung that is short against the threshold.
    fn ask(&mut self) {
        let known = self.residents.pages.mapped_bytes();
        let mut pass = rate::time_of(known, self.params.accessed_rate);
        pass = pass.max(self.params.statistic_period);
        let threshold = self.tuning.threshold();
        if self.params.cit == Source::AccessedBits {
            pass = pass.max(threshold.min(self.params.scan_period));
        }
        let pages = if self.huge { 512 } else { 1 };
        let finest = heat::FINEST.0 / pages;
        // Rungs are where buckets end.
        let finer = (threshold.0 / pages / FINER / finest).max(1);
        let shortest = Nanos((finest << finer.ilog2()).min(pass.0 / 8));
        let (rung, length) = self.asked;
        if rate::differs(pass, length) || shortest.0 < rung.0 / 2 || shortest.0 / 2 > rung.0 {
            self.asked = (shortest, pass);
            self.actions.push_back(Action::ReadAccessed {
                shortest,
                pass,
                parts: 1,
            });
        }
    }

    /// A pass over a process is over. What two passes did not tell of is gone.
    fn pass_ended(&mut self, now: Nanos, pid: Pid) {
        if let Some(before) = self.watched.insert(pid, now) {
            for key in self.residents.pages.unread(pid, before) {
                self.residents.forget(key, &PageBits::ALL);
            }
            if self.params.cit == Source::AccessedBits {
                self.round = self.params.scan_period + now.since(before);
            }
        }
        let known = self.residents.pages.mapped_bytes();
        if known.abs_diff(self.scanned) > self.scanned / 8 {
            self.scan();
        }
        self.adjust_window(now);
        self.ask();
    }

    /// Where a pass has not shown enough that is cold, the next looks for what is not accessed in half the time, as
    /// kswapd comes round the sooner the less it finds.
    fn adjust_window(&mut self, now: Nanos) {
        let (shortest, pass) = self.asked;
        if now.since(self.window_at).0 < pass.0 / 2 {
            return;
        }
        self.window_at = now;
        let short = |node: &NodeId| self.shortage(*node) > 0;
        self.window = if self.demoting.iter().any(short) {
            Nanos(self.window.min(pass).0 / 2).max(shortest)
        } else {
            Nanos(self.window.0.saturating_mul(2)).min(pass)
        };
    }

    /// Threshold and limit from the heat maps, if it is time for that.
    fn look(&mut self, now: Nanos) {
        if self.params.tuning != TuningKind::Dcsc
            || now.since(self.looked) < self.params.statistic_period
        {
            return;
        }
        self.looked = now;
        let tiers = &self.tiers;
        let is_top = |node| tiers.is_top(node);
        let free = self.spare();
        let pages = &self.residents.pages;
        if let Some(found) = self.dcsc.look(now, pages, is_top, free) {
            let bytes = pages.all().map(|(_, chunk)| chunk.bytes()).sum();
            self.tuning.overlap(found, bytes);
        }
        if !self.dcsc.is_drawn() {
            self.dcsc.draw(now, pages, is_top);
        }
    }
}

impl Policy for Chrono {
    fn name(&self) -> &'static str {
        PRESET.name
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            scanner: KernelScanner::InService,
            scan_step: Some(self.params.scan_step),
            arms_chosen: self.params.probe == Probe::ChosenFaults || self.params.arms_demoted(),
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault {
                page, node, idle, ..
            } => self.hint_fault(now, page, node, idle),
            Event::Armed { pid, range, .. } => {
                if self.params.probe == Probe::Faults {
                    self.dcsc.armed(now, pid, range);
                }
            }
            Event::Ended {
                page,
                migration,
                verdict,
                ..
            } => self.ended(now, page, migration, verdict),
            Event::Watched { pid, .. } => self.pass_ended(now, pid),
            Event::Unmapped { pid, range } => {
                for (key, pages) in self.residents.pages.within(pid, range) {
                    self.residents.forget(key, &pages);
                }
            }
            Event::Gone { pid } => {
                for key in self.residents.pages.unread(pid, Nanos::MAX) {
                    self.residents.forget(key, &PageBits::ALL);
                }
                self.watched.remove(&pid);
            }
            Event::Memory { node, memory } => self.memory.sampled(node, memory),
            Event::Refused {
                what: Action::Arm { page },
                ..
            } => self.dcsc.not_armed(page),
            Event::Sampled { .. }
            | Event::Mapped { .. }
            | Event::Resident { .. }
            | Event::ShadowLost { .. }
            | Event::Probed { .. }
            | Event::Moved { .. }
            | Event::Latency { .. }
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
        self.deadline = now + self.params.tick;
        self.tuning.at(now);
        self.look(now);
        self.promote(now);
        self.demote();
    }

    fn poll_action(&mut self) -> Option<Action> {
        let action = self.actions.pop_front();
        action.or_else(|| self.dcsc.next_to_arm().map(|page| Action::Arm { page }))
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<Measurement> {
        let c = &self.counters;
        let (enqueue_rate, dequeue_rate) = self.tuning.rates();
        let mut told: Vec<Measurement> = Figures {
            cit_threshold: self.tuning.threshold().0 / 1_000,
            rate_limit: self.tuning.limit(),
            misplacement_percent: self.tuning.misplacement_percent(),
            thrash_percent: self.tuning.thrash_percent(),
            enqueue_rate,
            dequeue_rate,
            queued: self.queue.len() as u64,
            queue_dropped: self.queue.dropped,
            hint_faults_slow: c.faults_slow,
            candidates: c.candidates,
            candidates_lost: c.lost,
            enqueued: c.enqueued,
            thrashed: c.thrashed,
            heat_maps: self.dcsc.looks,
            victims: self.dcsc.len(),
            pro_watermark: self.pro_watermark(),
            active: self.residents.listed(List::Active),
            inactive: self.residents.listed(List::Inactive),
            metadata_bytes: self.residents.bytes(),
        }
        .values();
        told.extend(self.dcsc.maps.iter().flat_map(figures::heat));
        told
    }
}
