// SPDX-License-Identifier: MIT OR Apache-2.0
//! How programs run by rates: what the world asks of a [`Clock`].

use terrace_policy::Engine;

use super::Flow;
use super::Rate;
use crate::drive::STEP_NS;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::Note;
use crate::world::World;
use crate::world::bits;

impl Clock for Rate {
    fn next(&self, _world: &World) -> u64 {
        self.flows.iter().map(Flow::next).min().unwrap_or(u64::MAX)
    }

    fn advance(&mut self, world: &mut World, engine: &mut Engine, until: u64) -> u64 {
        let before = world.now;
        world.now = world.now.max(until);
        self.sample(world, engine, before);
        for index in 0..self.flows.len() {
            while self.flows[index].next() <= world.now {
                let width = self.flows[index].bucket();
                let Some(due) = self.flows[index].due.pop(width) else {
                    break;
                };
                self.fire(world, engine, due);
                self.sync(world);
            }
        }
        world.now
    }

    fn sync(&mut self, world: &mut World) {
        let Some(mut notes) = world.notes.take() else {
            return;
        };
        for note in notes.drain(..) {
            match note {
                Note::Moved { unit, from, to } => {
                    let index = world.program(unit);
                    let one = self.truth.programs[index].unit(&world.space, unit);
                    let flow = &mut self.flows[index];
                    flow.settle(index, world, world.now);
                    flow.add(from, &one, -1.0);
                    flow.add(to, &one, 1.0);
                }
                Note::Armed { unit, fresh } => {
                    if fresh && world.reader.is_some() {
                        self.settle_bit(world, unit);
                    }
                    self.arm(world, unit, fresh);
                }
                Note::ArmedAlone { unit } => {
                    if world.reader.is_some() {
                        self.settle_bit(world, unit);
                    }
                    self.arm_alone(world, unit);
                }
                Note::Shadowed { unit } => self.watch_shadow(world, unit),
            }
        }
        for flow in &mut self.flows {
            flow.moved_horizon.0 = usize::MAX;
        }
        world.notes = Some(notes);
    }

    fn written(&mut self, world: &mut World, unit: u32, window: f64) -> bool {
        let index = world.program(unit);
        let (_, write) = self.truth.programs[index].visits(&world.space, unit);
        let clean = (-write * self.flows[index].rate * window).exp();
        let written = self.uniform() > clean;
        if written {
            world.write_protect_fault(index);
        }
        written
    }

    fn protected(&mut self, world: &mut World, units: &[u32], window: f64) {
        let Some(first) = units.first() else { return };
        let index = world.program(*first);
        let truth = &self.truth.programs[index];
        let write = |unit: &u32| truth.visits(&world.space, *unit).1;
        let come = units.iter().map(write).sum::<f64>() * self.flows[index].rate * window;
        let waiting = come.min(world.threads[index]);
        let each = window / 2.0 + world.costs.write_protect_fault_ns;
        world.totals.writes_waited += waiting;
        world.charge(index, Charge::Stall, waiting * each);
    }

    fn blocked(&mut self, world: &mut World, unit: u32, window: f64) {
        let index = world.program(unit);
        let (read, write) = self.truth.programs[index].visits(&world.space, unit);
        let come = (read + write) * self.flows[index].rate * window;
        let waiting = come.min(world.threads[index]);
        world.charge(index, Charge::Stall, waiting * window / 2.0);
    }

    fn test_and_clear(&mut self, world: &mut World, unit: u32) -> bool {
        if world.has(unit, bits::ACCESSED) {
            world.clear(unit, bits::ACCESSED);
            self.accessed_since(world, unit);
            return true;
        }
        // An access to an armed page would have been its fault.
        let accessed = self.accessed_since(world, unit);
        accessed && !world.has(unit, bits::ARMED)
    }

    #[expect(clippy::cast_precision_loss, reason = "times below 2^53 ns")]
    fn step(&mut self, world: &mut World) {
        let span = (world.now - self.started) as f64;
        let copies = world.copying.take(world.now);
        let share = world.processor_share(span);
        let step = STEP_NS as f64;
        let mut loads = Vec::with_capacity(self.flows.len());
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.settle(index, world, world.now);
            let threads = world.threads[index] * share[flow.load.socket];
            world.totals.threads += threads * span;
            let pay = world.debt[index].min(threads * step * 0.95);
            world.debt[index] -= pay;
            flow.load.threads = threads - pay / step;
            let truth = &self.truth.programs[index];
            let missed: f64 = flow.served.iter().map(|[r, w]| r + w).sum();
            let hits = (truth.lines - missed).max(0.0);
            flow.load.fixed_ns = truth.think_ns + hits * world.costs.cache_hit_ns;
            loads.push(flow.load.clone());
        }
        self.started = world.now;
        let rates = self.contention.solve(&world.hardware, &loads, &copies);
        for (flow, rate) in self.flows.iter_mut().zip(rates) {
            flow.rate = rate;
        }
        world.busy = self.contention.busy;
        world.waits.clone_from(&self.contention.waits);
    }

    fn phases(&mut self, world: &mut World, phases: &[usize]) {
        for (index, flow) in self.flows.iter_mut().enumerate() {
            flow.settle(index, world, world.now);
        }
        let first = self.phases.is_empty();
        let changed: Vec<bool> = (0..phases.len())
            .map(|index| first || self.phases[index] != phases[index])
            .collect();
        self.phases = phases.to_vec();
        self.rebuild(world);
        self.step(world);
        if world.hardware.cache.is_some() && phases.len() > 1 || self.direct.is_some() {
            // Programs share the cache by their rates, which are known only now.
            self.rebuild(world);
            self.step(world);
        }
        for (index, _) in changed.iter().enumerate().filter(|(_, changed)| **changed) {
            self.flows[index].due.clear();
            self.flows[index].horizon.fill(0.0);
            for unit in world.space.program_units(index) {
                world.clear(unit, bits::FAULT_DUE | bits::WRITE_DUE);
                self.arm(world, unit, true);
                self.watch_shadow(world, unit);
            }
            self.flows[index].moved_horizon.0 = usize::MAX;
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.flows.iter().map(|flow| flow.rate).collect()
    }

    fn bytes(&self) -> u64 {
        let flows = self
            .flows
            .iter()
            .map(|flow| flow.due.bytes() + (flow.horizon.len() * size_of::<f64>()) as u64);
        let truth = self
            .truth
            .programs
            .iter()
            .map(crate::access_rates::ProgramRates::bytes);
        flows.sum::<u64>()
            + truth.sum::<u64>()
            + (self.cleared_at.len() * 4 + self.direct_hits.len() * 4) as u64
    }
}
