// SPDX-License-Identifier: MIT OR Apache-2.0
//! The engine: feeds a policy, hands its actions to a machine, counts.
//!
//! The machine behind it is a trait with two implementations, Linux (in the supervisor) and the
//! simulator. Engine, policy and statistics are the same objects in both.

use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;

use crate::Policy;
use crate::distribution::Recorder;
use crate::event::Action;
use crate::event::Event;
use crate::event::Mechanism;
use crate::event::Migration;
use crate::event::Reason;
use crate::event::Refusal;
use crate::event::ScanScope;
use crate::stats::Stats;

/// What carries out a policy's actions. Orders are queued, not awaited: their ends come back as
/// events. What a machine does not do it refuses, and the policy sees that ([`Event::Refused`]); of itself a
/// machine serves migrations only, by a mechanism of its own.
pub trait Machine {
    /// Starts a migration, by the mechanism that is stated or by its own; its end comes back as [`Event::Ended`],
    /// exactly once.
    ///
    /// # Errors
    ///
    /// Where the mechanism that is stated is not served.
    fn migrate(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        mechanism: Option<Mechanism>,
        reason: Reason,
    ) -> Served;
    /// Gives back shadow pages.
    fn reclaim_shadows(&mut self, _now: Nanos, _bytes: u64, _reason: Reason) -> Served {
        Err(Refusal::Unserved)
    }
    /// Arms hint faults.
    fn scan(&mut self, _now: Nanos, _scope: ScanScope, _period: Nanos) -> Served {
        Err(Refusal::Unserved)
    }
    /// Arms one page.
    fn arm(&mut self, _now: Nanos, _page: PageRef) -> Served {
        Err(Refusal::Unserved)
    }
    /// Reads accessed bits in passes, told by [`Engine::accessed`].
    fn read_accessed(
        &mut self,
        _now: Nanos,
        _shortest: Nanos,
        _pass: Nanos,
        _parts: u32,
    ) -> Served {
        Err(Refusal::Unserved)
    }
    /// Leaves the page of the hint fault being handled armed, so that the access faults again.
    fn fault_again(&mut self, _now: Nanos, _page: PageRef) -> Served {
        Err(Refusal::Unserved)
    }
    /// Starts an inventory of the fast nodes, told by [`Event::Resident`].
    fn inventory(&mut self, _now: Nanos) -> Served {
        Err(Refusal::Unserved)
    }
    /// Starts a search for what of a process is not on the fast nodes, told by [`Event::Resident`].
    fn find_slow(&mut self, _now: Nanos, _pid: Pid) -> Served {
        Err(Refusal::Unserved)
    }
    /// Reads and clears accessed bits, told by [`Event::Probed`].
    fn probe_next(&mut self, _now: Nanos, _node: NodeId, _pages: u32) -> Served {
        Err(Refusal::Unserved)
    }
    /// As [`Self::probe_next`], of pages that are named.
    fn probe_range(
        &mut self,
        _now: Nanos,
        _node: Option<NodeId>,
        _page: PageRef,
        _pages: u32,
    ) -> Served {
        Err(Refusal::Unserved)
    }
    /// Splits a huge page; tells [`Event::Parts`].
    fn split(&mut self, _now: Nanos, _page: PageRef) -> Served {
        Err(Refusal::Unserved)
    }
    /// Takes samples, or none.
    fn sample(&mut self, _now: Nanos, _on: bool) -> Served {
        Err(Refusal::Unserved)
    }
}

/// Whether a machine does what it is asked for.
pub type Served = Result<(), Refusal>;

/// A policy at work.
#[derive(Debug)]
pub struct Engine {
    policy: Box<dyn Policy>,
    stats: Stats,
    inaccessible: Recorder,
    paused: bool,
}

impl Engine {
    /// With that policy.
    #[must_use]
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            stats: Stats::default(),
            inaccessible: Recorder::default(),
            paused: false,
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn Policy {
        self.policy.as_ref()
    }

