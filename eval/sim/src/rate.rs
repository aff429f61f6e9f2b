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

mod clock;
mod draws;

use rand::Rng;
use rand_pcg::Pcg64Mcg;
use terrace_policy::Engine;

use crate::Setup;
use crate::access_rates::AccessRates;
use crate::access_rates::UnitRates;
use crate::cache;
use crate::calendar::Calendar;
use crate::contention::Contention;
use crate::contention::Load;
use crate::hardware::NODES;
use crate::memory_mode::Layout;
use crate::sampling::Sampler;
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
