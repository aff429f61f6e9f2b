// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux under the engine: owns all that a policy's actions act on, and turns what comes in into events.
//!
//! * [`managed`]: the processes, and what is kept of each: [`movers`] with their [`orders`] and [`arms`], [`mappings`].
//! * [`memory`]: what is free, with [`cache_room`]. [`inventory`]: what is on which nodes. `latencies`: what
//!   reads take. `meter`: what all of that takes here. `splitting`: huge pages. [`runs_on`]: whose processors programs run on. The trackers are [`crate::tracking`]'s.
//! * `intake`: from a tracker's and the movers' words to events; `samples`: which node a sample is of.
//!
//! Nothing here waits. Who has a loop asks for the descriptors, and calls when there is something to read.

pub mod arms;
pub mod cache_room;
mod intake;
pub mod inventory;
mod latencies;
pub mod managed;
pub mod mappings;
pub mod memory;
mod meter;
pub mod movers;
pub mod orders;
pub mod runs_on;
mod samples;
mod splitting;

use std::path::Path;

use anyhow::Context;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_mover::move_pages::MovePagesMover;
use terrace_policy::Capabilities;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Machine;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;
use terrace_sys::memory_blocks::MemoryBlocks;
use terrace_track::TrackError;

use crate::tracking::Trackers;
use inventory::Inventory;
use inventory::Wanted;
use latencies::Latencies;
use managed::Managed;
use mappings::Mappings;
use memory::FreeMemory;
use memory::largest;
use meter::Meter;
use movers::Movers;
use splitting::Splitting;

/// See the module.
#[derive(Debug)]
pub struct LinuxMachine {
    /// The nodes, as the policy sees them.
    pub tiers: Tiers,
    /// The processes it acts on.
    pub managed: Managed,
    /// What is free.
    pub memory: FreeMemory,
    /// Where accesses are learnt from, if they are.
    pub trackers: Trackers,
    latencies: Option<Latencies>,
    /// What learning from accessed bits takes here, and what orders take.
    learning: Meter,
    ordering: Meter,
    inventory: Inventory,
    splitting: Splitting,
    /// Pages that the policy asked to look at since they were handed on.
    looks: Vec<PageRef>,
    blocks: MemoryBlocks,
}

impl LinuxMachine {
    /// For a policy that takes this of it, with the trackers that give their part.
    ///
    /// # Errors
    ///
    /// Where there is no thread for the mover, or the nodes' memory cannot be read.
    pub fn open(tiers: Tiers, takes: Capabilities, trackers: Trackers) -> anyhow::Result<Self> {
        let mover = MovePagesMover::start().context("Cannot start the mover")?;
        let latencies = !trackers.is_empty() && takes.contains(Capabilities::LATENCIES);
        let mappings = takes.contains(Capabilities::MAPPINGS);
        Ok(Self {
            tiers,
            managed: Managed::new(Movers::new(mover), mappings.then(Mappings::default)),
            memory: FreeMemory::open()?,
            trackers,
            latencies: latencies.then(Latencies::default),
            learning: Meter::default(),
            ordering: Meter::default(),
            inventory: Inventory::default(),
            splitting: Splitting::default(),
            looks: Vec::new(),
            blocks: MemoryBlocks::read(Path::new("/")),
        })
    }

    /// Acts on a process from now on; with `follow`, its trackers tell of its children.
    ///
    /// # Errors
    ///
    /// Where one cannot track it; its pages can be moved all the same.
    pub fn add(&mut self, pid: Pid, follow: bool) -> Result<(), TrackError> {
        self.managed.pids.insert(pid);
        self.trackers.add(pid, follow)
    }

    /// What changes slowly is looked at again.
    pub fn refresh(&mut self) {
        self.memory.refresh();
        let largest = largest(self.managed.pids.iter().copied());
        self.trackers.resized(largest);
    }

