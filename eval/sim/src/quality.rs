// SPDX-License-Identifier: MIT OR Apache-2.0
//! How well a system's placement matches the hot set, as Chrono 2.4 measures it.
//!
//! An access to a hot page is a positive, an access that the fast tier serves is taken for one: recall,
//! precision and their harmonic mean F1 are of accesses, not of pages. Hot are the most visited pages
//! that fit into a quarter of the memory, Chrono's share, and of these only pages that are visited more
//! than the average page. The figures are means over looks at [`LOOKS`] moments of the last third.
//!
//! The page promotion ratio is promotions per page that was accessed on a slow node: low is good; it can
//! exceed 1. Pages on slow nodes at the beginning or at the end count, with the probability that they
//! were accessed in the run if all of it was like its last phase; those that were there only in between
//! do not.
//!
//! Idle times are the last one of each page that had a hint fault, against its rate in the last phase: by the mean rate of its program
//! over the run.

use crate::Setup;
use crate::access_rates::AccessRates;
use crate::access_rates::UnitRates;
use crate::hardware::NODES;
use crate::outcome::IdleTimes;
use crate::outcome::Quality;
use crate::world::World;

/// Moments at which the placement is looked at.
pub(crate) const LOOKS: usize = 5;
/// Chrono 2.4: the center 25 % of the address space.
const HOT_SHARE: f64 = 0.25;

/// What has been seen so far.
#[derive(Debug)]
pub(crate) struct Watch {
    /// When to look next, s.
    next: f64,
    step: f64,
    looks: usize,
    sum: Quality,
    /// By unit: whether it was on a slow node at the beginning.
    slow: Vec<bool>,
}

/// Sums of accesses a ns.
#[derive(Debug, Default)]
struct Sums {
    hot: f64,
    fast: f64,
    both: f64,
}

impl Watch {
    pub(crate) fn new(setup: &Setup, world: &World) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let step = setup.seconds / 3.0 / LOOKS as f64;
        Self {
            next: setup.seconds * 2.0 / 3.0 + step / 2.0,
            step,
            looks: 0,
            sum: Quality::default(),
            slow: (0..world.space.units())
                .map(|unit| is_slow(world, unit))
                .collect(),
        }
    }

    /// Whether it is time to look.
    pub(crate) fn due(&self, seconds: f64) -> bool {
        seconds >= self.next
    }

    /// Compares placement and truth now.
    pub(crate) fn look(&mut self, setup: &Setup, world: &World, phases: &[usize], rates: &[f64]) {
        self.next += self.step;
        let sums = sums(setup, world, phases, rates);
        if sums.hot <= 0.0 {
            return;
        }
        self.looks += 1;
        let (recall, precision) = (sums.both / sums.hot, sums.both / sums.fast.max(1e-30));
        self.sum.recall += recall;
        self.sum.precision += precision;
        self.sum.f1 += 2.0 * recall * precision / (recall + precision).max(1e-30);
    }

    /// The end: means, and the promotion ratio. Nothing where no page was hot.
    #[expect(clippy::cast_precision_loss, reason = "counts of a run")]
    pub(crate) fn finish(
        &self,
        setup: &Setup,
        world: &World,
        phases: &[usize],
        promoted: u64,
    ) -> Option<Quality> {
        if self.looks == 0 {
            return None;
        }
        let looks = self.looks as f64;
        let visits = &world.totals.visits;
        let rates: Vec<f64> = visits.iter().map(|v| v / world.now.max(1) as f64).collect();
        let truth = truth(setup, world, phases, &rates);
        let (mut accessed, mut idle) = (0.0, Idle::default());
        for (program, truth) in truth.programs.iter().enumerate() {
            for unit in world.space.program_units(program) {
                if let Some(last) = world.idle.get(unit as usize).filter(|last| **last > 0) {
                    let (read, write) = truth.visits(&world.space, unit);
                    idle.add((read + write) * rates[program], f64::from(*last) * 16_384.0);
                }
                if self.slow[unit as usize] || is_slow(world, unit) {
                    let (read, write) = truth.visits(&world.space, unit);
                    accessed += 1.0 - (-(read + write) * visits[program]).exp();
                }
            }
        }
        Some(Quality {
            recall: self.sum.recall / looks,
            precision: self.sum.precision / looks,
            f1: self.sum.f1 / looks,
            page_promotion_ratio: (accessed > 0.0).then(|| promoted as f64 / accessed),
            idle: idle.told(),
        })
    }
}

