// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bell curve of pmbench's pattern `normal_ih`: the mean of twelve uniform numbers.
//!
//! That is the distribution of Irwin and Hall of order 12, scaled to the range: its mean is the
//! middle, its deviation a twelfth of the range, and no place has a share of zero. pmbench draws
//! whole numbers and rounds; here the range is divided evenly, which differs by less than one page.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::alias::split;

/// Numbers summed up.
const ORDER: u64 = 12;
/// `12!`
const FACTORIAL: f64 = 479_001_600.0;

/// A place in `0..count`.
#[inline]
pub(crate) fn draw(rng: &mut Pcg64Mcg, count: u64) -> u64 {
    let mut sum = 0;
    for _ in 0..ORDER / 2 {
        let (high, low) = split(rng.next_u64());
        sum += u64::from(high) + u64::from(low);
    }
    // The sum is below 12 * 2^32; the product needs more than 64 bits.
    let wide = (u128::from(sum) * u128::from(count) / u128::from(ORDER)) >> 32;
    u64::try_from(wide).expect("below count")
}

/// Calls `each` with the share of every place in `0..count`, in order.
pub(crate) fn shares(count: u32, mut each: impl FnMut(u32, f64)) {
    let edge = |place: u32| below(12.0 * f64::from(place) / f64::from(count));
    for place in 0..count {
        // The upper half mirrors the lower: near 1, differences would lose their digits.
        let lower = place.min(count - 1 - place);
        each(place, (edge(lower + 1) - edge(lower)).max(0.0));
    }
}

/// The probability that twelve uniform numbers sum up to less than `x`.
fn below(x: f64) -> f64 {
    if x > 6.0 {
        // The terms of the sum cancel; on this side they would cancel to nothing.
        return 1.0 - below(12.0 - x);
    }
    let mut sum = 0.0;
    let mut binomial = 1.0;
    let mut k = 0.0;
    while k < x {
        sum += binomial * (x - k).powi(12);
        binomial *= -(12.0 - k) / (k + 1.0);
        k += 1.0;
    }
    (sum / FACTORIAL).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_bell_of_a_twelfth() {
        let (mut sum, mut variance, mut centre) = (0.0, 0.0, 0.0);
        shares(1200, |place, share| {
            let x = (f64::from(place) + 0.5) / 1200.0 - 0.5;
            sum += share;
            variance += x * x * share;
            if x.abs() < 0.125 {
                centre += share;
            }
        });
        assert!((sum - 1.0).abs() < 1e-12, "{sum}");
        assert!((variance.sqrt() - 1.0 / 12.0).abs() < 1e-4, "{variance}");
        // One and a half deviations to each side: 86.6 % of a normal distribution.
        assert!((centre - 0.866).abs() < 0.003, "{centre}");
    }

    #[test]
    fn places_are_symmetric_and_none_is_impossible() {
        let mut all = Vec::new();
        shares(100, |_, share| all.push(share));
        for (place, share) in all.iter().enumerate() {
            assert!(*share > 0.0, "{place}");
            assert!((share - all[99 - place]).abs() < 1e-12, "{place}");
        }
    }
}
