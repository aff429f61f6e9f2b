// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of a processor's performance counters: cache misses, each with its address.
//!
//! As many samples as the budget pays, at most one a miss and [`RATE_MAX`] a second, the kernel's
//! limit (Chrono 2.3). A page's count is halved with all others when one reaches [`COOL`] (HeMem 3.1).

use terrace_workload::AliasTable;

use super::Draw;
use super::Options;
use super::Tracker;
use super::ground::Ground;
use crate::Costs;

const STEP_NS: f64 = 10e6;
/// `kernel.perf_event_max_sample_rate`.
const RATE_MAX: f64 = 100_000.0;
/// HeMem 3.1: once any page has 18 samples.
const COOL: f32 = 18.0;

/// The tracker.
pub(super) struct Pmu {
    per_ns: f64,
    sample_ns: f64,
    table: Option<AliasTable>,
    misses: f64,
    counts: Vec<f32>,
    version: u32,
}

impl Pmu {
    pub(super) fn new(ground: &Ground, costs: &Costs, options: &Options) -> Self {
        let per_ns = options.overhead / costs.pmu_sample_ns.max(1e-3);
        Self {
            per_ns: per_ns.min(RATE_MAX / 1e9),
            sample_ns: costs.pmu_sample_ns,
            table: None,
            misses: 0.0,
            counts: vec![0.0; ground.units()],
            version: 0,
        }
    }
}

impl Tracker for Pmu {
    fn interval(&self) -> f64 {
        STEP_NS
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of samples"
    )]
    fn step(&mut self, ground: &Ground, _: f64, draw: &mut Draw) -> f64 {
        if self.version != ground.version {
            self.version = ground.version;
            let misses: Vec<f64> = ground.misses.iter().map(|m| f64::from(*m)).collect();
            self.misses = misses.iter().sum();
            self.table = (self.misses > 0.0).then(|| AliasTable::new(&misses));
        }
        let Some(table) = &self.table else { return 0.0 };
        let samples = draw.poisson(self.per_ns.min(self.misses) * STEP_NS);
        let mut cool = false;
        for _ in 0..samples as u64 {
            let count = &mut self.counts[table.draw(draw.bits()) as usize];
            *count += 1.0;
            cool |= *count >= COOL;
        }
        if cool {
            for count in &mut self.counts {
                *count /= 2.0;
            }
        }
        samples * self.sample_ns
    }

    #[expect(clippy::cast_possible_truncation, reason = "single precision will do")]
    fn estimate(&self, ground: &Ground, _: f64, out: &mut [f32]) {
        for (unit, out) in out.iter_mut().enumerate() {
            *out = (f64::from(self.counts[unit]) / ground.bytes(unit)) as f32;
        }
    }
}
