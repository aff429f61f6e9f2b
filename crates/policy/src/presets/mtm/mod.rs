// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM (EuroSys '24): profiling of regions within an overhead, a global view of all tiers.
//!
//! ```text
//! counters on ──> pages chosen ──> scan, scan, scan, scan ──> regions merged and split ──> samples settled ──> moves
//! └─ interval / 10                 └─ spacing / 2, 1, 2                                                       planned
//! └──────────────────────────────────────────── interval ────────────────────────────────────────────────────┘
//! ```
//!
//! Memory is profiled in regions (5.1), each by a few of its pages, each of those by a few scans of its accessed
//! bit. How many pages there are follows from what a scan takes and from what profiling may take (5.3); which
//! regions have how many, from where hotness varies (5.2). In the slowest tier samples of accesses say which page
//! is scanned, where there are any (5.5). Once an interval the regions of all tiers are ranked by their moving
//! averages, and the hottest go to the fastest tier (6).
//!
//! Pages are scanned by name ([`Action::ProbeRange`]). `docs/papers/mtm.md` has each decision.
//!
//! * [`params`], `figures`; [`regions`], [`quota`], `profile` (chosen pages and what was found), `round` (a scan of them),
//!   `spacing` (how far apart scans are), `overhead`, `faults` (whose accesses they are).
//! * [`histogram`], `views` (tiers as a socket sees them), `plan`, `orders`. This file ties them together;
//!   `interval` is what happens when.

mod faults;
mod figures;
pub mod histogram;
mod interval;
mod orders;
mod overhead;
pub mod params;
mod plan;
mod profile;
pub mod quota;
pub mod regions;
mod round;
mod spacing;
mod views;

use std::collections::VecDeque;

use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::Tiers;

use crate::Capabilities;
use crate::Host;
use crate::MachineOptions;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::event::Migration;
use crate::event::Reason;
use crate::kit::FreeMemory;
use crate::kit::Random;
use crate::preset::Colour;
use faults::Arming;
use figures::Figures;
use interval::Stage;
use orders::Orders;
use overhead::Overhead;
use params::Copying;
pub use params::Params;
use profile::Captured;
use profile::Profile;
use quota::Quota;
use regions::Regions;
use round::Round;
use spacing::Agreement;
use spacing::Apart;
use views::Views;

/// Of the generator that chooses pages.
const SEED: u64 = 0x004d_544d;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    intervals: u64,
    merged: u64,
    split: u64,
    num_ps: u64,
    samples: u64,
    scanned: u64,
    scans: u64,
    captured: u64,
    accessors: u64,
    faults: u64,
    promotions: u64,
    demotions: u64,
}