    /// Tells what reads take, where the policy weighs it and it is time; nothing while it is paused, so that it starts afresh.
    pub fn measure_latencies(&mut self, now: Nanos, engine: &mut Engine) {
        if let Some(latencies) = self.latencies.as_mut().filter(|_| engine.paused()) {
            latencies.open(now, &self.tiers);
            return;
        }
        if let Some(latencies) = &mut self.latencies {
            latencies.measure(now, &self.tiers, |from, node, read| {
                engine.observe(now, &Event::Latency { from, node, read });
            });
        }
    }

    /// Lets a policy plan by what it has learnt, where it is time, and carries out what it wants. Gives the time to come back at the
    /// latest.
    pub fn pump(&mut self, now: Nanos, engine: &mut Engine) -> Nanos {
        // What is armed in whose program is armed by whoever is in it now.
        for pid in self.managed.movers.arms.take_left() {
            self.trackers.forget_armed(pid);
        }
        if engine.is_due(now) {
            self.learning.begin();
            engine.tick(now);
            self.learning.end();
        }
        let before = engine.stats_mut().ordered;
        self.ordering.begin();
        let deadline = engine.pump(now, self);
        self.flush();
        if let Some(taken) = self.splitting.tell() {
            engine.observe(now, &taken);
        }
        // What an agent did comes without a price.
        if engine.stats_mut().ordered > before && self.managed.movers.links.is_empty() {
            self.ordering.end();
        } else {
            self.ordering.discard();
        }
        deadline
    }

    /// Tells where processes run of which that is not known; with `again`, of all where it has changed.
    pub fn tell_where_they_run(&mut self, now: Nanos, again: bool, engine: &mut Engine) {
        let Managed { pids, runs_on, .. } = &mut self.managed;
        runs_on.look(now, (pids, again), &self.tiers, engine);
    }

    /// Tells the next slice of an inventory under way.
    pub fn take_inventory(&mut self, now: Nanos, engine: &mut Engine) {
        let tiers = &self.tiers;
        self.inventory.step(
            |node| tiers.is_top(node),
            |page, node| engine.observe(now, &Event::Resident { page, node }),
        );
    }

    /// Hands on what was asked for page by page.
    fn flush(&mut self) {
        self.managed.movers.flush();
        if !self.looks.is_empty() {
            self.trackers.look(std::mem::take(&mut self.looks));
        }
    }

    /// Whether there is more to do at once.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.inventory.active()
    }
}

impl Machine for LinuxMachine {
    fn migrate(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        mechanism: Option<Mechanism>,
        _reason: Reason,
    ) -> Served {
        // Between fast nodes the kernel brings pages to the same side. Of slow ones accessed bits tell before any order.
        if !self.tiers.is_top(migration.target()) || !self.trackers.looks() {
            self.trackers.no_other_moves();
        }
        let movers = &mut self.managed.movers;
        movers.migrate(now, page, migration, mechanism)
    }

    fn reclaim_shadows(&mut self, _now: Nanos, bytes: u64, _reason: Reason) -> Served {
        self.managed.movers.reclaim_shadows(bytes)
    }

    fn scan(&mut self, _now: Nanos, scope: ScanScope, period: Nanos) -> Served {
        let largest = largest(self.managed.pids.iter().copied());
        self.trackers.scan(scope, period, largest)
    }

    fn arm(&mut self, now: Nanos, page: PageRef) -> Served {
        if page.size == PageSize::Giant1G || !self.managed.movers.can_arm(page.pid) {
            return Err(Refusal::Unserved);
        }
        self.trackers.order(page, now)?;
        if self.managed.movers.arms.add(page) {
            return Ok(());
        }
        self.trackers.not_armed(page);
        Err(Refusal::Busy)
    }

    fn read_accessed(&mut self, _now: Nanos, shortest: Nanos, pass: Nanos, parts: u32) -> Served {
        self.trackers.read(shortest, pass, parts)
    }

