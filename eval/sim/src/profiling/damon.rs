// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON: one random page stands for its region; regions are merged where neighbours look alike and
//! split at random (`mm/damon/core.c`, `Documentation/mm/damon/design.rst`).
//!
//! Kept: sampling every 5 ms, aggregation every 100 ms, at least 10 regions (the kernel's defaults);
//! neighbours merge if their counts differ by at most a tenth of the highest, none grows over the
//! memory's tenth; below half of the most, each region is split in two at a random place, in three if
//! splitting in two did nothing new and there are fewer than a third. The most is the kernel's 1000,
//! or as many as the budget pays for: MTM 3 controls the overhead so, and so may it be more than 1000.
//! Left out: updates of the regions to new mappings; memory does not change here.

use std::ops::Range;

use super::Draw;
use super::Options;
use super::Tracker;
use super::ground::Ground;
use crate::Costs;

const SAMPLE_NS: f64 = 5e6;
/// Samples of one aggregation.
const SAMPLES: u32 = 20;
pub(super) const REGIONS_MIN: usize = 10;

/// A region and what is known of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Region {
    pub(super) units: Range<usize>,
    count: u32,
    last: u32,
}

/// The tracker.
pub(super) struct Damon {
    pub(super) regions: Vec<Region>,
    pub(super) most: usize,
    /// Programs' first units: regions do not span two programs.
    starts: Vec<usize>,
    largest: usize,
    sampled: u32,
    regions_before: usize,
    probe_ns: f64,
}

impl Damon {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of regions"
    )]
    pub(super) fn new(ground: &Ground, costs: &Costs, options: &Options) -> Self {
        let paid = (options.overhead * SAMPLE_NS / costs.probe_ns.max(1.0)) as usize;
        let units = ground.units();
        let programs = 0..ground.space.programs();
        let most = paid.max(REGIONS_MIN).max(programs.end);
        let each = REGIONS_MIN.div_ceil(programs.end);
        let mut damon = Self {
            regions: Vec::new(),
            most,
            starts: Vec::new(),
            largest: (units / REGIONS_MIN).max(1),
            sampled: 0,
            regions_before: 0,
            probe_ns: costs.probe_ns,
        };
        for program in programs {
            let all = ground.space.program_units(program);
            let all = all.start as usize..all.end as usize;
            damon.starts.push(all.start);
            let step = all.len().div_ceil(each).max(1);
            for start in all.clone().step_by(step) {
                damon.regions.push(Region {
                    units: start..(start + step).min(all.end),
                    count: 0,
                    last: 0,
                });
            }
        }
        damon
    }

    /// Neighbours whose counts differ by no more than that become one.
    fn merge_within(&mut self, threshold: u32) {
        let mut merged: Vec<Region> = Vec::with_capacity(self.regions.len());
        for region in self.regions.drain(..) {
            if let Some(before) = merged.last_mut() {
                let size = before.units.len() + region.units.len();
                if before.count.abs_diff(region.count) <= threshold
                    && size <= self.largest
                    && !self.starts.contains(&region.units.start)
                {
                    before.count = weighted(before.count, region.count, before, &region);
                    before.last = weighted(before.last, region.last, before, &region);
                    before.units.end = region.units.end;
                    continue;
                }
            }
            merged.push(region);
        }
        self.regions = merged;
    }

    fn merge(&mut self) {
        let highest = self.regions.iter().map(|r| r.count).max().unwrap_or(0);
        let mut threshold = highest / 10;
        loop {
            self.merge_within(threshold);
            if self.regions.len() <= self.most || threshold >= SAMPLES {
                break;
            }
            threshold = (threshold * 2).max(1);
        }
    }

    fn split(&mut self, draw: &mut Draw) {
        let count = self.regions.len();
        if count > self.most / 2 {
            return;
        }
        let parts = if count == self.regions_before && count < self.most / 3 {
            3
        } else {
            2
        };
        self.regions_before = count;
        let mut out = Vec::with_capacity(count * parts);
        for mut region in self.regions.drain(..) {
            for _ in 1..parts {
                let size = region.units.len();
                // A tenth to nine tenths, whole pages.
                let first = size * (1 + draw.below(9)) / 10;
                if first == 0 || first >= size {
                    break;
                }
                let at = region.units.start + first;
                let mut left = region.clone();
                left.units.end = at;
                region.units.start = at;
                out.push(left);
            }
            out.push(region);
        }
        self.regions = out;
    }

    fn aggregate(&mut self, draw: &mut Draw) {
        self.merge();
        for region in &mut self.regions {
            region.last = region.count;
            region.count = 0;
        }
        self.split(draw);
    }
}

fn weighted(a: u32, b: u32, before: &Region, region: &Region) -> u32 {
    let (left, right) = (before.units.len() as u64, region.units.len() as u64);
    let mean = (u64::from(a) * left + u64::from(b) * right) / (left + right);
    u32::try_from(mean).expect("between two counts")
}

impl Tracker for Damon {
    fn interval(&self) -> f64 {
        SAMPLE_NS
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of regions")]
    fn step(&mut self, ground: &Ground, _: f64, draw: &mut Draw) -> f64 {
        for region in &mut self.regions {
            let unit = region.units.start + draw.below(region.units.len());
            if ground.visited(unit, SAMPLE_NS, draw) {
                region.count += 1;
            }
        }
        let cost = self.regions.len() as f64 * self.probe_ns;
        self.sampled += 1;
        if self.sampled == SAMPLES {
            self.sampled = 0;
            self.aggregate(draw);
        }
        cost
    }

    #[expect(clippy::cast_precision_loss, reason = "at most 20")]
    fn estimate(&self, _: &Ground, _: f64, out: &mut [f32]) {
        for region in &self.regions {
            out[region.units.clone()].fill(region.last as f32);
        }
    }
}
