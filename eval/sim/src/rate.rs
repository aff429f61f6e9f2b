// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rate engine: no visit is played; what depends on visits is drawn from the pages' shares.
//!
//! A program's *work* is the number of its visits so far. In a step it grows evenly, at a rate that
//! [`Contention`] finds from the sums of shares by node. The sums change when a page moves, so a step
//! costs what happens in it.
//!
//! **Faults.** When a page is armed its first access is drawn, exponential in work: a change of
//! throughput needs no new draw. Only draws before a horizon are kept; the horizon lies some passes of
//! the scanner ahead. If the next pass finds the page armed still and without a draw, the next draw
//! starts at the old horizon (the exponential has no memory). Shadows' first writes are drawn likewise.
//! **Aborts**: a write falls into a copy with `1 - exp(-writes * duration)`. **Accessed bits**: set
//! with `1 - exp(-visits since cleared)`. At a change of phase all is drawn again.

use rand::Rng;
use rand_pcg::Pcg64Mcg;
use terrace_policy::Engine;

use crate::Setup;
use crate::access_rates::AccessRates;
use crate::access_rates::UnitRates;
use crate::cache;
use crate::calendar::Calendar;
use crate::calendar::Due;
use crate::contention::Contention;
use crate::contention::Load;
use crate::drive::STEP_NS;
use crate::hardware::NODES;
use crate::memory_mode::Layout;
use crate::sampling::Sampler;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::Note;
use crate::world::World;
use crate::world::bits;

/// One program.
#[derive(Debug)]
struct Flow {
    /// Visits a ns.
    rate: f64,
    /// Visits until `since`.
    work: f64,
    since: u64,
    load: Load,
    /// Lines that a node served, by a visit: not the load's in memory mode.
    served: [[f64; 2]; NODES],
    due: Calendar,
    /// By block of units: up to which work draws were kept.
    horizon: Vec<f64>,
    /// Block whose horizon was moved last, and where it was before.
    moved_horizon: (usize, f64),
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Rate {
    setup: Setup,
    flows: Vec<Flow>,
    truth: AccessRates,
    contention: Contention,
    direct: Option<Layout>,
    /// By program, where accesses are sampled: which pages miss.
    samplers: Vec<Option<Sampler>>,
    /// In memory mode, by unit: which share of its misses the fast node serves.
    direct_hits: Vec<f32>,
    rng: Pcg64Mcg,
    /// By unit: the program's work when its accessed bit was cleared.
    cleared_at: Vec<f32>,
    block_shift: u8,
    started: u64,
    phases: Vec<usize>,
}

#[expect(clippy::cast_precision_loss, reason = "times and counts below 2^53")]
impl Flow {
    /// Width of a bucket of what is due: about 10 ms of work.
    fn bucket(&self) -> f64 {
        self.rate * 1e7
    }

    fn work_at(&self, now: u64) -> f64 {
        self.work + self.rate * now.saturating_sub(self.since) as f64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a time, saturating"
    )]
    fn next(&self) -> u64 {
        match self.due.first() {
            Some(work) if self.rate > 0.0 => {
                self.since + ((work - self.work).max(0.0) / self.rate).ceil() as u64
            }
            _ => u64::MAX,
        }
    }

    /// Counts the visits up to now.
    fn settle(&mut self, index: usize, world: &mut World, now: u64) {
        let visits = self.rate * now.saturating_sub(self.since) as f64;
        if visits > 0.0 {
            self.work += visits;
            world.totals.visits[index] += visits;
            let counts = &mut world.totals.accesses[index];
            for (node, count) in counts.iter_mut().enumerate() {
                count.reads += visits * self.served[node][0];
                count.writes += visits * self.served[node][1];
                count.backs += visits * self.load.writebacks[node];
            }
        }
        self.since = self.since.max(now);
    }

    fn add(&mut self, node: usize, unit: &UnitRates, sign: f64) {
        self.load.reads[node] = (self.load.reads[node] + sign * unit.miss_read).max(0.0);
        self.load.writes[node] = (self.load.writes[node] + sign * unit.miss_write).max(0.0);
        self.load.writebacks[node] = (self.load.writebacks[node] + sign * unit.backs).max(0.0);
        self.served[node] = [self.load.reads[node], self.load.writes[node]];
    }
}

