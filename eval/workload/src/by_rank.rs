// SPDX-License-Identifier: MIT OR Apache-2.0
//! The zipfian distribution over any number of ranks, without a table of them.
//!
//! Rank `i` (0 is the hottest) has a weight of `1 / (i + 1)^theta`. [`ZipfRanks`] draws exactly:
//! ranks are grouped into bands that grow geometrically, an alias table chooses the band, and
//! inside it a uniform rank is accepted in proportion to its weight.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::alias::AliasTable;
use crate::alias::scale_wide;

/// The first ranks are bands of their own; then a band is at least this fraction of its first rank.
/// 97 of 100 ranks drawn are accepted without a power.
const BAND_FRACTION: u64 = 32;

/// The weight of a rank.
pub(crate) fn zipf_weight(rank: u64, theta: f64) -> f64 {
    real(rank + 1).powf(-theta)
}

/// The sum of the weights of the first `count` ranks.
pub(crate) fn zipf_sum(count: u64, theta: f64) -> f64 {
    zipf_sum_between(0, count, theta)
}

/// The sum of the weights of `from..to`: term by term where they differ much, Euler and Maclaurin's
/// formula from there on (its next term is below 10^-12 of the sum).
fn zipf_sum_between(from: u64, to: u64, theta: f64) -> f64 {
    let head_end = to.min(from.max(256));
    let head: f64 = (from..head_end).map(|rank| zipf_weight(rank, theta)).sum();
    if head_end == to {
        return head;
    }
    // The integral from the first to the last, half of both, and the first derivative's term.
    let (a, b) = (real(head_end + 1), real(to));
    let integral = if (theta - 1.0).abs() < 1e-9 {
        (b / a).ln()
    } else {
        (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta)
    };
    let ends = f64::midpoint(a.powf(-theta), b.powf(-theta));
    let slopes = theta / 12.0 * (a.powf(-theta - 1.0) - b.powf(-theta - 1.0));
    head + integral + ends + slopes
}

/// Calls `each` with every rank and its share, hottest first; the sum is 1.
pub(crate) fn each_zipf_share(count: u64, theta: f64, mut each: impl FnMut(u64, f64)) {
    let total = zipf_sum(count, theta);
    let mut start = 0;
    while start < count {
        // Within a 32nd of the rank six terms of the binomial series are exact to 10^-9.
        let end = (start + (start / BAND_FRACTION).max(1)).min(count);
        let share = zipf_weight(start, theta) / total;
        let near = 1.0 / real(start + 1);
        for rank in start..end {
            let x = real(rank - start) * near;
            each(rank, share * power_near_one(x, theta));
        }
        start = end;
    }
}

/// `(1 + x)^-theta` for small `x`.
fn power_near_one(x: f64, theta: f64) -> f64 {
    let term = |k: f64, rest: f64| 1.0 - (theta + k) / (k + 1.0) * x * rest;
    let tail = term(4.0, term(5.0, 1.0));
    term(0.0, term(1.0, term(2.0, term(3.0, tail))))
}

/// Draws ranks.
#[derive(Debug, Clone)]
pub(crate) struct ZipfRanks {
    theta: f64,
    /// First rank of each band, and the end of the last.
    starts: Vec<u64>,
    /// In each band, what of the coin always accepts.
    sure: Vec<u64>,
    bands: AliasTable,
}

impl ZipfRanks {
    pub(crate) fn new(count: u64, theta: f64) -> Self {
        let mut starts = vec![0];
        let mut next = 0;
        while next < count {
            next = (next + (next / BAND_FRACTION).max(1)).min(count);
            starts.push(next);
        }
        let weights: Vec<f64> = starts
            .windows(2)
            .map(|band| zipf_sum_between(band[0], band[1], theta))
            .collect();
        let sure = starts
            .windows(2)
            .map(|band| fixed(zipf_weight(band[1] - 1, theta) / zipf_weight(band[0], theta)))
            .collect();
        Self {
            theta,
            bands: AliasTable::new(&weights),
            starts,
            sure,
        }
    }

