// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policy asks for: migrations are handed on, inventories, scans and probes answered.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;

use super::Clock;
use super::World;
use super::bits;
use super::round;
use crate::hardware::NODES;
use crate::space;

impl World {
    /// Answers what the policy asked for: inventories and probes.
    pub(crate) fn answer(&mut self, engine: &mut Engine, clock: &mut dyn Clock) {
        if std::mem::take(&mut self.inventory) {
            self.tell_resident(engine, None);
        }
        for pid in std::mem::take(&mut self.find_slow) {
            self.tell_resident(engine, Some(pid));
        }
        let mut probed = false;
        while let Some((node, pages)) = self.probes.pop_front() {
            self.probe_node(engine, clock, node, pages);
            probed = true;
        }
        if probed {
            self.pump(engine);
        }
        while let Some((node, first, count)) = self.looks.pop_front() {
            match node {
                Some(node) => self.look_at(engine, clock, node, first, count),
                None => self.scan_pages(engine, clock, first, count),
            }
            if self.looks.is_empty() {
                self.tell_scanned(engine);
                self.pump(engine);
            }
        }
    }

    /// A reader of page tables looks at neighbours, wherever they are.
    fn scan_pages(&mut self, engine: &mut Engine, clock: &mut dyn Clock, first: u32, count: u32) {
        let end = first.saturating_add(count).min(self.space.units());
        let program = self.program(first);
        for unit in first..end {
            let node = self.node(unit);
            if node < NODES {
                self.probe_unit(engine, clock, node, unit);
            }
        }
        self.scanned.resize(self.space.programs(), 0);
        self.scanned[program] += u64::from(end - first);
    }

    /// What all that it was asked for together took.
    #[expect(clippy::cast_precision_loss, reason = "pages of a scan")]
    fn tell_scanned(&mut self, engine: &mut Engine) {
        for (program, pages) in std::mem::take(&mut self.scanned).into_iter().enumerate() {
            if pages > 0 {
                let ns = pages as f64 * self.costs.pte_scan_ns;
                self.totals.scans += ns;
                self.supervise(ns);
                let over = Event::Watched {
                    pid: space::pid(program),
                    parts: 1,
                    pages,
                    busy: Nanos(round(ns)),
                    lost: Nanos::ZERO,
                };
                engine.observe(Nanos(self.now), &over);
            }
        }
    }

    /// Looks at neighbours: one through its mapping, several along the page table.
    fn look_at(
        &mut self,
        engine: &mut Engine,
        clock: &mut dyn Clock,
        node: usize,
        first: u32,
        count: u32,
    ) {
        let end = first.saturating_add(count).min(self.space.units());
        for unit in first..end {
            self.probe_unit(engine, clock, node, unit);
        }
        self.totals.workers += if count == 1 {
            self.costs.probe_ns
        } else {
            f64::from(count) * self.costs.pte_scan_ns
        };
    }

    /// Reads and clears one page's accessed bit and tells it. Not where the page is elsewhere or about to
    /// move.
    fn probe_unit(
        &mut self,
        engine: &mut Engine,
        clock: &mut dyn Clock,
        node: usize,
        unit: u32,
    ) -> bool {
        if self.node(unit) != node || self.has(unit, bits::ORDERED) {
            return false;
        }
        let accessed = clock.test_and_clear(self, unit);
        let event = Event::Probed {
            page: self.space.page(unit),
            node: crate::hardware::node_id(node),
            accessed,
        };
        engine.observe(Nanos(self.now), &event);
        true
    }

    /// The clock hand of a node goes over its next pages.
    fn probe_node(&mut self, engine: &mut Engine, clock: &mut dyn Clock, node: usize, pages: u32) {
        let units = self.space.units();
        let mut left = pages;
        for _ in 0..units {
            if left == 0 {
                break;
            }
            let unit = self.hands[node];
            self.hands[node] = if unit + 1 >= units { 0 } else { unit + 1 };
            left -= u32::from(self.probe_unit(engine, clock, node, unit));
        }
        // Who looks is not the program but the kernel's own thread.
        self.totals.workers += f64::from(pages - left) * self.costs.probe_ns;
    }

