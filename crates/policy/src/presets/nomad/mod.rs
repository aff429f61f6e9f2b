// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad (OSDI '24): transactional page migration and page shadowing.
//!
//! ```text
//! hint fault ──> PCQ ──accessed bit set again──> MPQ ──transaction──> active list ──> inactive list ──> demotion
//!                 └──not in a whole pass: out     └──<──aborted: again            second chance     onto its shadow
//! ```
//!
//! A hint fault on a slow page makes it a candidate (3.1, figure 4); a candidate whose accessed bit is set again
//! waits for its transaction, first come first served; what a write aborts is tried again. A promoted page's old
//! frame stays as shadow (3.2). The fast node has the kernel's two lists ([`crate::kit::TwoLists`]); from the tail
//! of the inactive one pages are demoted while less is free than the mark, those with a shadow first. Shadows are
//! given back where the slow node runs low, and ten times the request where an allocation fails.
//!
//! Nothing is weighed and nothing is slowed down: it thrashes where its paper says so. `docs/papers/nomad.md` has
//! each decision.
//!
//! * [`params`]; `queues` (PCQ and MPQ), `marks` (which pages are in them);
//!   `observe` takes faults and readings in, `migrate` gives orders and takes their ends; this file ties them together.

mod figures;
mod marks;
mod migrate;
mod observe;
pub mod params;
mod queues;

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::ChunkReading;
use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Tiers;

use crate::Capabilities;
use crate::Policy;
use crate::Preset;
use crate::event::Action;
use crate::event::Event;
use crate::event::Reason;
use crate::event::ScanScope;
use crate::kit::FreeMemory;
use crate::kit::Residents;
use crate::kit::two_lists::List;
use crate::preset::Colour;
use figures::Figures;
use marks::Marks;
use migrate::Flight;
pub use params::Params;
use queues::Mpq;
use queues::Pcq;

/// The first reading of a pass is after this part of it: a hot candidate need not wait for its end.
const FIRST_READING: u64 = 8;

/// Figures of the policy itself.
#[derive(Debug, Default, Clone, Copy)]
struct Counters {
    faults_slow: u64,
    referenced_twice: u64,
    cold: u64,
    retries: u64,
    given_up: u64,
}

/// Nomad: page transactions and shadows, by hint faults and accessed bits.
pub static PRESET: Preset = Preset {
    name: "nomad",
    title: "transactional page migration and page shadowing, by hint faults and accessed bits",
    paper: Some("Nomad, OSDI '24"),
    needs: Capabilities::HINT_FAULTS.union(Capabilities::ACCESSED_BITS),
    uses: Capabilities::TRANSACTIONS.union(Capabilities::SHADOWS),
    on_sockets: Capabilities::empty(),
    priorities: false,
    limits: false,
    colour: Colour {
        light: "#0f7f9c",
        dark: "#5cc4de",
    },
    help: params::HELP,
    dilated: |_| Vec::new(),
    build: |settings, host| {
        let params = Params::read(settings)?;
        Ok(Box::new(Nomad::new(params, host.tiers.clone())))
    },
};

/// The policy's state.
#[derive(Debug)]
pub struct Nomad {
    params: Params,
    tiers: Tiers,
    residents: Residents<Marks>,
    pcq: Pcq,
    mpq: Mpq,
    memory: FreeMemory,
    inflight: BTreeMap<PageRef, Flight>,
    /// When the last pass over the accessed bits of a process ended.
    watched: BTreeMap<Pid, Nanos>,
    /// How long those passes were asked to take.
    pass: Nanos,
    actions: VecDeque<Action>,
    deadline: Nanos,
    counters: Counters,
}

impl Nomad {
    /// For a machine with these tiers.
    #[must_use]
    pub fn new(params: Params, tiers: Tiers) -> Self {
        let mut nomad = Self::idle(params, tiers);
        nomad.ask();
        nomad
    }

    fn idle(params: Params, tiers: Tiers) -> Self {
        Self {
            residents: Residents::new(&tiers),
            pcq: Pcq::new(params.pcq_bytes),
            mpq: Mpq::new(params.mpq_bytes),
            memory: FreeMemory::new(&tiers),
            inflight: BTreeMap::new(),
            watched: BTreeMap::new(),
            actions: VecDeque::from([Action::Scan {
                scope: ScanScope::Slow,
                period: params.scan_period,
            }]),
            pass: Nanos::ZERO,
            deadline: Nanos::ZERO,
            counters: Counters::default(),
            params,
            tiers,
        }
    }

    /// 3.2: where a slow node's free memory is under the low watermark, shadows go first.
    fn sampled(&mut self, node: NodeId, memory: NodeMemory) {
        self.memory.sampled(node, memory);
        if !self.tiers.is_top(node) && memory.free_bytes < memory.low_bytes {
            self.actions.push_back(Action::ReclaimShadows {
                bytes: memory.high_bytes.saturating_sub(memory.free_bytes),
                reason: Reason::SlowPressure,
            });
        }
    }
}

impl Policy for Nomad {
    fn name(&self) -> &'static str {
        "nomad"
    }

    fn observe(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HintFault { page, node, .. } => self.hint_fault(now, page, node),
            Event::Ended {
                page,
                migration,
                verdict,
                ..
            } => self.ended(now, page, migration, verdict),
            Event::ShadowLost { page } => {
                if let Some((_, chunk, index)) = self.residents.pages.find(page) {
                    chunk.own.shadow.clear(index);
                }
            }
            Event::Watched { pid, .. } => self.pass_ended(now, pid),
            Event::Unmapped { pid, range } => {
                for (key, pages) in self.residents.pages.within(pid, range) {
                    self.forget(key, &pages);
                }
            }
            Event::Gone { pid } => {
                for key in self.residents.pages.unread(pid, Nanos::MAX) {
                    self.forget(key, &terrace_core::PageBits::ALL);
                }
                self.watched.remove(&pid);
            }
            Event::Memory { node, memory } => self.sampled(node, memory),
            Event::Armed { .. }
            | Event::Sampled { .. }
            | Event::Mapped { .. }
            | Event::Resident { .. }
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
        self.demote_cold();
        self.promote_pending();
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn next_deadline(&self) -> Nanos {
        self.deadline
    }

    fn counters(&self) -> Vec<Measurement> {
        let c = &self.counters;
        Figures {
            hint_faults_slow: c.faults_slow,
            candidates: self.pcq.len() as u64,
            candidates_cold: c.cold,
            candidates_dropped: self.pcq.dropped,
            referenced_twice: c.referenced_twice,
            pending: self.mpq.len() as u64,
            pending_dropped: self.mpq.dropped,
            retries: c.retries,
            given_up: c.given_up,
            active: self.residents.listed(List::Active),
            inactive: self.residents.listed(List::Inactive),
            metadata_bytes: self.residents.bytes(),
        }
        .values()
    }
}