    /// A rank.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Pcg64Mcg) -> u64 {
        let band = self.bands.draw(rng.next_u64()) as usize;
        let (from, to) = (self.starts[band], self.starts[band + 1]);
        if to - from == 1 {
            return from;
        }
        loop {
            let rank = from + scale_wide(rng.next_u64(), to - from);
            let coin = rng.next_u64();
            if coin < self.sure[band] || coin < self.keep(from, rank) {
                return rank;
            }
        }
    }

    #[cold]
    fn keep(&self, from: u64, rank: u64) -> u64 {
        fixed((real(from + 1) / real(rank + 1)).powf(self.theta))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rank above 2^53 does not occur: pages are 32 bits, items in a page 16"
)]
fn real(rank: u64) -> f64 {
    rank as f64
}

/// A probability in units of 2^-64; casts saturate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "float to integer casts saturate, and the value is in 0..=1"
)]
fn fixed(probability: f64) -> u64 {
    (probability * 18_446_744_073_709_551_616.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formula_agrees_with_the_sum() {
        for theta in [0.5, 0.99, 1.0, 1.3] {
            for count in [1, 255, 256, 257, 1000, 100_000] {
                let slow: f64 = (0..count).map(|rank| zipf_weight(rank, theta)).sum();
                let fast = zipf_sum(count, theta);
                assert!(
                    (fast / slow - 1.0).abs() < 1e-12,
                    "{theta} {count}: {fast} {slow}"
                );
            }
        }
    }

    #[test]
    fn shares_are_the_weights_divided_by_their_sum() {
        for theta in [0.3, 0.99, 2.0, 5.0] {
            let (mut next, mut sum, total) = (0, 0.0, zipf_sum(50_000, theta));
            each_zipf_share(50_000, theta, |rank, share| {
                let expected = zipf_weight(rank, theta) / total;
                assert!(
                    (share / expected - 1.0).abs() < 1e-5,
                    "{theta} {rank}: {share}"
                );
                assert_eq!(rank, next);
                next += 1;
                sum += share;
            });
            assert_eq!(next, 50_000);
            assert!((sum - 1.0).abs() < 1e-6, "{theta}: {sum}");
        }
    }

    #[test]
    fn draws_pass_chi_square() {
        for theta in [0.7, 0.99, 1.2] {
            let ranks = ZipfRanks::new(3000, theta);
            let mut rng = Pcg64Mcg::new(0xcafe_f00d);
            // The hottest 100 one by one, the others by the hundred.
            let cell = |rank: u64| if rank < 100 { rank } else { 99 + rank / 100 };
            let mut expected = vec![0.0; 129];
            let mut seen = vec![0.0f64; 129];
            let (draws, total) = (1_000_000, zipf_sum(3000, theta));
            for rank in 0..3000 {
                let cell = usize::try_from(cell(rank)).expect("small");
                expected[cell] += f64::from(draws) * zipf_weight(rank, theta) / total;
            }
            for _ in 0..draws {
                seen[usize::try_from(cell(ranks.draw(&mut rng))).expect("small")] += 1.0;
            }
            let chi: f64 = seen
                .iter()
                .zip(&expected)
                .map(|(n, e)| (n - e).powi(2) / e)
                .sum();
            // 128 degrees of freedom: mean 128, deviation 16; five deviations off.
            assert!(
                (48.0..208.0).contains(&chi),
                "theta {theta}: chi square {chi}"
            );
        }
    }

    #[test]
    fn a_billion_ranks_need_no_table() {
        let ranks = ZipfRanks::new(1 << 30, 0.99);
        assert!(ranks.starts.len() < 1000);
        let mut rng = Pcg64Mcg::new(1);
        let first = (0..100_000).filter(|_| ranks.draw(&mut rng) == 0).count();
        let expected = 100_000.0 / zipf_sum(1 << 30, 0.99);
        let found = f64::from(u32::try_from(first).expect("small"));
        assert!(
            (found - expected).abs() < 5.0 * expected.sqrt(),
            "{found} {expected}"
        );
    }
}
