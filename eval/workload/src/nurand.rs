// SPDX-License-Identifier: MIT OR Apache-2.0
//! TPC-C's skewed choice of a row (specification 5.11, clause 2.1.6).
//!
//! `NURand(A, x, y) = (((random(0, A) | random(x, y)) + C) mod (y - x + 1)) + x`, counted here from
//! 0; `A` is one less than a power of two. `C` is a constant of the run, made from the seed.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::alias::scale;
use crate::alias::split;

/// Draws rows of one group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NuRand {
    a: u32,
    rows: u32,
    c: u32,
}

impl NuRand {
    pub(crate) fn new(a: u32, rows: u32, seed: u64) -> Self {
        let c = split(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)).0 & a;
        Self { a, rows, c }
    }

    /// A row, 0 to `rows - 1`.
    #[inline]
    pub(crate) fn draw(self, rng: &mut Pcg64Mcg) -> u32 {
        let (high, low) = split(rng.next_u64());
        self.place((low & self.a) | scale(high, self.rows as usize))
    }

    fn place(self, combined: u32) -> u32 {
        let sum = u64::from(combined) + u64::from(self.c);
        split(sum % u64::from(self.rows)).1
    }

    /// The share of each row.
    pub(crate) fn shares(self) -> Vec<f64> {
        let mut shares = vec![0.0; self.rows as usize];
        let block = self.a + 1;
        let pair = 1.0 / (f64::from(block) * f64::from(self.rows));
        let full = self.rows / block * block;
        for row in 0..full {
            // All lows of the block occur: as many pairs give this one as it has subsets, and each
            // subset leaves its bits free on the other side: 3^ones pairs.
            let ones = (row & self.a).count_ones();
            let pairs = 3f64.powi(i32::try_from(ones).expect("at most 32"));
            shares[self.place(row) as usize] += pairs * pair;
        }
        for row in full..self.rows {
            // A block cut short: each of its lows with every number of the other side.
            for other in 0..block {
                shares[self.place(row | other) as usize] += pair;
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_all_pairs() {
        for (a, rows) in [(7, 24), (7, 29), (15, 7), (255, 1000)] {
            let nurand = NuRand::new(a, rows, 99);
            let mut counted = vec![0.0; rows as usize];
            for x in 0..=a {
                for y in 0..rows {
                    counted[nurand.place(x | y) as usize] +=
                        1.0 / (f64::from(a + 1) * f64::from(rows));
                }
            }
            for (row, (share, counted)) in nurand.shares().iter().zip(&counted).enumerate() {
                assert!((share - counted).abs() < 1e-12, "{a} {rows} {row}");
            }
        }
    }

    #[test]
    fn draws_follow_the_shares() {
        let nurand = NuRand::new(63, 300, 4);
        let mut rng = Pcg64Mcg::new(3);
        let mut seen = vec![0u32; 300];
        for _ in 0..300_000 {
            seen[nurand.draw(&mut rng) as usize] += 1;
        }
        for (&n, share) in seen.iter().zip(nurand.shares()) {
            let expected = 300_000.0 * share;
            assert!((f64::from(n) - expected).abs() < 6.0 * expected.sqrt() + 6.0);
        }
    }
}
