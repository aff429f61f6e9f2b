// SPDX-License-Identifier: MIT OR Apache-2.0
//! Thermostat (Agarwal and Wenisch, ASPLOS '17; MTM 3 and 9.3 describe what is compared): a random share
//! of the 2 MiB regions is sampled at a time. A sampled region is split into its base pages; their
//! accessed bits say which are used at all; up to 50 of those are poisoned and the faults on them
//! counted, and their mean stands for the region. Each of the three stages takes a third of the period.
//!
//! The published period is 30 s with 5 % of the regions; here the share is what the budget pays, by what
//! the last period cost. A poisoned page faults again only when its translation has been evicted, which
//! a kernel does every [`REPOISON_NS`] here, so that a hot page does not fault at every access.

use super::Draw;
use super::Options;
use super::Tracker;
use super::ground::Ground;
use crate::Costs;

const STEP_NS: f64 = 100e6;
const PERIOD_STEPS: u32 = 300;
/// A sampled page counts at most one fault in it.
const REPOISON_NS: f64 = 10e6;
const POISONED: usize = 50;
const SHARE: f64 = 0.05;
const REGION_BYTES: f64 = 2_097_152.0;

/// A region under observation.
struct Sampled {
    region: usize,
    accessed: usize,
    looked: usize,
    /// Poisoned units and their faults.
    poisoned: Vec<usize>,
    faults: f64,
}

/// The tracker.
pub(super) struct Thermostat {
    budget_ns: f64,
    probe_ns: f64,
    fault_ns: f64,
    /// First unit of each region, and the number of all.
    starts: Vec<usize>,
    rate: Vec<f32>,
    step: u32,
    share: f64,
    spent: f64,
    sampled: Vec<Sampled>,
}

impl Thermostat {
    pub(super) fn new(ground: &Ground, costs: &Costs, options: &Options) -> Self {
        let mut starts = vec![0];
        let mut bytes = 0.0;
        for unit in 0..ground.units() {
            bytes += ground.bytes(unit);
            if bytes >= REGION_BYTES || unit + 1 == ground.units() {
                starts.push(unit + 1);
                bytes = 0.0;
            }
        }
        Self {
            budget_ns: options.overhead * STEP_NS * f64::from(PERIOD_STEPS),
            probe_ns: costs.probe_ns,
            fault_ns: costs.hint_fault_ns,
            rate: vec![0.0; starts.len() - 1],
            starts,
            step: 0,
            share: SHARE,
            spent: 0.0,
            sampled: Vec::new(),
        }
    }

    fn units(&self, region: usize) -> std::ops::Range<usize> {
        self.starts[region]..self.starts[region + 1]
    }

    /// Stage 1: which regions.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a number of regions"
    )]
    fn choose(&mut self, draw: &mut Draw) -> f64 {
        if self.spent > 0.0 {
            let better = self.share * self.budget_ns / self.spent;
            // Costs differ from sample to sample: not more than twice as many at a time.
            self.share = better.clamp(self.share / 4.0, self.share * 2.0).min(1.0);
        }
        self.spent = 0.0;
        let regions = self.rate.len();
        let wanted = ((regions as f64 * self.share) as usize).clamp(1, regions);
        let mut left = wanted;
        self.sampled.clear();
        for region in 0..regions {
            // Each of the rest with the same chance, until enough are found.
            if draw.below(regions - region) < left {
                left -= 1;
                self.sampled.push(Sampled {
                    region,
                    accessed: 0,
                    looked: self.units(region).len(),
                    poisoned: Vec::new(),
                    faults: 0.0,
                });
            }
        }
        // Clearing the accessed bits.
        self.sampled.iter().map(|s| s.looked as f64).sum::<f64>() * self.probe_ns
    }

    /// Stage 2: which of their pages were accessed; poisons some of those.
    #[expect(clippy::cast_precision_loss, reason = "pages of a region")]
    fn poison(&mut self, ground: &Ground, draw: &mut Draw) -> f64 {
        let window = STEP_NS * f64::from(PERIOD_STEPS / 3);
        let mut cost = 0.0;
        let mut sampled = std::mem::take(&mut self.sampled);
        for one in &mut sampled {
            let mut used: Vec<usize> = self.units(one.region).collect();
            used.retain(|unit| ground.visited(*unit, window, draw));
            one.accessed = used.len();
            for _ in 0..POISONED.min(used.len()) {
                let at = draw.below(used.len());
                one.poisoned.push(used.swap_remove(at));
            }
            cost += (one.looked + one.poisoned.len()) as f64 * self.probe_ns;
        }
        self.sampled = sampled;
        cost
    }

    /// Stage 3: counts faults.
    fn count(&mut self, ground: &Ground, draw: &mut Draw) -> f64 {
        let mut cost = 0.0;
        let windows = STEP_NS / REPOISON_NS;
        for one in &mut self.sampled {
            for &unit in &one.poisoned {
                let chance = 1.0 - (-f64::from(ground.visits[unit]) * REPOISON_NS).exp();
                let faults = draw.poisson(windows * chance).min(windows);
                one.faults += faults;
                cost += faults * self.fault_ns;
            }
        }
        cost
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "single precision will do"
    )]
    fn classify(&mut self) {
        for one in self.sampled.drain(..) {
            let poisoned = one.poisoned.len().max(1) as f64;
            let used = one.accessed as f64 / one.looked.max(1) as f64;
            self.rate[one.region] = (one.faults / poisoned * used) as f32;
        }
    }
}

impl Tracker for Thermostat {
    fn interval(&self) -> f64 {
        STEP_NS
    }

    fn step(&mut self, ground: &Ground, _: f64, draw: &mut Draw) -> f64 {
        let third = PERIOD_STEPS / 3;
        let mut cost = 0.0;
        if self.step == 0 {
            cost += self.choose(draw);
        } else if self.step == third {
            cost += self.poison(ground, draw);
        }
        self.step += 1;
        if self.step > 2 * third {
            cost += self.count(ground, draw);
        }
        if self.step == PERIOD_STEPS {
            self.classify();
            self.step = 0;
        }
        self.spent += cost;
        cost
    }

    fn estimate(&self, _: &Ground, _: f64, out: &mut [f32]) {
        for region in 0..self.rate.len() {
            out[self.units(region)].fill(self.rate[region]);
        }
    }
}
