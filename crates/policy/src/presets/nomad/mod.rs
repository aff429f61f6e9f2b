// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad (OSDI '24): transactional page migration and page shadowing, as a policy.
//!
//! The policy decides *which* pages move and when; the transaction itself and the shadows are the
//! mover's. Section 3.1's road of a page: first hint fault, candidate queue; second, pending queue;
//! then a transaction in the background, retried when a write aborts it. Section 3.2: a promoted
//! page's old frame stays as shadow until it is written to, so that its demotion costs no copy;
//! shadows go first when the slow node runs low.
//!
//! Beyond the paper (it names the need, 4.2, and leaves it open): once the fast tier is full a page
//! must be clearly hotter than the one it displaces, and migration is rated by what it achieves.
//! `docs/papers/nomad.md` lists each decision.
//!
//! * [`params`], [`queues`] (PCQ and MPQ), [`victims`] (what to demote), [`rooms`] (free memory),
//!   [`governor`] (cost), [`shadows`] (their worth), [`scan`] (arming); `observe` and `migrate` are the steps; this file ties
//!   them together.

pub mod governor;
mod migrate;
mod observe;
pub mod params;
pub mod queues;
pub mod rooms;
pub mod scan;
pub mod shadows;
pub mod victims;

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Tiers;

use crate::Evidence;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::event::Reason;
use crate::event::ScanScope;
use crate::pages::Meta;
use crate::pages::Pages;
use crate::pages::State;
use crate::pages::class_idle;
use crate::pages::idle_class;
use governor::Governor;
pub use params::Params;
use queues::Candidates;
use queues::Pending;
use queues::Retries;
use rooms::Rooms;
use scan::PassView;
use scan::ScanControl;
use shadows::ShadowWorth;
use victims::Victims;

/// A page that could not be migrated is left alone so long, unless it is referenced: the next
/// inventory finds it again, cold as ever.
const REFUSED: Nanos = Nanos::from_secs(60);

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    faults_slow: u64,
    faults_fast: u64,
    referenced_twice: u64,
    eager: u64,
    retries: u64,
    given_up: u64,
    turned: u64,
}