impl Rate {
    pub(crate) fn new(setup: &Setup, world: &World, direct: Option<Layout>) -> Self {
        let programs = setup.workload.programs.len();
        let block_shift = if world.space.units() < 1 << 22 { 0 } else { 9 };
        let flows = (0..programs)
            .map(|index| {
                let units = world.space.program_units(index);
                Flow {
                    rate: 0.0,
                    work: 0.0,
                    since: 0,
                    load: Load::idle(world.sockets[index]),
                    served: [[0.0; 2]; NODES],
                    due: Calendar::new(),
                    horizon: vec![0.0; ((units.end - units.start) >> block_shift) as usize + 1],
                    moved_horizon: (usize::MAX, 0.0),
                }
            })
            .collect();
        Self {
            setup: setup.clone(),
            flows,
            truth: AccessRates {
                programs: Vec::new(),
            },
            contention: Contention::new(&world.hardware, setup.costs.queue_share),
            direct,
            samplers: Vec::new(),
            direct_hits: Vec::new(),
            rng: Pcg64Mcg::new(u128::from(setup.seed) << 64 | 0x7e44_ace5_1111_c10c),
            cleared_at: Vec::new(),
            block_shift,
            started: 0,
            phases: Vec::new(),
        }
    }

    fn uniform(&mut self) -> f64 {
        // 53 bits, never 0.
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let x = ((self.rng.next_u64() >> 11) + 1) as f64;
        x / (1_u64 << 53) as f64
    }

    fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    fn rebuild(&mut self, world: &World) {
        let rates: Vec<f64> = self
            .flows
            .iter()
            .zip(&self.setup.workload.programs)
            .map(|(flow, program)| {
                if flow.rate > 0.0 {
                    flow.rate
                } else {
                    f64::from(program.threads) / 200.0
                }
            })
            .collect();
        self.truth = AccessRates::new(
            &self.setup,
            &world.space,
            &world.hardware,
            &world.sockets,
            &self.phases,
            &rates,
        );
        if self.direct.is_some() {
            self.fill_direct(world, &rates);
        }
        for index in 0..self.flows.len() {
            self.sum(world, index);
        }
        if world.sampling.is_some() {
            let units = (0..self.flows.len()).map(|index| world.space.program_units(index));
            let programs = self.truth.programs.iter().zip(units);
            self.samplers = programs
                .map(|(program, units)| program.sampler(&world.space, units))
                .collect();
        }
    }

