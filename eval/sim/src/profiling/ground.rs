// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the programs really do: visits and cache misses a ns of every unit, and which units are hot.
//!
//! Throughput is that of the set-up under `none`, measured for each combination of phases, less the
//! tracker's budget.

use terrace_core::Nanos;

use super::Options;
use crate::EngineKind;
use crate::Setup;
use crate::SimError;
use crate::hardware::Hardware;
use crate::space::Space;
use crate::truth::Truth;

/// Seconds of a run under `none` that say how fast the programs are.
const MEASURE_S: f64 = 2.0;

/// The truth.
pub(super) struct Ground {
    setup: Setup,
    hardware: Hardware,
    pub(super) space: Space,
    sockets: Vec<usize>,
    hot_most: f64,
    phases: Vec<usize>,
    next_phase: f64,
    /// Visits a ns of each program.
    speed: Vec<f64>,
    /// Visits a ns, by unit.
    pub(super) visits: Vec<f32>,
    /// Lines missed a ns, by unit.
    pub(super) misses: Vec<f32>,
    /// Whether a unit is hot.
    pub(super) hot: Vec<bool>,
    /// Bytes that are.
    pub(super) hot_bytes: f64,
    /// Counts changes of `visits`.
    pub(super) version: u32,
}

impl Ground {
    /// The run that says how fast the programs are.
    pub(super) fn baseline(setup: &Setup) -> Setup {
        Setup {
            system: "none".to_owned(),
            params: toml::Table::new(),
            engine: EngineKind::Rate,
            ..setup.clone()
        }
    }

    pub(super) fn new(setup: &Setup, options: &Options) -> Result<Self, SimError> {
        let hardware = Hardware::new(setup)?;
        let space = Space::map(setup)?;
        let mut measured = Self::baseline(setup);
        measured.seconds = setup.seconds.min(MEASURE_S);
        let outcome = crate::run(&measured, &mut |_| {})?;
        let rates = outcome.programs.iter();
        let slower = |threads: u32| 1.0 - options.overhead / f64::from(threads.max(1));
        let programs = setup.workload.programs.iter();
        let speed = rates
            .zip(programs)
            .map(|(rate, program)| rate.ops_per_s / 1e9 * slower(program.threads).max(0.05))
            .collect();
        let units = space.units() as usize;
        let count = if setup.spread { hardware.cpus.len() } else { 1 };
        let mut ground = Self {
            sockets: (0..space.programs()).map(|p| p % count).collect(),
            hot_most: options.hot_share,
            phases: Vec::new(),
            next_phase: 0.0,
            speed,
            visits: vec![0.0; units],
            misses: vec![0.0; units],
            hot: vec![false; units],
            hot_bytes: 0.0,
            version: 0,
            setup: setup.clone(),
            hardware,
            space,
        };
        ground.advance(0.0);
        Ok(ground)
    }

    pub(super) fn units(&self) -> usize {
        self.visits.len()
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
    pub(super) fn bytes(&self, unit: usize) -> f64 {
        self.space.bytes(index(unit)) as f64
    }

    #[expect(clippy::cast_precision_loss, reason = "bytes below 2^53")]
    pub(super) fn hot_share(&self) -> f64 {
        self.hot_bytes / self.setup.workload.bytes() as f64
    }

    /// Whether a unit was visited in that many ns, by chance.
    pub(super) fn visited(&self, unit: usize, ns: f64, draw: &mut super::Draw) -> bool {
        draw.uniform() > (-f64::from(self.visits[unit]) * ns).exp()
    }

    /// The phases of that time.
    pub(super) fn advance(&mut self, now: f64) {
        if now < self.next_phase {
            return;
        }
        let at = Nanos(crate::world::round(now));
        let mut next = f64::INFINITY;
        let mut phases = Vec::new();
        for program in &self.setup.workload.programs {
            let (phase, end) = program.phase_at(at);
            #[expect(clippy::cast_precision_loss, reason = "a time below 2^53 ns")]
            let end = end.map_or(f64::INFINITY, |end| end.0 as f64);
            next = next.min(end);
            phases.push(phase);
        }
        self.next_phase = next;
        if phases != self.phases {
            self.phases = phases;
            self.fill();
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "single precision on purpose"
    )]
    fn fill(&mut self) {
        let truth = Truth::new(
            &self.setup,
            &self.space,
            &self.hardware,
            &self.sockets,
            &self.phases,
            &self.speed,
        );
        for (program, truth) in truth.programs.iter().enumerate() {
            let speed = self.speed[program];
            for unit in self.space.program_units(program) {
                let one = truth.unit(&self.space, unit);
                self.visits[unit as usize] = ((one.read + one.write) * speed) as f32;
                self.misses[unit as usize] = ((one.miss_read + one.miss_write) * speed) as f32;
            }
        }
        self.version += 1;
        self.mark_hot();
    }

    /// Per byte, so that pages of different sizes compare.
    fn mark_hot(&mut self) {
        let units = self.units();
        let density = |ground: &Self, unit| f64::from(ground.visits[unit]) / ground.bytes(unit);
        let all: f64 = (0..units).map(|unit| self.bytes(unit)).sum();
        let visits: f64 = self.visits.iter().map(|v| f64::from(*v)).sum();
        let mean = visits / all;
        let mut order: Vec<u32> = (0..units).map(index).collect();
        order.retain(|unit| density(self, *unit as usize) > mean * 1.001);
        order.sort_by(|&a, &b| {
            let (a_density, b_density) = (density(self, a as usize), density(self, b as usize));
            b_density.total_cmp(&a_density).then(a.cmp(&b))
        });
        self.hot.fill(false);
        self.hot_bytes = 0.0;
        for unit in order {
            let bytes = self.bytes(unit as usize);
            if self.hot_bytes + bytes > all * self.hot_most {
                break;
            }
            self.hot_bytes += bytes;
            self.hot[unit as usize] = true;
        }
    }
}

/// A unit's number as the space wants it.
pub(super) fn index(unit: usize) -> u32 {
    u32::try_from(unit).expect("at most 2^25 units")
}