/// MTM: regions within an overhead, by accessed bits.
pub static PRESET: Preset = Preset {
    name: "mtm",
    title: "regions profiled within an overhead, a global view of all tiers, by accessed bits",
    paper: Some("MTM, EuroSys '24"),
    needs: Capabilities::ACCESSED_BITS,
    uses: Capabilities::SAMPLES
        .union(Capabilities::MAPPINGS)
        .union(Capabilities::ADAPTIVE_COPY)
        // What the agent has of it: it copies beside the program, and the first write waits for the rest.
        .union(Capabilities::WRITERS_WAIT),
    on_sockets: Capabilities::HINT_FAULTS,
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#741b47",
        dark: "#d5a6bd",
    },
    help: params::HELP,
    dilated: params::dilated,
    build: |settings, host| {
        let params = Params::read(settings)?;
        Ok(Box::new(Mtm::new(params, host)))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Mtm {
    params: Params,
    tiers: Tiers,
    views: Views,
    arming: Arming,
    /// Of all nodes, bytes.
    machine_bytes: u64,
    regions: Regions,
    quota: Quota,
    profile: Profile,
    captured: Captured,
    /// Samples of accesses are there.
    counted: bool,
    overhead: Overhead,
    apart: Apart,
    memory: FreeMemory,
    orders: Orders,
    /// What making the last plan took, bytes.
    plan_bytes: u64,
    stage: Stage,
    /// When the interval began.
    begun: Nanos,
    /// The last scan.
    round: Round,
    /// When the interval's first scan was asked for.
    first_scan: Nanos,
    /// Scans that followed it.
    scans: u8,
    /// How well this interval's scans agree.
    agreement: Option<Agreement>,
    actions: VecDeque<Action>,
    random: Random,
    deadline: Nanos,
    counters: Counters,
}

impl Mtm {
    /// For that machine.
    #[must_use]
    pub fn new(params: Params, host: &Host) -> Self {
        let nodes = host.tiers.nodes().iter();
        Self {
            views: Views::new(&host.tiers, &host.views),
            tiers: host.tiers.clone(),
            machine_bytes: nodes.map(|node| node.capacity_bytes).sum(),
            arming: Arming::new(!host.given.contains(Capabilities::HINT_FAULTS)),
            regions: Regions::default(),
            quota: Quota::default(),
            profile: Profile::default(),
            captured: Captured::default(),
            counted: false,
            overhead: Overhead::new(&params),
            apart: Apart::new(&params),
            memory: FreeMemory::default(),
            orders: Orders::default(),
            plan_bytes: 0,
            stage: Stage::Unmeasured,
            begun: Nanos::ZERO,
            round: Round::default(),
            first_scan: Nanos::ZERO,
            scans: 0,
            agreement: None,
            actions: VecDeque::from([Action::Sample { on: false }]),
            random: Random::new(SEED),
            deadline: Nanos::ZERO,
            counters: Counters::default(),
            params,
        }
    }

    /// The regions as they are.
    #[must_use]
    pub const fn regions(&self) -> &Regions {
        &self.regions
    }

    /// Nodes whose regions counters guide.
    fn guided(&self) -> &[terrace_core::NodeId] {
        if self.counted && self.params.pebs {
            self.views.slowest()
        } else {
            &[]
        }
    }

    fn bytes(&self) -> u64 {
        let pages = self.profile.bytes() + self.captured.bytes();
        self.regions.bytes() + pages + self.orders.bytes() + self.plan_bytes
    }

    fn refused(&mut self, now: Nanos, what: Action) {
        match what {
            Action::Scan { .. } => self.arming.unserved = true,
            Action::ProbeRange { .. } => self.answered(now, 1),
            _ => {}
        }
    }

    fn arrived(&mut self, done: &orders::Done) {
        let Some(node) = orders::arrived(done) else {
            return;
        };
        let what = &done.what;
        let inside = self.regions.within_mut(what.pid, what.start, what.end);
        // A region that was joined with more meanwhile is where its samples say.
        for region in inside {
            if region.start >= what.start && region.end <= what.end {
                region.node = Some(node);
            }
        }
    }
}

impl Policy for Mtm {
    fn name(&self) -> &'static str {
        "mtm"
    }

    fn machine_options(&self) -> MachineOptions {
        MachineOptions {
            sample_period: self.params.pebs.then_some(self.params.sample_period),
            copy_threads: Some(self.params.copy_threads),
            copies_wait: self.params.migration == Copying::Sync,
            first_placement: self.params.first_placement,
            ..MachineOptions::default()
        }
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::Probed {
                page,
                node,
                accessed,
            } => self.probed(page, node, accessed),
            Event::Watched {
                pages, busy, lost, ..
            } => self.watched(now, pages, busy + lost),
            Event::Sampled { page, node, .. } => self.sampled(page, node),
            Event::Mapped { pid, range } => {
                self.regions.map(pid, range, self.machine_bytes);
                if self.stage == Stage::Unmeasured {
                    self.deadline = self.deadline.min(now);
                }
            }
            Event::Unmapped { pid, range } => self.regions.unmap(pid, range),
            Event::Gone { pid } => self.regions.gone(pid),
            Event::Ended {
                page,
                migration,
                verdict,
                ..
            } => {
                let memory = &mut self.memory;
                if let Some(done) = self.orders.ended(page, migration, verdict, memory) {
                    self.arrived(&done);
                }
            }
            Event::Refused { what, .. } => self.refused(now, what),
            Event::Memory { node, memory } => self.memory.sampled(node, memory),
            Event::HintFault { page, cpu_node, .. } => self.faulted(page, cpu_node),
            Event::Faulted { faults, took } => self.overhead.faults_took(faults.into(), took),
            Event::Armed { .. }
            | Event::Resident { .. }
            | Event::ShadowLost { .. }
            | Event::Moved { .. }
            | Event::Latency { .. }
            | Event::Parts { .. }
            | Event::Runs { .. }
            | Event::Share { .. } => {}
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.go_on(now);
    }

    fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        if let Some(action) = self.next_look() {
            return Some(action);
        }
        let most = self.params.inflight_pages;
        let (page, migration) = self.orders.next(most, &mut self.memory)?;
        let reason = match migration {
            Migration::Promote { .. } => Reason::Hot,
            Migration::Demote { .. } | Migration::Exchange { .. } => Reason::MakeRoom,
        };
        Some(Action::Migrate {
            page,
            migration,
            mechanism: None,
            reason,
        })
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and not negative"
    )]
    fn counters(&self) -> Vec<Measurement> {
        let (c, o) = (&self.counters, &self.overhead);
        Figures {
            intervals: c.intervals,
            regions: self.regions.len() as u64,
            regions_merged: c.merged,
            regions_split: c.split,
            num_ps: c.num_ps,
            page_samples: c.samples,
            pages_scanned: c.scanned,
            scans: c.scans,
            one_scan_ns: o.scan_ns().unwrap_or(0.0) as u64,
            profiling_us: o.total().0 / 1_000,
            profiling_worst: o.worst,
            scan_spacing_us: self.apart.spacing.0 / 1_000,
            tau_m_milli: (o.tau_m * 1e3) as u64,
            samples_captured: c.captured,
            accessors_told: c.accessors,
            promotions_planned: c.promotions,
            demotions_planned: c.demotions,
            promoted_bytes: self.orders.promoted,
            demoted_bytes: self.orders.demoted,
            orders_failed: self.orders.failed,
            moving: self.orders.len() as u64,
            metadata_bytes: self.bytes(),
        }
        .values()
    }
}