/// Sums over pages of the logarithms of rate (x) and idle time (y).
#[derive(Debug, Default)]
struct Idle {
    pages: f64,
    x: f64,
    y: f64,
    xx: f64,
    yy: f64,
    xy: f64,
    intervals: f64,
}

impl Idle {
    /// A page with so many accesses a ns, idle for so many ns.
    fn add(&mut self, rate: f64, idle: f64) {
        if rate <= 0.0 {
            return;
        }
        let (x, y) = (rate.ln(), idle.ln());
        self.pages += 1.0;
        self.x += x;
        self.y += y;
        self.xx += x * x;
        self.yy += y * y;
        self.xy += x * y;
        self.intervals += rate * idle;
    }

    /// Nothing of fewer than a hundred pages, or of pages that are all alike.
    fn told(&self) -> Option<IdleTimes> {
        let n = self.pages;
        let spread = |squares: f64, sum: f64| squares / n - (sum / n).powi(2);
        let (x, y) = (spread(self.xx, self.x), spread(self.yy, self.y));
        let both = self.xy / n - self.x / n * (self.y / n);
        (n >= 100.0 && x > 1e-9 && y > 1e-9).then(|| IdleTimes {
            correlation: both / (x * y).sqrt(),
            intervals: self.intervals / n,
        })
    }
}

fn is_slow(world: &World, unit: u32) -> bool {
    let node = world.node(unit);
    node < NODES && !world.top[node]
}

fn truth(setup: &Setup, world: &World, phases: &[usize], rates: &[f64]) -> AccessRates {
    AccessRates::new(
        setup,
        &world.space,
        &world.hardware,
        &world.sockets,
        phases,
        rates,
    )
}

/// What is hot and what is fast now.
fn sums(setup: &Setup, world: &World, phases: &[usize], rates: &[f64]) -> Sums {
    let truth = truth(setup, world, phases, rates);
    let visits = |one: &UnitRates, program: usize| (one.read + one.write) * rates[program];
    // Units that are alike: visits a ns and byte, from, to.
    let mut runs: Vec<(f64, u32, u32)> = Vec::new();
    let mut sums = Sums::default();
    let (mut all_visits, mut all_bytes) = (0.0, 0.0);
    for (index, program) in truth.programs.iter().enumerate() {
        let units = world.space.program_units(index);
        let mut unit = units.start;
        while unit < units.end {
            let end = program.alike_until(&world.space, unit);
            let each = visits(&program.unit(&world.space, unit), index);
            let bytes = bytes(world, unit);
            runs.push((each / bytes, unit, end));
            all_visits += each * f64::from(end - unit);
            all_bytes += bytes * f64::from(end - unit);
            for unit in unit..end {
                sums.fast += if is_slow(world, unit) { 0.0 } else { each };
            }
            unit = end;
        }
    }
    let mean = all_visits / all_bytes;
    runs.retain(|(density, ..)| *density > mean * 1.001);
    runs.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut left = all_bytes * HOT_SHARE;
    for (density, start, end) in runs {
        for unit in start..end {
            let bytes = bytes(world, unit);
            if bytes > left {
                return sums;
            }
            left -= bytes;
            sums.hot += density * bytes;
            sums.both += if is_slow(world, unit) {
                0.0
            } else {
                density * bytes
            };
        }
    }
    sums
}

#[expect(clippy::cast_precision_loss, reason = "a page size")]
fn bytes(world: &World, unit: u32) -> f64 {
    world.space.bytes(unit) as f64
}
