// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hint faults: a scanner goes over all memory and arms pages; the first access to an armed page is a
//! fault. Marking and faults are paid from the budget, and the scanner waits while it is used up.
//!
//! With *captured idle time* (Chrono 3.1) a page's estimate is one over the time from arming to access,
//! the mean of the last two rounds; a page that is armed longer than it was idle before is known to be
//! no hotter than that. As *MRU* (the kernel's NUMA balancing, Chrono 2.1) the page that faulted last is
//! the hottest.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Draw;
use super::Options;
use super::Tracker;
use super::ground::Ground;
use super::ground::index;
use crate::Costs;

const STEP_NS: f64 = 10e6;
/// Budget that may be saved up, ns of time: a scanner does not catch up on a long pause.
const SAVED_NS: f64 = 1e9;

/// The tracker.
pub(super) struct HintFaults {
    mru: bool,
    overhead: f64,
    scan_ns: f64,
    fault_ns: f64,
    budget: f64,
    cursor: usize,
    /// When a page was armed; negative: it is not.
    armed: Vec<f64>,
    /// Idle times of the last two rounds, ns; 0: not seen.
    idle: Vec<[f32; 2]>,
    /// When it last faulted.
    last: Vec<f64>,
    /// Faults to come: ns and page. Faults later than the end never come out.
    due: BinaryHeap<Reverse<(u64, u32)>>,
    version: u32,
}

impl HintFaults {
    pub(super) fn new(ground: &Ground, costs: &Costs, options: &Options, mru: bool) -> Self {
        let units = ground.units();
        Self {
            mru,
            overhead: options.overhead,
            scan_ns: costs.pte_scan_ns,
            fault_ns: costs.hint_fault_ns,
            budget: 0.0,
            cursor: 0,
            armed: vec![-1.0; units],
            idle: vec![[0.0; 2]; units],
            last: vec![0.0; units],
            due: BinaryHeap::new(),
            version: ground.version,
        }
    }

    fn arm(&mut self, ground: &Ground, unit: usize, now: f64, draw: &mut Draw) {
        self.armed[unit] = now;
        self.expect(ground, unit, now, draw);
    }

    fn expect(&mut self, ground: &Ground, unit: usize, now: f64, draw: &mut Draw) {
        let rate = f64::from(ground.visits[unit]);
        if rate > 0.0 {
            let at = now + draw.exponential() / rate;
            if at < 1e18 {
                self.due
                    .push(Reverse((crate::world::round(at), index(unit))));
            }
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "single precision will do")]
    fn fault(&mut self, unit: usize, at: f64) {
        let idle = (at - self.armed[unit]).max(1.0) as f32;
        self.idle[unit] = [idle, self.idle[unit][0]];
        self.last[unit] = at;
        self.armed[unit] = -1.0;
    }
}

impl Tracker for HintFaults {
    fn interval(&self) -> f64 {
        STEP_NS
    }

    #[expect(clippy::cast_precision_loss, reason = "a time below 2^53 ns")]
    fn step(&mut self, ground: &Ground, now: f64, draw: &mut Draw) -> f64 {
        if self.version != ground.version {
            // Other rates: armed pages wait for their access anew.
            self.version = ground.version;
            self.due.clear();
            for unit in 0..ground.units() {
                if self.armed[unit] >= 0.0 {
                    self.expect(ground, unit, now - STEP_NS, draw);
                }
            }
        }
        self.budget = (self.budget + self.overhead * STEP_NS).min(self.overhead * SAVED_NS);
        let mut spent = 0.0;
        while let Some(&Reverse((at, unit))) = self.due.peek()
            && at as f64 <= now
        {
            self.due.pop();
            self.fault(unit as usize, at as f64);
            spent += self.fault_ns;
        }
        let mut left = ground.units();
        while self.budget > spent && left > 0 {
            left -= 1;
            let unit = self.cursor;
            self.cursor = (self.cursor + 1) % ground.units();
            spent += self.scan_ns;
            if self.armed[unit] < 0.0 {
                self.arm(ground, unit, now, draw);
            }
        }
        self.budget -= spent;
        spent
    }

    #[expect(clippy::cast_possible_truncation, reason = "single precision will do")]
    fn estimate(&self, ground: &Ground, now: f64, out: &mut [f32]) {
        for (unit, out) in out.iter_mut().enumerate() {
            *out = if self.mru {
                self.last[unit] as f32
            } else {
                let [idle, before] = self.idle[unit].map(f64::from);
                let mean = if before > 0.0 {
                    f64::midpoint(idle, before)
                } else {
                    idle
                };
                let waits = self.armed[unit];
                let least = if waits >= 0.0 { now - waits } else { 0.0 };
                // Per byte: a large page is visited by what any of its parts are.
                let idle = mean.max(least) * ground.bytes(unit) / 4096.0;
                if mean > 0.0 { (1e9 / idle) as f32 } else { 0.0 }
            };
        }
    }
}
