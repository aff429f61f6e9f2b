// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an access runs into: hint faults and write protection. What ended is told after it.

use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;

use super::Charge;
use super::World;
use super::bits;
use super::round;
use crate::space;

impl World {
    /// A hint fault, at a time, and more of the same access where the policy asks for them.
    pub(crate) fn hint_fault(&mut self, engine: &mut Engine, unit: u32, write: bool, at: u64) {
        self.now = self.now.max(at);
        self.clear(unit, bits::ARMED);
        self.fault_once(engine, unit, write, at);
        while std::mem::take(&mut self.fault_again) {
            self.fault_once(engine, unit, write, at);
        }
    }

    /// Charges a hint fault, tells the engine, lets the policy act.
    fn fault_once(&mut self, engine: &mut Engine, unit: u32, write: bool, at: u64) {
        let program = self.program(unit);
        let watched = if self.movement.supervised {
            self.costs.watched_fault_ns
        } else {
            0.0
        };
        let fault = self.costs.hint_fault_ns + watched;
        self.charge(program, Charge::Profiling, fault);
        self.supervise(self.costs.supervisor_fault_ns);
        let armed = u64::from(self.armed_at[unit as usize]) << 14;
        let idle = at.saturating_sub(armed);
        self.idle[unit as usize] = u32::try_from((idle >> 14).max(1)).unwrap_or(u32::MAX);
        let node = crate::hardware::node_id(self.node(unit));
        let event = if self.tracked.stands_in {
            let first = self.space.base_pages(unit).0;
            let page = space::base_page(program, first);
            Event::Sampled {
                page,
                node,
                write,
                accesses: 1,
            }
        } else {
            Event::HintFault {
                page: self.space.page(unit),
                node,
                write,
                idle: Some(Nanos(idle)),
                cpu_node: self.cpu_node(program),
            }
        };
        engine.observe(Nanos(self.now), &event);
        if !self.tracked.stands_in {
            let took = Nanos(round(fault));
            engine.observe(Nanos(self.now), &Event::Faulted { faults: 1, took });
        }
        if self.movement.synchronous || Nanos(self.now) >= engine.policy().next_deadline() {
            self.in_fault = Some(program);
            self.pump(engine);
            self.in_fault = None;
        }
    }

    /// Lets the policy act, and tells it what ended at once.
    pub(crate) fn pump(&mut self, engine: &mut Engine) {
        let mut rounds = 0;
        loop {
            engine.pump(Nanos(self.now), self);
            rounds += 1;
            if self.ends.is_empty() || rounds > 64 {
                return;
            }
            self.tell_ends(engine);
        }
    }

    /// Tells the engine of orders that have ended.
    pub(crate) fn tell_ends(&mut self, engine: &mut Engine) {
        while let Some(end) = self.ends.pop_front() {
            let now = Nanos(self.now.max(end.at));
            if let Some(ns) = end.busy {
                let pages = u32::try_from(end.page.size.base_pages()).unwrap_or(u32::MAX);
                let (size, busy) = (end.page.size, Nanos(round(ns)));
                engine.observe(now, &Event::Moved { pages, size, busy });
            }
            let from = end.from.map(crate::hardware::node_id);
            let event = Event::Ended {
                page: end.page,
                migration: end.migration,
                from,
                verdict: end.verdict,
                mechanism: end.mechanism,
                took: Nanos(end.took),
                inaccessible: Nanos(round(end.inaccessible.unwrap_or(0.0))),
            };
            engine.observe(now, &event);
        }
    }

    /// A write ran into a protected page.
    pub(crate) fn write_protect_fault(&mut self, program: usize) {
        self.protected_write(program, self.costs.write_protect_fault_ns);
    }

    pub(super) fn protected_write(&mut self, program: usize, ns: f64) {
        self.totals.write_protect_faults += 1;
        self.charge(program, Charge::Migration, ns);
    }
}
