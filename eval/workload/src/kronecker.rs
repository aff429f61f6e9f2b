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

/// Vertices whose shares are counted one by one; more would take seconds.
const COUNTED_MAX: u64 = 1 << 27;

/// Calls `each` with vertices and their shares: with all of them up to 2^27, else with those that have
/// the fewest ones, which are the hubs. Returns the share of all others together.
///
/// Those left out are many and small: permuted, a page of 1024 of them differs from another by 1 % of
/// its share where there are 2^32.
pub(crate) fn each_share(bits: u32, zero: f64, mut each: impl FnMut(u64, f64)) -> f64 {
    if 1 << bits <= COUNTED_MAX {
        let by_ones = share_by_ones(bits, zero);
        for vertex in 0..1u64 << bits {
            each(vertex, by_ones[vertex.count_ones() as usize]);
        }
        return 0.0;
    }
    each_hub(bits, zero, COUNTED_MAX, each)
}

/// As [`each_share`], with as many numbers of ones as have at most `count` vertices together.
fn each_hub(bits: u32, zero: f64, count: u64, mut each: impl FnMut(u64, f64)) -> f64 {
    let (mut left, mut others, mut class) = (count, 1.0, 1u64);
    for (ones, share) in (0..=bits).zip(share_by_ones(bits, zero)) {
        if class > left {
            break;
        }
        left -= class;
        let mut vertex = (1u64 << ones) - 1;
        for _ in 0..class {
            each(vertex, share);
            others -= share;
            vertex = next_with_as_many_ones(vertex);
        }
        // One more bit: the next binomial coefficient.
        class = class * u64::from(bits - ones) / u64::from(ones + 1);
    }
    f64::max(others, 0.0)
}

/// The next larger number with the same number of ones (Gosper).
fn next_with_as_many_ones(x: u64) -> u64 {
    let lowest = x & x.wrapping_neg();
    let Some(shift) = lowest.checked_ilog2() else {
        return 0;
    };
    let carried = x + lowest;
    carried | (((x ^ carried) >> 2) >> shift)
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

    #[test]
    fn hubs_are_the_vertices_with_the_fewest_ones() {
        let (mut seen, mut sum) = (Vec::new(), 0.0);
        // 1 + 14 + 91 have up to two ones; the next 364 are too many.
        let others = each_hub(14, 0.76, 400, |vertex, found| {
            assert!((found - share(vertex, 14, 0.76)).abs() < 1e-15);
            seen.push(vertex);
            sum += found;
        });
        seen.sort_unstable();
        let expected: Vec<u64> = (0..1 << 14).filter(|v: &u64| v.count_ones() <= 2).collect();
        assert_eq!(seen, expected);
        assert!((sum + others - 1.0).abs() < 1e-12);
        let all = each_hub(10, 0.76, 1 << 10, |_, _| {});
        assert!(all < 1e-12, "nothing is left: {all}");
    }
}