    /// Tells what is on the fast nodes, or what of a process is not.
    fn tell_resident(&mut self, engine: &mut Engine, slow_of: Option<Pid>) {
        for unit in 0..self.space.units() {
            let (node, page) = (self.node(unit), self.space.page(unit));
            if node < NODES
                && self.top[node] == slow_of.is_none()
                && slow_of.is_none_or(|pid| page.pid == pid)
            {
                let node = crate::hardware::node_id(node);
                engine.observe(Nanos(self.now), &Event::Resident { page, node });
            }
        }
    }
}

impl terrace_policy::Machine for World {
    fn migrate(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        mechanism: Option<Mechanism>,
        _reason: Reason,
    ) -> Served {
        // After a fault it is in the fault's price, as that was measured.
        if !self.tracked.faults {
            self.supervise(self.costs.supervisor_move_ns);
        }
        let several = self.space.within(page).len() > 1;
        if self.copier.is_some() && !several {
            self.order_threaded(now.0, page, migration, mechanism)
        } else if self.movement.protected.is_some() || several {
            self.order_protected(now.0, page, migration, mechanism)
        } else {
            self.order(now.0, page, migration, mechanism)
        }
    }

    fn reclaim_shadows(&mut self, _now: Nanos, bytes: u64, _reason: Reason) -> Served {
        if !self.movement.transactions {
            return Err(Refusal::Unserved);
        }
        let programs = self.shadows.len() as u64;
        let share = bytes.div_ceil(programs.max(1));
        for program in 0..self.shadows.len() {
            self.reclaim(program, share);
        }
        Ok(())
    }

    fn scan(&mut self, now: Nanos, scope: ScanScope, period: Nanos) -> Served {
        if !self.tracked.faults {
            return Err(Refusal::Unserved);
        }
        self.start_scan(now.0, scope, period.0);
        Ok(())
    }

    fn arm(&mut self, _now: Nanos, page: PageRef) -> Served {
        let unit = unit_of(self, page).ok_or(Refusal::Unknown)?;
        self.arm_chosen(unit);
        Ok(())
    }

    fn read_accessed(&mut self, _now: Nanos, shortest: Nanos, pass: Nanos, parts: u32) -> Served {
        if !self.tracked.bits {
            return Err(Refusal::Unserved);
        }
        self.start_reading((shortest.0, pass.0), parts);
        Ok(())
    }

    fn fault_again(&mut self, _now: Nanos, _page: PageRef) -> Served {
        if self.in_fault.is_none() {
            return Err(Refusal::Unserved);
        }
        self.fault_again = true;
        Ok(())
    }

    fn inventory(&mut self, _now: Nanos) -> Served {
        self.inventory = true;
        Ok(())
    }

    fn find_slow(&mut self, _now: Nanos, pid: Pid) -> Served {
        self.find_slow.push(pid);
        Ok(())
    }

    fn probe_next(&mut self, _now: Nanos, node: NodeId, pages: u32) -> Served {
        let node = node_of(self, node).ok_or(Refusal::Unknown)?;
        self.probes.push_back((node, pages));
        Ok(())
    }

    fn probe_range(
        &mut self,
        _now: Nanos,
        node: Option<NodeId>,
        page: PageRef,
        pages: u32,
    ) -> Served {
        let of = |node| node_of(self, node).ok_or(Refusal::Unknown);
        let node = node.map(of).transpose()?;
        let unit = self.space.find(page).ok_or(Refusal::Unknown)?;
        self.looks.push_back((node, unit, pages));
        Ok(())
    }

    fn sample(&mut self, _now: Nanos, on: bool) -> Served {
        let sampling = self.sampling.as_mut().ok_or(Refusal::Unserved)?;
        sampling.off = !on;
        Ok(())
    }
}

/// A node of an order, if the machine has it.
pub(crate) fn node_of(world: &World, node: NodeId) -> Option<usize> {
    let node = usize::from(node.0);
    (node < world.hardware.nodes).then_some(node)
}

/// The page a policy means, whatever size it takes it for.
pub(crate) fn unit_of(world: &World, page: PageRef) -> Option<u32> {
    let unit = world.space.find(page)?;
    let _ = space::program_of(page.pid)?;
    Some(unit)
}
