// SPDX-License-Identifier: MIT OR Apache-2.0
//! The zipfian distribution, and how its ranks are spread over the working set.
//!
//! Rank `i` (0 is the hottest) has a share in proportion to `1 / (i + 1)^theta`. YCSB's default is
//! theta 0.99. Nomad's section 4.1 spreads the hot pages uniformly over the working set: a seeded
//! permutation says which page has which rank.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// YCSB's default exponent, which the paper's benchmark uses.
pub const YCSB_THETA: f64 = 0.99;

/// The shares of `pages` ranks, hottest first; their sum is 1.
#[must_use]
pub fn zipf_shares(pages: u32, theta: f64) -> Vec<f64> {
    let mut shares: Vec<f64> = (1..=pages).map(|i| f64::from(i).powf(-theta)).collect();
    let total: f64 = shares.iter().sum();
    for share in &mut shares {
        *share /= total;
    }
    shares
}

/// A random order of `0..pages`: element `i` is the page with rank `i`.
#[must_use]
pub fn spread(pages: u32, seed: u64) -> Vec<u32> {
    let mut rng = Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(seed ^ 0x5eed));
    let mut order: Vec<u32> = (0..pages).collect();
    // Fisher and Yates, from the back.
    for i in (1..order.len()).rev() {
        let j = rng.random_range(0..=i);
        order.swap(i, j);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_fall_by_the_power_law() {
        let shares = zipf_shares(1000, YCSB_THETA);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let ratio = shares[0] / shares[99];
        assert!((ratio - 100f64.powf(YCSB_THETA)).abs() < 1e-6, "{ratio}");
        assert!(shares.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn spread_is_a_permutation_without_a_trend() {
        let order = spread(10_000, 7);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..10_000));
        // The hottest tenth lies all over the range: each tenth of it holds about 100 of them.
        let mut tenths = [0u32; 10];
        for page in &order[..1000] {
            tenths[usize::try_from(page / 1000).expect("small")] += 1;
        }
        assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
        assert_ne!(order, spread(10_000, 8));
        assert_eq!(order, spread(10_000, 7));
    }
}
