// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws from a fixed discrete distribution in constant time, without floating point.
//!
//! Walker's alias method: each slot holds its own index with a 32-bit probability and another
//! index for the rest. A draw is one multiplication, one comparison and one or two loads from one
//! slot. Floating point would be cheap on a processor but not in the emulated machine, where it is
//! done in software.

/// One slot: own index if the coin is below `keep`, else `other`.
#[derive(Debug, Clone, Copy)]
struct Slot {
    keep: u32,
    other: u32,
}

/// A table to draw from.
#[derive(Debug, Clone)]
pub struct AliasTable {
    slots: Vec<Slot>,
}

impl AliasTable {
    /// Builds the table for `shares`, which need not sum to 1.
    ///
    /// # Panics
    ///
    /// If there is no share or more than `u32::MAX`: both are mistakes of the caller.
    #[must_use]
    pub fn new(shares: &[f64]) -> Self {
        let count = u32::try_from(shares.len()).expect("indices are 32 bits");
        assert!(count > 0, "a distribution over nothing");
        let mean = shares.iter().sum::<f64>() / f64::from(count);
        let mut level: Vec<f64> = shares.iter().map(|share| share / mean).collect();
        let mut slots: Vec<Slot> = (0..count)
            .map(|other| Slot {
                keep: u32::MAX,
                other,
            })
            .collect();
        let (mut under, mut over): (Vec<u32>, Vec<u32>) =
            (0..count).partition(|&i| level[index(i)] < 1.0);
        while let (Some(small), Some(&large)) = (under.pop(), over.last()) {
            slots[index(small)] = Slot {
                keep: fixed_point(level[index(small)]),
                other: large,
            };
            level[index(large)] -= 1.0 - level[index(small)];
            if level[index(large)] < 1.0 {
                over.pop();
                under.push(large);
            }
        }
        Self { slots }
    }

    /// The index that the 64 random bits choose.
    #[inline]
    #[must_use]
    pub fn draw(&self, random: u64) -> u32 {
        let (high, coin) = split(random);
        let slot = scale(high, self.slots.len());
        let Slot { keep, other } = self.slots[index(slot)];
        if coin < keep { slot } else { other }
    }
}

/// `random` scaled to `0..bound`: the high half of the product.
#[inline]
pub(crate) fn scale(random: u32, bound: usize) -> u32 {
    ((u64::from(random) * bound as u64) >> 32) as u32
}

/// `random` scaled to `0..bound`, for bounds that 32 bits would make uneven.
#[inline]
pub(crate) fn scale_wide(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The two halves of 64 random bits.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the low half is what is wanted"
)]
pub(crate) fn split(random: u64) -> (u32, u32) {
    ((random >> 32) as u32, random as u32)
}

#[inline]
fn index(i: u32) -> usize {
    i as usize
}

/// A probability as 32-bit fixed point; 1 becomes the largest value.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate, and the value is in 0..=1"
)]
fn fixed_point(probability: f64) -> u32 {
    (probability * 4_294_967_296.0) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand::Rng;
    use rand_pcg::Pcg64Mcg;

    use super::*;

    /// Exact probability of each index: what the slots say, not a sample.
    fn probabilities(table: &AliasTable) -> Vec<f64> {
        let slot_share = 1.0 / f64::from(u32::try_from(table.slots.len()).expect("small"));
        let mut out = vec![0.0; table.slots.len()];
        for (i, slot) in table.slots.iter().enumerate() {
            let keep = f64::from(slot.keep) / 4_294_967_296.0;
            out[i] += slot_share * keep;
            out[index(slot.other)] += slot_share * (1.0 - keep);
        }
        out
    }

    proptest! {
        /// Whatever the shares, the table gives each index its share.
        #[test]
        fn table_holds_the_distribution(shares in prop::collection::vec(0.0f64..10.0, 1..200)) {
            let total: f64 = shares.iter().sum();
            prop_assume!(total > 1e-3);
            let table = AliasTable::new(&shares);
            for (found, share) in probabilities(&table).iter().zip(&shares) {
                prop_assert!((found - share / total).abs() < 1e-6);
            }
        }

        /// A draw never leaves the range.
        #[test]
        fn draws_stay_inside(count in 1usize..50, random: u64) {
            let table = AliasTable::new(&vec![1.0; count]);
            prop_assert!((table.draw(random) as usize) < count);
        }
    }

    #[test]
    fn zipf_draws_pass_chi_square() {
        let shares: Vec<f64> = (1..=200u32).map(|i| 1.0 / f64::from(i)).collect();
        let total: f64 = shares.iter().sum();
        let table = AliasTable::new(&shares);
        let mut rng = Pcg64Mcg::new(0xcafe_f00d);
        let mut seen = vec![0u32; shares.len()];
        let draws = 1_000_000;
        for _ in 0..draws {
            seen[index(table.draw(rng.next_u64()))] += 1;
        }
        let chi: f64 = seen
            .iter()
            .zip(&shares)
            .map(|(&n, share)| {
                let expected = share / total * f64::from(draws);
                (f64::from(n) - expected).powi(2) / expected
            })
            .sum();
        // 199 degrees of freedom: mean 199, deviation 20; 5 deviations off is one in a million.
        assert!((100.0..300.0).contains(&chi), "chi square {chi}");
    }
}
