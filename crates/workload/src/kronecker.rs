// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vertex an edge of a Kronecker graph ends at (R-MAT, as in Graph500 and GAP).
//!
//! The generator chooses each bit of both ends of an edge by one quadrant: probability a for (0, 0), b
//! for (0, 1), c for (1, 0), d for (1, 1). So the bits of one end are independent, 0 with probability
//! a + b (or a + c), and a vertex's share of the edges is a product over its bits. Graph500 and GAP
//! use a, b, c = 0.57, 0.19, 0.19: 0.76 for both ends.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::alias::AliasTable;

/// Bits drawn at once.
const GROUP: u32 = 12;

/// Draws vertices.
#[derive(Debug, Clone)]
pub(crate) struct Vertices {
    bits: u32,
    group: AliasTable,
}

impl Vertices {
    /// Of `2^bits` vertices; each bit is 0 with probability `zero`.
    pub(crate) fn new(bits: u32, zero: f64) -> Self {
        let shares: Vec<f64> = (0..1u64 << GROUP)
            .map(|vertex| share(vertex, GROUP, zero))
            .collect();
        Self {
            bits,
            group: AliasTable::new(&shares),
        }
    }

    /// The vertex at one end of a random edge.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        let (mut vertex, mut bits) = (0, 0);
        while bits < self.bits {
            vertex |= u64::from(self.group.draw(rng.next_u64())) << bits;
            bits += GROUP;
        }
        // Bits are independent, so those too many can be dropped.
        vertex & ((1 << self.bits) - 1)
    }
}

/// The share of the edges' ends that are at `vertex` of `2^bits`.
pub(crate) fn share(vertex: u64, bits: u32, zero: f64) -> f64 {
    let ones = vertex.count_ones();
    let power = |base: f64, n: u32| base.powi(i32::try_from(n).expect("at most 64"));
    power(zero, bits - ones) * power(1.0 - zero, ones)
}

/// The shares by the number of ones, for all vertices at once.
pub(crate) fn share_by_ones(bits: u32, zero: f64) -> Vec<f64> {
    (0..=bits)
        .map(|ones| share((1u64 << ones) - 1, bits, zero))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_product_of_the_bits() {
        for bits in [5, 12, 14] {
            let vertices = Vertices::new(bits, 0.76);
            let mut rng = Pcg64Mcg::new(7);
            let draws = 400_000u32;
            let mut seen = vec![0u32; 1 << bits];
            for _ in 0..draws {
                seen[usize::try_from(vertices.draw(&mut rng)).expect("small")] += 1;
            }
            let mut sum = 0.0;
            for (vertex, &n) in (0..).zip(&seen) {
                let share = share(vertex, bits, 0.76);
                sum += share;
                let expected = f64::from(draws) * share;
                let off = (f64::from(n) - expected).abs();
                assert!(off < 6.0 * expected.sqrt() + 6.0, "{bits} {vertex}: {n}");
            }
            assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        }
    }
}
