// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random draws of the trackers.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

/// A seeded source.
pub(super) struct Draw(Pcg64Mcg);

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self(Pcg64Mcg::new(
            u128::from(seed) << 64 | 0x9f0f_11e5_0000_0001,
        ))
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Above 0, at most 1.
    pub(super) fn uniform(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let x = ((self.0.next_u64() >> 11) + 1) as f64;
        x / (1_u64 << 53) as f64
    }

    pub(super) fn exponential(&mut self) -> f64 {
        -self.uniform().ln()
    }

    /// Below `end`, which is not 0.
    #[expect(clippy::cast_possible_truncation, reason = "below end")]
    pub(super) fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.0.next_u64()) * end as u128) >> 64) as usize
    }

    /// Events of a Poisson process; by the normal distribution where there are many.
    pub(super) fn poisson(&mut self, mean: f64) -> f64 {
        if mean > 50.0 {
            let radius = (2.0 * self.exponential()).sqrt();
            let normal = radius * (std::f64::consts::TAU * self.uniform()).cos();
            return (mean + normal * mean.sqrt()).round().max(0.0);
        }
        let (mut count, mut at) = (0.0, self.exponential());
        while at < mean {
            count += 1.0;
            at += self.exponential();
        }
        count
    }
}
