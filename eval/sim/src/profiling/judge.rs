// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recall and precision of estimates, and two trackers to hold the others against: one that knows all
//! and one that knows nothing.

use super::Draw;
use super::Tracker;
use super::ground::Ground;
use super::ground::index;

/// Recall and precision; nothing where nothing is hot.
pub(super) fn judge(ground: &Ground, estimates: &[f32]) -> Option<(f64, f64)> {
    if ground.hot_bytes <= 0.0 {
        return None;
    }
    let mut order: Vec<u32> = (0..estimates.len())
        .filter(|unit| estimates[*unit] > 0.0)
        .map(index)
        .collect();
    let of = |unit: u32| estimates[unit as usize];
    order.sort_unstable_by(|&a, &b| of(b).total_cmp(&of(a)));
    let (mut taken, mut right) = (0.0, 0.0);
    for alike in order.chunk_by(|a, b| of(*a).total_cmp(&of(*b)).is_eq()) {
        let (mut bytes, mut hot) = (0.0, 0.0);
        for &unit in alike {
            let each = ground.bytes(unit as usize);
            bytes += each;
            hot += if ground.hot[unit as usize] { each } else { 0.0 };
        }
        let share = ((ground.hot_bytes - taken) / bytes).min(1.0);
        taken += bytes * share;
        right += hot * share;
        if share < 1.0 {
            break;
        }
    }
    let precision = if taken > 0.0 { right / taken } else { 0.0 };
    Some((right / ground.hot_bytes, precision))
}

/// Harmonic mean; 0 of nothing.
pub(super) fn harmonic(a: f64, b: f64) -> f64 {
    if a + b > 0.0 {
        2.0 * a * b / (a + b)
    } else {
        0.0
    }
}

/// Knows all rates.
pub(super) struct Ideal;

impl Tracker for Ideal {
    fn interval(&self) -> f64 {
        1e9
    }

    fn step(&mut self, _: &Ground, _: f64, _: &mut Draw) -> f64 {
        0.0
    }

    #[expect(clippy::cast_possible_truncation, reason = "single precision will do")]
    fn estimate(&self, ground: &Ground, _: f64, out: &mut [f32]) {
        for (unit, out) in out.iter_mut().enumerate() {
            *out = (f64::from(ground.visits[unit]) / ground.bytes(unit)) as f32;
        }
    }
}

/// Guesses.
pub(super) struct Random(Vec<f32>);

impl Random {
    #[expect(clippy::cast_possible_truncation, reason = "a guess")]
    pub(super) fn new(ground: &Ground, draw: &mut Draw) -> Self {
        Self((0..ground.units()).map(|_| draw.uniform() as f32).collect())
    }
}

impl Tracker for Random {
    fn interval(&self) -> f64 {
        1e9
    }

    fn step(&mut self, _: &Ground, _: f64, _: &mut Draw) -> f64 {
        0.0
    }

    fn estimate(&self, _: &Ground, _: f64, out: &mut [f32]) {
        out.copy_from_slice(&self.0);
    }
}