    /// Draws the samples of the time since `before`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "numbers of samples and of pages"
    )]
    fn sample(&mut self, world: &mut World, engine: &mut Engine, before: u64) {
        let on = world.sampling.as_ref().filter(|sampling| !sampling.off);
        let Some(period) = on.map(|sampling| sampling.period as f64) else {
            return;
        };
        let span = world.now.saturating_sub(before) as f64;
        for index in 0..self.samplers.len() {
            let flow = &self.flows[index];
            let missed: f64 = flow.served.iter().flatten().sum();
            let mean = missed * flow.rate * span / period;
            let mut at = self.exponential();
            // One after the other: a step holds few.
            while at < mean {
                let time = before + (at / mean * span) as u64;
                at += self.exponential();
                let draws = [self.rng.next_u64(), self.rng.next_u64()];
                let Some(sampler) = &self.samplers[index] else {
                    break;
                };
                let (unit, page) = sampler.draw(&world.space, index, draws);
                let one = self.truth.programs[index].unit(&world.space, unit);
                let write = self.uniform() * (one.miss_read + one.miss_write) < one.miss_write;
                world.sampled(engine, unit, page, write, time);
            }
        }
    }

    /// The sums by node of one program, from the beginning.
    fn sum(&mut self, world: &World, index: usize) {
        let truth = &self.truth.programs[index];
        let flow = &mut self.flows[index];
        flow.load = Load::idle(world.sockets[index]);
        flow.served = [[0.0; 2]; NODES];
        let units = world.space.program_units(index);
        let mut unit = units.start;
        while unit < units.end {
            let end = truth.alike_until(&world.space, unit);
            let one = truth.unit(&world.space, unit);
            if let Some(direct) = &self.direct {
                for unit in unit..end {
                    let hit = f64::from(self.direct_hits[unit as usize]);
                    let cached = world.hardware.cache.is_some();
                    add_direct(flow, direct.fast, world.node(unit), &one, hit, cached);
                }
            } else {
                let mut on = [0_u32; NODES + 1];
                for state in &world.state[unit as usize..end as usize] {
                    on[usize::from(state & bits::NODE)] += 1;
                }
                for (node, count) in on.into_iter().enumerate().take(world.hardware.nodes) {
                    flow.add(node, &one, f64::from(count));
                }
            }
            unit = end;
        }
        flow.load.streamed = truth.streamed;
    }

    /// Memory mode: what shares a place, and what each gets of it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision on purpose"
    )]
    fn fill_direct(&mut self, world: &World, rates: &[f64]) {
        let Some(layout) = self.direct else { return };
        let mut places = vec![0.0_f32; layout.places()];
        self.direct_hits = vec![0.0; world.state.len()];
        for pass in 0..2 {
            let mut first_page = 0;
            for (index, program) in self.truth.programs.iter().enumerate() {
                let units = world.space.program_units(index);
                let mut alike = units.start;
                let mut one = UnitRates::default();
                for unit in units {
                    if unit >= alike {
                        one = program.unit(&world.space, unit);
                        alike = program.alike_until(&world.space, unit);
                    }
                    let (base, pages) = world.space.base_pages(unit);
                    let backs = if world.hardware.cache.is_some() {
                        one.backs
                    } else {
                        0.0
                    };
                    let asked = one.miss_read + one.miss_write + backs;
                    let each = asked * rates[index] / f64::from(pages);
                    for page in base..base + pages {
                        let place = layout.place(first_page + u64::from(page));
                        if pass == 0 {
                            places[place] += each as f32;
                        } else if each > 0.0 {
                            let others = (f64::from(places[place]) - each).max(0.0);
                            let stay = program.stay / rates[index].max(1e-12);
                            let hit =
                                crate::memory_mode::hit_share(each / 64.0, others / 64.0, stay);
                            self.direct_hits[unit as usize] += hit as f32 / pages as f32;
                        }
                    }
                }
                first_page += u64::from(self.setup.workload.programs[index].pages);
            }
        }
    }

    /// The work from now, or from where draws ended before, to the first access of an armed page that has no
    /// draw; with its program and block.
    fn draw_fault(&mut self, world: &World, unit: u32) -> Option<(f64, usize, usize)> {
        if world.has(unit, bits::FAULT_DUE) || !world.has(unit, bits::ARMED) {
            return None;
        }
        let index = world.program(unit);
        let (read, write) = self.truth.programs[index].visits(&world.space, unit);
        let share = read + write;
        if share <= 0.0 {
            return None;
        }
        let draw = self.exponential() / share;
        let first = world.space.program_units(index).start;
        Some((draw, index, ((unit - first) >> self.block_shift) as usize))
    }

    /// A page was armed between passes: its block's horizon stays, or others of it that have no draw yet would
    /// lose what lies before the new one.
    fn arm_alone(&mut self, world: &mut World, unit: u32) {
        if self.block_shift == 0 {
            self.arm(world, unit, true);
        } else if let Some((draw, index, block)) = self.draw_fault(world, unit) {
            let work = self.flows[index].work_at(world.now) + draw;
            self.keep_fault(world, unit, index, block, work);
        }
    }

    /// Keeps what was drawn if it is before the horizon.
    fn keep_fault(&mut self, world: &mut World, unit: u32, index: usize, block: usize, work: f64) {
        let flow = &mut self.flows[index];
        if work <= flow.horizon[block] {
            let due = Due {
                work,
                unit,
                write: false,
            };
            flow.due.push(due, flow.bucket());
            world.set(unit, bits::FAULT_DUE);
        }
    }

    fn arm(&mut self, world: &mut World, unit: u32, fresh: bool) {
        let Some((draw, index, block)) = self.draw_fault(world, unit) else {
            return;
        };
        let flow = &mut self.flows[index];
        let work = flow.work_at(world.now);
        if flow.moved_horizon.0 != block {
            flow.moved_horizon = (block, flow.horizon[block]);
            // Passes ahead: some for small memories, so that a faster program needs no redraw; fewer
            // where the kept draws would fill the memory.
            let passes = if self.block_shift == 0 { 16.0 } else { 2.0 };
            #[expect(clippy::cast_precision_loss, reason = "a time")]
            let pass = world.scanners[index].pass.min(1 << 50) as f64;
            let ahead = flow.rate.max(1e-6) * pass * passes;
            flow.horizon[block] = flow.horizon[block].max(work + ahead);
        }
        let start = if fresh {
            work
        } else {
            work.max(flow.moved_horizon.1)
        };
        self.keep_fault(world, unit, index, block, start + draw);
    }

    /// An armed page has no access but its fault: whether its accessed bit was set before is settled when it is armed.
    fn settle_bit(&mut self, world: &mut World, unit: u32) {
        if !world.has(unit, bits::ACCESSED) && self.accessed_since(world, unit) {
            world.set(unit, bits::ACCESSED);
        }
    }

    /// Draws whether the page was visited since its bit was cleared, or settled; it is now.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision on purpose"
    )]
    fn accessed_since(&mut self, world: &World, unit: u32) -> bool {
        if self.cleared_at.is_empty() {
            self.cleared_at = vec![0.0; world.state.len()];
        }
        let index = world.program(unit);
        let (read, write) = self.truth.programs[index].visits(&world.space, unit);
        let work = self.flows[index].work_at(world.now);
        let since = work - f64::from(self.cleared_at[unit as usize]);
        self.cleared_at[unit as usize] = work as f32;
        self.uniform() > (-(read + write) * since.max(0.0)).exp()
    }

    fn watch_shadow(&mut self, world: &mut World, unit: u32) {
        if world.has(unit, bits::WRITE_DUE) || !world.has(unit, bits::SHADOW) {
            return;
        }
        let index = world.program(unit);
        let (_, write) = self.truth.programs[index].visits(&world.space, unit);
        if write <= 0.0 {
            return;
        }
        let work = self.flows[index].work_at(world.now) + self.exponential() / write;
        let due = Due {
            work,
            unit,
            write: true,
        };
        let flow = &mut self.flows[index];
        flow.due.push(due, flow.bucket());
        world.set(unit, bits::WRITE_DUE);
    }

    /// One event of a program has come.
    fn fire(&mut self, world: &mut World, engine: &mut Engine, due: Due) {
        let unit = due.unit;
        if due.write {
            world.clear(unit, bits::WRITE_DUE);
            if world.has(unit, bits::BLOCKED) {
                // The write waits for the commit; what comes after is drawn anew.
                self.watch_shadow(world, unit);
            } else if world.has(unit, bits::SHADOW) {
                world.shadow_written(engine, unit, world.now);
            }
            return;
        }
        world.clear(unit, bits::FAULT_DUE);
        if world.has(unit, bits::ARMED) {
            let index = world.program(unit);
            let (read, write) = self.truth.programs[index].visits(&world.space, unit);
            let is_write = write > 0.0 && self.uniform() * (read + write) < write;
            if world.reader.is_some() {
                world.set(unit, bits::ACCESSED);
            }
            world.hint_fault(engine, unit, is_write, world.now);
        }
    }
}

