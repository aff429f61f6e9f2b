// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accessed bits: a hand goes round over all pages, reads each bit and clears it, as fast as the budget
//! allows. What eight rounds said is a page's estimate (AutoTiering's least accessed page history: the
//! number of rounds in which it was accessed, the youngest first among equals).

use super::Draw;
use super::Options;
use super::Tracker;
use super::ground::Ground;
use crate::Costs;

const STEP_NS: f64 = 10e6;

/// The tracker.
pub(super) struct AccessedBits {
    per_step: f64,
    probe_ns: f64,
    saved: f64,
    cursor: usize,
    cleared: Vec<f64>,
    history: Vec<u8>,
}

impl AccessedBits {
    pub(super) fn new(ground: &Ground, costs: &Costs, options: &Options) -> Self {
        Self {
            per_step: options.overhead * STEP_NS / costs.probe_ns.max(1e-3),
            probe_ns: costs.probe_ns,
            saved: 0.0,
            cursor: 0,
            cleared: vec![0.0; ground.units()],
            history: vec![0; ground.units()],
        }
    }
}

impl Tracker for AccessedBits {
    fn interval(&self) -> f64 {
        STEP_NS
    }

    fn step(&mut self, ground: &Ground, now: f64, draw: &mut Draw) -> f64 {
        self.saved += self.per_step;
        let (mut spent, mut left) = (0.0, ground.units());
        while self.saved >= 1.0 && left > 0 {
            left -= 1;
            self.saved -= 1.0;
            spent += self.probe_ns;
            let unit = self.cursor;
            self.cursor = (unit + 1) % ground.units();
            let accessed = ground.visited(unit, now - self.cleared[unit], draw);
            self.cleared[unit] = now;
            self.history[unit] = self.history[unit] >> 1 | u8::from(accessed) << 7;
        }
        if left == 0 {
            // Nothing more to look at in a step: what is saved is not needed.
            self.saved = 0.0;
        }
        spent
    }

    #[expect(clippy::cast_possible_truncation, reason = "single precision will do")]
    fn estimate(&self, ground: &Ground, _: f64, out: &mut [f32]) {
        for (unit, out) in out.iter_mut().enumerate() {
            let history = self.history[unit];
            let rounds = f64::from(history.count_ones()) + f64::from(history) / 256.0;
            *out = (rounds / ground.bytes(unit)) as f32;
        }
    }
}
