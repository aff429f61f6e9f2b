// SPDX-License-Identifier: MIT OR Apache-2.0
//! The zipfian distribution, and how its ranks are spread over the working set.
//!
//! Rank `i` (0 is the hottest) has a share in proportion to `1 / (i + 1)^theta`. YCSB's default is
//! theta 0.99. Nomad's section 4.1 spreads the hot pages uniformly over the working set: a seeded
//! permutation says which page has which rank.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

/// The shares of `pages` ranks, hottest first; their sum is 1.
#[must_use]
pub(crate) fn zipf_shares(pages: u32, theta: f64) -> Vec<f64> {
    let mut shares: Vec<f64> = (1..=pages).map(|i| f64::from(i).powf(-theta)).collect();
    let total: f64 = shares.iter().sum();
    for share in &mut shares {
        *share /= total;
    }
    shares
}

/// A random order of `0..pages`: element `i` is the page with rank `i`.
#[must_use]
pub(crate) fn spread(pages: u32, seed: u64) -> Vec<u32> {
    let mut rng = Pcg64Mcg::new(u128::from(seed) << 64 | u128::from(seed ^ 0x5eed));
    let mut order: Vec<u32> = (0..pages).collect();
    // Fisher and Yates, from the back.
    for i in (1..order.len()).rev() {
        let j = rng.random_range(0..=i);
        order.swap(i, j);
    }
    order
}