    fn probe_range(
        &mut self,
        _now: Nanos,
        node: Option<NodeId>,
        page: PageRef,
        pages: u32,
    ) -> Served {
        // Those of one node cannot be told before they were read.
        if node.is_some() || !self.trackers.looks() {
            return Err(Refusal::Unserved);
        }
        let bytes = page.size.bytes();
        self.looks.extend((0..u64::from(pages)).map(|at| PageRef {
            addr: Addr(page.addr.0 + at * bytes),
            ..page
        }));
        Ok(())
    }

    fn split(&mut self, _now: Nanos, page: PageRef) -> Served {
        self.splitting.split(page)
    }

    fn sample(&mut self, _now: Nanos, on: bool) -> Served {
        self.trackers.sample(on)
    }

    fn inventory(&mut self, _now: Nanos) -> Served {
        let pids = self.managed.pids.iter().copied();
        self.inventory.start(Wanted::Fast, pids);
        Ok(())
    }

    fn find_slow(&mut self, _now: Nanos, pid: Pid) -> Served {
        self.inventory.start(Wanted::Slow, std::iter::once(pid));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering;

    use terrace_core::Measurement;
    use terrace_policy::Action;
    use terrace_policy::Policy;

    use super::*;

    const NODE: NodeId = NodeId(0);

    /// Asks once for all that can be refused, and counts what is.
    #[derive(Debug, Default)]
    struct Asker {
        asks: Vec<Action>,
        refused: Arc<AtomicU64>,
    }

    impl Policy for Asker {
        fn name(&self) -> &'static str {
            "asker"
        }
        fn observe(&mut self, _now: Nanos, event: &Event) {
            if let Event::Refused { what, why } = event {
                assert_eq!(*why, Refusal::Unserved, "{what:?}");
                assert!(!matches!(what, Action::Inventory | Action::FindSlow { .. }));
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
        }
        fn tick(&mut self, _now: Nanos) {}
        fn poll_action(&mut self) -> Option<Action> {
            self.asks.pop()
        }
        fn next_deadline(&self) -> Nanos {
            Nanos::MAX
        }
        fn counters(&self) -> Vec<Measurement> {
            Vec::new()
        }
    }

    #[test]
    fn what_nobody_here_can_do_is_refused_and_told() {
        let (none, trackers) = (Capabilities::empty(), Trackers::default());
        let mut machine = LinuxMachine::open(Tiers::default(), none, trackers).expect("a machine");
        let page = PageRef {
            pid: Pid(std::process::id()),
            addr: terrace_core::Addr(0),
            size: terrace_core::PageSize::Base4K,
        };
        let (period, pages) = (Nanos::from_secs(1), 1);
        let asks = vec![
            Action::Migrate {
                page,
                migration: Migration::Demote { to: NODE },
                mechanism: Some(Mechanism::Transaction),
                reason: Reason::SlowPressure,
            },
            Action::ReclaimShadows {
                bytes: 4096,
                reason: Reason::SlowPressure,
            },
            Action::Scan {
                scope: ScanScope::All,
                period,
            },
            Action::ReadAccessed {
                shortest: period,
                pass: period,
                parts: 1,
            },
            Action::Arm { page },
            Action::ProbeNext { node: NODE, pages },
            Action::ProbeRange {
                node: Some(NODE),
                page,
                pages,
            },
            Action::Sample { on: true },
            Action::FaultAgain { page },
            Action::Inventory,
            Action::FindSlow { pid: page.pid },
        ];
        let refused = Arc::new(AtomicU64::new(0));
        let policy = Asker {
            asks,
            refused: Arc::clone(&refused),
        };
        let mut engine = Engine::new(Box::new(policy));
        engine.pump(Nanos::ZERO, &mut machine);
        assert_eq!(engine.stats().actions_refused, 9);
        assert_eq!(refused.load(Ordering::Relaxed), 9);
    }
}