    /// What was counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            inaccessible_ns: self.inaccessible.distribution(),
            ..self.stats.clone()
        }
    }

    /// The counters, for those who count something the engine does not see.
    pub const fn stats_mut(&mut self) -> &mut Stats {
        &mut self.stats
    }

    /// Whether the policy is kept from acting.
    #[must_use]
    pub const fn paused(&self) -> bool {
        self.paused
    }

    /// Keeps the policy from acting, or lets it again. While paused it sees nothing of accesses,
    /// so that it starts afresh.
    pub const fn set_paused(&mut self, paused: bool) {
        self.paused = paused;
    }

    /// Takes in one event.
    pub fn observe(&mut self, now: Nanos, event: &Event) {
        match event {
            Event::HintFault { .. } => {
                self.stats.hint_faults += 1;
                if self.paused {
                    return;
                }
            }
            Event::Sampled { .. } => {
                self.stats.samples += 1;
                if self.paused {
                    return;
                }
            }
            Event::ShadowLost { .. } => self.stats.shadows_written += 1,
            Event::Ended {
                page,
                migration,
                from,
                verdict,
                mechanism,
                inaccessible,
                ..
            } => {
                let stats = &mut self.stats;
                stats.count(page.size, *migration, *from, *verdict, *mechanism);
                if *inaccessible > Nanos::ZERO {
                    self.inaccessible.record(*inaccessible);
                }
            }
            _ => {}
        }
        self.policy.observe(now, event);
    }

    /// Takes in one reading of accessed bits.
    pub fn accessed(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        self.stats.chunk_readings += 1;
        if !self.paused {
            self.policy.accessed(now, reading);
        }
    }

    /// Whether the policy's time has come.
    #[must_use]
    pub fn is_due(&self, now: Nanos) -> bool {
        !self.paused && now >= self.policy.next_deadline()
    }

    /// Lets the policy decide, where its time has come.
    pub fn tick(&mut self, now: Nanos) {
        if self.is_due(now) {
            self.policy.tick(now);
        }
    }

    /// Lets the policy decide where its time has come, and act; gives the time to come back at the latest.
    pub fn pump(&mut self, now: Nanos, machine: &mut impl Machine) -> Nanos {
        if self.paused {
            return now + Nanos::from_millis(100);
        }
        self.tick(now);
        let mut refused = Vec::new();
        while let Some(what) = self.policy.poll_action() {
            if let Err(why) = self.carry_out(now, what, machine) {
                refused.push(Event::Refused { what, why });
            }
        }
        // When all has been asked for: who asks again at once shall not keep us here.
        self.stats.actions_refused += refused.len() as u64;
        for event in refused {
            self.policy.observe(now, &event);
        }
        self.policy.next_deadline()
    }

    fn carry_out(&mut self, now: Nanos, action: Action, machine: &mut impl Machine) -> Served {
        match action {
            Action::Migrate {
                page,
                migration,
                mechanism,
                reason,
            } => {
                machine.migrate(now, page, migration, mechanism, reason)?;
                self.stats.ordered += 1;
                Ok(())
            }
            Action::ReclaimShadows { bytes, reason } => {
                self.stats.shadow_reclaims += 1;
                machine.reclaim_shadows(now, bytes, reason)
            }
            Action::Scan { scope, period } => machine.scan(now, scope, period),
            Action::Arm { page } => machine.arm(now, page),
            Action::ReadAccessed {
                shortest,
                pass,
                parts,
            } => machine.read_accessed(now, shortest, pass, parts),
            Action::FaultAgain { page } => machine.fault_again(now, page),
            Action::Inventory => machine.inventory(now),
            Action::FindSlow { pid } => machine.find_slow(now, pid),
            Action::ProbeNext { node, pages } => machine.probe_next(now, node, pages),
            Action::ProbeRange { node, page, pages } => machine.probe_range(now, node, page, pages),
            Action::Split { page } => machine.split(now, page),
            Action::Sample { on } => machine.sample(now, on),
        }
    }

    /// A node's memory was sampled.
    pub fn memory(&mut self, now: Nanos, node: NodeId, memory: terrace_core::NodeMemory) {
        self.policy.observe(now, &Event::Memory { node, memory });
    }
}
