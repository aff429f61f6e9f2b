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
//!   [`governor`] (cost), [`scan`] (arming); this file ties them together.

pub mod governor;
pub mod params;
pub mod queues;
pub mod rooms;
pub mod scan;
pub mod victims;

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::Tiers;

use crate::Policy;
use crate::event::Action;
use crate::event::Event;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Verdict;
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
use victims::Victims;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    faults_slow: u64,
    faults_fast: u64,
    referenced_twice: u64,
    retries: u64,
    given_up: u64,
    turned: u64,
}

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
    rooms: Rooms,
    governor: Governor,
    scan: ScanControl,
    inflight: usize,
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
            pages: Pages::default(),
            inflight: 0,
            inventory_due: Nanos::ZERO,
            deadline: Nanos::ZERO,
            actions: VecDeque::new(),
            counters: Counters::default(),
            params,
            tiers,
        }
    }

    fn hint_fault(
        &mut self,
        now: Nanos,
        page: PageRef,
        node: NodeId,
        write: bool,
        idle: Option<Nanos>,
    ) {
        let class = idle_class(idle);
        let fast = self.tiers.is_top(node);
        let window = Nanos(self.params.reference_passes * self.scan.period().0);
        let meta = self.pages.entry(page);
        let first_ref = meta.last_ref();
        meta.set_node(node);
        meta.set_written(write);
        meta.touch(now);
        if fast {
            self.counters.faults_fast += 1;
            meta.idle_class = class;
            if meta.state != State::InFlight {
                meta.state = State::Idle;
            }
            return;
        }
        self.counters.faults_slow += 1;
        match meta.state {
            State::Candidate if now.since(first_ref) <= window => {
                // The colder of the two rounds: one short idle time can be chance.
                let class = class.max(meta.idle_class);
                meta.idle_class = class;
                meta.state = State::Pending;
                meta.set_retries(0);
                self.counters.referenced_twice += 1;
                self.scan.found_hot();
                if let Some(coldest) = self.pending.push(class, page) {
                    set_state(&mut self.pages, coldest, State::Idle);
                }
            }
            State::Idle | State::Candidate => {
                let new = meta.state == State::Idle;
                meta.state = State::Candidate;
                meta.idle_class = class;
                if new && let Some(oldest) = self.candidates.push(now, page) {
                    demote_candidate(&mut self.pages, oldest);
                }
            }
            State::Pending | State::InFlight => {}
        }
    }

    fn ended(&mut self, now: Nanos, page: PageRef, migration: Migration, verdict: Verdict) {
        self.inflight = self.inflight.saturating_sub(1);
        let target = migration.target();
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        self.rooms.settle(
            target,
            page.size.bytes(),
            moved && verdict != Verdict::MovedOntoShadow,
        );
        let Some(meta) = self.pages.get_mut(page) else {
            return;
        };
        let from = meta.node();
        let retries = meta.retries();
        match verdict {
            Verdict::Moved { shadow } => arrived(meta, now, target, shadow),
            Verdict::MovedOntoShadow => arrived(meta, now, target, false),
            Verdict::Dirtied | Verdict::Busy => {
                meta.set_retries(retries + 1);
                if matches!(migration, Migration::Promote { .. })
                    && retries < self.params.max_retries
                {
                    meta.state = State::Pending;
                    let delay = self.params.retry_delay.0 << retries.min(8);
                    self.retries.push(now + Nanos(delay), page);
                } else {
                    meta.state = State::Idle;
                    // Not now, and not first next time either.
                    meta.touch(now);
                    self.counters.given_up += 1;
                }
            }
            Verdict::NoMemory => {
                meta.state = State::Idle;
                self.rooms.mark_full(target);
                self.no_memory(page, migration);
            }
            Verdict::Lost => *meta = Meta::default(),
        }
        if moved && let Some(from) = from {
            let kept = matches!(verdict, Verdict::Moved { shadow: true });
            if !kept {
                self.rooms.released(from, page.size.bytes());
            }
        }
    }

    fn no_memory(&mut self, page: PageRef, migration: Migration) {
        match migration {
            Migration::Promote { .. } => {
                if let Some(meta) = self.pages.get_mut(page) {
                    let class = meta.idle_class;
                    meta.state = State::Pending;
                    self.pending.push(class, page);
                }
            }
            Migration::Demote { .. } => self.actions.push_back(Action::ReclaimShadows {
                bytes: page.size.bytes() * self.params.shadow_reclaim_factor,
                reason: Reason::AllocationFailed,
            }),
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

    /// The roomiest node of the tier above.
    fn promotion_target(&self, from: NodeId) -> Option<NodeId> {
        self.tiers
            .above(from)
            .map(|n| n.id)
            .max_by_key(|id| (self.rooms.room(*id), std::cmp::Reverse(*id)))
    }

    fn demotion_target(&self, from: NodeId) -> Option<NodeId> {
        self.tiers
            .below(from)
            .map(|n| n.id)
            .max_by_key(|id| (self.rooms.room(*id), std::cmp::Reverse(*id)))
    }

    fn migrate(&mut self, page: PageRef, migration: Migration, reason: Reason) {
        set_state(&mut self.pages, page, State::InFlight);
        self.rooms.promise(migration.target(), page.size.bytes());
        self.inflight += 1;
        self.actions.push_back(Action::Migrate {
            page,
            migration,
            reason,
        });
    }

    /// Promotes what waits while there is room; makes room where it is worth it.
    fn promote(&mut self, now: Nanos) {
        while let Some(page) = self.retries.due(now) {
            let Some(meta) = self.pages.get(page) else {
                continue;
            };
            if meta.state == State::Pending {
                self.counters.retries += 1;
                self.pending.push(meta.idle_class, page);
            }
        }
        while self.inflight < self.params.inflight_pages {
            let Some((class, page)) = self.pending.peek() else {
                return;
            };
            let Some(meta) = self.pages.get(page).copied() else {
                self.pending.pop();
                continue;
            };
            let Some(to) = meta.node().and_then(|node| self.promotion_target(node)) else {
                self.pending.pop();
                set_state(&mut self.pages, page, State::Idle);
                continue;
            };
            if meta.state != State::Pending {
                self.pending.pop();
                continue;
            }
            if self.rooms.room(to) < page.size.bytes() {
                self.make_room(now, class, page, to);
                return;
            }
            self.pending.pop();
            let keep_shadow =
                self.params.shadowing && (self.params.shadow_written || !meta.written());
            let reason = if meta.retries() > 0 {
                Reason::Retry
            } else {
                Reason::ReferencedTwice
            };
            self.note_contended(now, &meta);
            self.migrate(page, Migration::Promote { to, keep_shadow }, reason);
        }
    }

    /// While the fast tier is full, a page that comes back the other way was moved in vain.
    fn note_contended(&mut self, now: Nanos, meta: &Meta) {
        if meta.turned() {
            self.counters.turned += 1;
        }
        if meta.turned() || self.contended() {
            self.governor.note(now, meta.turned());
        }
    }

    /// Demotes cold pages for hotter ones that wait, a batch at a time, as far as the governor
    /// lets it.
    fn make_room(&mut self, now: Nanos, class: u8, page: PageRef, on: NodeId) {
        if !self.scan.ages_known(now) {
            return;
        }
        let worth = Nanos(class_idle(class).0.saturating_mul(self.params.hysteresis));
        let free = self.params.inflight_pages.saturating_sub(self.inflight);
        let batch = self.pending.len().min(64).min(free);
        for _ in 0..batch {
            let Some((victim, age)) = self.coldest(now, on) else {
                return;
            };
            if age < worth
                || !self
                    .governor
                    .take(now, page.size.bytes() + victim.size.bytes())
            {
                return;
            }
            self.victims.take();
            self.demote(victim, on, Reason::MakeRoom);
        }
    }

    fn coldest(&mut self, now: Nanos, on: NodeId) -> Option<(PageRef, Nanos)> {
        let interval = Nanos(self.scan.period().0 / 4);
        self.victims
            .coldest(now, interval, &self.pages, |node| node == on)
    }

    fn demote(&mut self, page: PageRef, from: NodeId, reason: Reason) {
        if let Some(to) = self.demotion_target(from) {
            self.migrate(page, Migration::Demote { to }, reason);
        }
    }

    /// Keeps every fast node over its watermark, whatever is known of its pages' ages.
    fn relieve(&mut self, now: Nanos) {
        let fast: Vec<NodeId> = self
            .tiers
            .nodes()
            .iter()
            .map(|n| n.id)
            .filter(|id| self.tiers.is_top(*id))
            .collect();
        for node in fast {
            let mut shortage = self.rooms.shortage(node);
            // Half the headroom is slack: demote in batches, not page by page.
            if shortage * 2 < self.rooms.target(node).saturating_sub(self.low(node)) {
                continue;
            }
            while shortage > 0 && self.inflight < self.params.inflight_pages {
                let Some((victim, _)) = self.coldest(now, node) else {
                    self.request_inventory(now);
                    break;
                };
                self.victims.take();
                shortage = shortage.saturating_sub(victim.size.bytes());
                self.demote(victim, node, Reason::FastPressure);
            }
        }
    }

    fn low(&self, node: NodeId) -> u64 {
        self.rooms.memory(node).map_or(0, |m| m.low_bytes)
    }

    fn request_inventory(&mut self, now: Nanos) {
        if now >= self.inventory_due {
            self.inventory_due = now + Nanos(self.scan.period().0 * 4);
            self.actions.push_back(Action::Inventory);
        }
    }

    /// Whether pages wait that the fast tier has no room for.
    fn contended(&self) -> bool {
        self.tiers
            .nodes()
            .iter()
            .filter(|n| self.tiers.is_top(n.id))
            .all(|n| self.rooms.room(n.id) < n.capacity_bytes / 128)
    }

    fn control_scan(&mut self, now: Nanos) {
        let contended = self.contended() && !self.pending.is_empty();
        let view = PassView {
            contended,
            futile: contended && self.governor.throttled(),
            pending: self.pending.len(),
            worth: (self.victims.fast_pages() / 128).max(32),
        };
        if contended {
            self.request_inventory(now);
        }
        if let Some(action) = self.scan.tick(now, view) {
            self.victims.clear();
            self.actions.push_back(action);
        }
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
        // What waited in vain for room is not what is hottest now.
        if self.contended() && self.pending.len() > self.params.inflight_pages * 8 {
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
                page,
                node,
                write,
                idle,
            } => {
                self.hint_fault(now, page, node, write, idle);
            }
            Event::Resident { page, node } => {
                let known = self.pages.get(page).is_some_and(|m| m.node().is_some());
                if !known {
                    self.pages.entry(page).set_node(node);
                }
            }
            Event::Ended {
                page,
                migration,
                verdict,
            } => self.ended(now, page, migration, verdict),
            Event::ShadowLost { page } => {
                if let Some(meta) = self.pages.get_mut(page) {
                    meta.set_shadow(false);
                    meta.set_written(true);
                    meta.touch(now);
                }
            }
            Event::Unmapped { pid, range } => self.pages.forget(pid, range),
            Event::Gone { pid } => self.pages.forget_process(pid),
            Event::Memory { node, memory } => self.memory(node, memory),
        }
    }

    fn tick(&mut self, now: Nanos) {
        self.expire(now);
        self.relieve(now);
        self.promote(now);
        self.control_scan(now);
        self.deadline = now + self.params.tick;
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