/// In memory mode every miss asks the fast node; what it does not have comes from the slow one and is
/// put there, and what that displaces goes back to the slow one if it was written. With a cache above it,
/// lines are written when that gives them back.
fn add_direct(flow: &mut Flow, fast: usize, node: usize, unit: &UnitRates, hit: f64, cached: bool) {
    let misses = [unit.miss_read, unit.miss_write];
    let missed = unit.miss_read + unit.miss_write;
    let (asked, written) = if cached {
        (missed + unit.backs, unit.backs)
    } else {
        (missed, unit.miss_write)
    };
    if asked > 0.0 {
        let dirty = cache::dirty_share(hit, written / asked);
        flow.load.writebacks[node] += asked * (1.0 - hit) * dirty;
        flow.load.writebacks[fast] += missed * (1.0 - hit);
    }
    flow.load.reads[fast] += misses[0];
    flow.load.writes[fast] += misses[1];
    flow.load.writebacks[fast] += unit.backs;
    flow.load.reads[node] += misses[0] * (1.0 - hit);
    flow.load.writes[node] += misses[1] * (1.0 - hit);
    for (write, missed) in misses.into_iter().enumerate() {
        flow.served[fast][write] += missed * hit;
        flow.served[node][write] += missed * (1.0 - hit);
    }
}

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