/// Nomad: page transactions and shadows, by the kernel's hint faults.
pub static PRESET: Preset = Preset {
    name: "nomad",
    title: "transactional page migration and page shadowing, by hint faults",
    paper: Some("Nomad, OSDI '24"),
    evidence: Evidence::HintFaults,
    agent: true,
    writers_wait: false,
    priorities: false,
    help: params::HELP,
    dilated: |_| Vec::new(),
    build: |settings, tiers| {
        let params = Params::read(settings)?;
        Ok(Box::new(Nomad::new(params, tiers.clone())))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Nomad {
    params: Params,
    tiers: Tiers,
    pages: Pages,
    candidates: Candidates,
    pending: Pending,
    retries: Retries,
    victims: Victims,
    shadows: ShadowWorth,
    rooms: Rooms,
    governor: Governor,
    scan: ScanControl,
    inflight: usize,
    contended: bool,
    scarce: bool,
    on_fast: u64,
    inventory_due: Nanos,
    deadline: Nanos,
    actions: VecDeque<Action>,
    counters: Counters,
}

impl Nomad {
    /// For a machine with these tiers.
    #[must_use]
    pub fn new(params: Params, tiers: Tiers) -> Self {
        Self {
            candidates: Candidates::new(params.pcq_bytes),
            pending: Pending::new(params.mpq_bytes),
            rooms: Rooms::new(params.headroom_1024),
            governor: Governor::new(u64::MAX >> 8),
            scan: ScanControl::new(params.scan_period_min, params.scan_period_max),
            retries: Retries::default(),
            victims: Victims::default(),
            shadows: ShadowWorth::default(),
            pages: Pages::default(),
            inflight: 0,
            contended: false,
            scarce: false,
            on_fast: 0,
            inventory_due: Nanos::ZERO,
            deadline: Nanos::ZERO,
            actions: VecDeque::new(),
            counters: Counters::default(),
            params,
            tiers,
        }
    }

    fn memory(&mut self, node: NodeId, memory: NodeMemory) {
        self.rooms.sample(node, memory);
        if self.tiers.is_top(node) {
            self.governor
                .set_max_rate(memory.total_bytes / 1024 * self.params.contended_rate_1024);
        } else if memory.free_bytes < memory.low_bytes {
            let bytes = memory.high_bytes.saturating_sub(memory.free_bytes);
            self.actions.push_back(Action::ReclaimShadows {
                bytes,
                reason: Reason::SlowPressure,
            });
        }
    }

    fn request_inventory(&mut self, now: Nanos) {
        if now >= self.inventory_due {
            self.inventory_due = now + Nanos(self.scan.period().0 * 4);
            self.actions.push_back(Action::Inventory);
        }
    }

    /// Whether pages wait that the fast tier has no room for.
    fn is_contended(&self) -> bool {
        self.tiers.top().all(|n| {
            self.rooms.memory(n.id).is_some() && self.rooms.room(n.id) < n.capacity_bytes / 128
        })
    }

    fn control_scan(&mut self, now: Nanos) {
        let contended = self.contended && !self.pending.is_empty();
        let (armed, learned) = self.fast_armed(now);
        let view = PassView {
            armed,
            learned,
            full: self.contended,
            contended,
            scarce: self.scarce,
            futile: contended && self.governor.throttled(),
            pending: self.pending.len(),
            waiting: self.pending.sum(|class| scan::worth(class_idle(class))),
            worth: (self.on_fast / 8).max(64),
            on_fast: self.on_fast,
            fast_pages: self.tiers.top().map(|n| n.capacity_bytes >> 12).sum(),
        };
        if contended || self.contended && !self.scan.ages_known() {
            self.request_inventory(now);
        }
        self.scan.set_floor(self.shortest_pass());
        if let Some(action) = self.scan.tick(now, view) {
            self.victims.clear();
            self.scarce = false;
            self.actions.push_back(action);
        }
    }

    /// Whether all fast pages known have been armed since the scan control asked for it, and whether so
    /// long ago that those in use have faulted. The tracker is late at times and leaves ranges out: a few
    /// chunks are not waited for.
    fn fast_armed(&self, now: Nanos) -> (bool, bool) {
        let Some(since) = self.scan.asked_since(now) else {
            return (false, false);
        };
        let (mut armed, mut settled, mut chunks) = (0, 0, 0);
        let hold = self.scan.shortest();
        for (place, _) in self.tiers.top().flat_map(|n| self.pages.ranks(n.id)) {
            let at = self.pages.armed_at(place);
            armed += usize::from(at.settled(now, Nanos::ZERO) > since);
            settled += usize::from(at.settled(now, hold) > since);
            chunks += 1;
        }
        (armed * 16 >= chunks * 15, settled * 16 >= chunks * 15)
    }

    /// What the tracker needs for one pass over the memory that is known.
    fn shortest_pass(&self) -> Nanos {
        let bytes = u128::from(self.pages.bytes()) / 8 * u128::from(PageSize::Base4K.bytes());
        let nanos = bytes * 1_000_000_000 / u128::from(self.params.scan_rate_max.max(1));
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn expire(&mut self, now: Nanos) {
        let window = self.params.reference_passes * self.scan.period().0;
        let until = Nanos(now.0.saturating_sub(window));
        while let Some(page) = self.candidates.expire(until) {
            let young = self.pages.get(page).is_some_and(|m| m.last_ref() > until);
            if young
                && self
                    .pages
                    .get(page)
                    .is_some_and(|m| m.state == State::Candidate)
            {
                self.candidates.push(now, page);
            } else {
                demote_candidate(&mut self.pages, page);
            }
        }
        // With room left colder pages were welcome than those that another page may go for.
        if self.contended {
            let mark = idle_class(Some(self.contended_idle()));
            while let Some(page) = self.pending.pop_colder_than(mark) {
                set_state(&mut self.pages, page, State::Idle);
            }
        }
        // What waited in vain for room is not what is hottest now.
        if self.contended && self.pending.len() > self.params.inflight_pages * 8 {
            while self.pending.len() > self.params.inflight_pages * 4 {
                if let Some(page) = self.pending.pop_coldest() {
                    set_state(&mut self.pages, page, State::Idle);
                }
            }
        }
    }
}

fn set_state(pages: &mut Pages, page: PageRef, state: State) {
    if let Some(meta) = pages.get_mut(page) {
        meta.state = state;
    }
}

fn demote_candidate(pages: &mut Pages, page: PageRef) {
    if let Some(meta) = pages.get_mut(page)
        && meta.state == State::Candidate
    {
        meta.state = State::Idle;
    }
}

fn arrived(meta: &mut Meta, now: Nanos, node: NodeId, shadow: bool) {
    meta.set_node(node);
    meta.set_shadow(shadow);
    meta.set_turned(true);
    meta.set_retries(0);
    meta.touch(now);
    meta.state = State::Idle;
}

impl Policy for Nomad {
    fn name(&self) -> &'static str {
        "nomad"
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault {
                ref page,
                node,
                write,
                idle,
            } => {
                self.hint_fault(now, page, node, write, idle);
            }
            Event::Resident { page, node } => {
                let skip = |m: &Meta| {
                    let refused = m.retries() > 0 && now.since(m.last_ref()) < REFUSED;
                    m.node().is_some() || refused
                };
                if !self.pages.get(page).is_some_and(skip) {
                    self.scan.found(now);
                    self.pages.update(page, |meta| {
                        meta.set_node(node);
                        meta.set_retries(0);
                        meta.touch(now);
                    });
                }
            }
            Event::Ended {
                page,
                migration,
                verdict,
            } => self.ended(now, page, migration, verdict),
            Event::ShadowLost { page } => {
                self.shadows.written(page.pid);
                if let Some(meta) = self.pages.get_mut(page) {
                    meta.set_shadow(false);
                    meta.set_written(true);
                    meta.touch(now);
                }
            }
            Event::Armed { pid, range, scope } => {
                if scope == ScanScope::All {
                    self.pages.armed(pid, range, now);
                }
            }
            Event::Unmapped { pid, range } => self.pages.forget(pid, range),
            Event::Gone { pid } => {
                self.pages.forget_process(pid);
                self.shadows.forget(pid);
            }
            // Linux has nobody who reads accessed bits; samples and mappings are not its trackers'.
            Event::Probed { .. }
            | Event::Sampled { .. }
            | Event::Mapped { .. }
            | Event::Moved { .. }
            | Event::Watched { .. }
            | Event::Latency { .. }
            | Event::Priority { .. } => {}
            Event::Memory { node, memory } => self.memory(node, memory),
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.contended = self.is_contended();
        self.expire(now);
        self.relieve(now);
        self.promote(now);
        self.control_scan(now);
        // With nothing to do it is enough to look now and then; a hot page brings the next look
        // forward.
        let idle = self.pending.is_empty() && self.inflight == 0;
        self.deadline = now + Nanos(self.params.tick.0 * if idle { 4 } else { 1 });
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("hint_faults_slow", self.counters.faults_slow),
            ("hint_faults_fast", self.counters.faults_fast),
            ("referenced_twice", self.counters.referenced_twice),
            ("eager", self.counters.eager),
            ("on_fast", self.on_fast),
            ("candidates", self.candidates.len() as u64),
            ("candidates_dropped", self.candidates.dropped),
            ("pending", self.pending.len() as u64),
            ("pending_dropped", self.pending.dropped),
            ("retries", self.counters.retries),
            ("given_up", self.counters.given_up),
            ("turned", self.counters.turned),
            ("contended_rate_bytes", self.governor.rate()),
            ("scan_period_ms", self.scan.period().0 / 1_000_000),
            ("metadata_bytes", self.pages.bytes()),
        ]
    }
}
