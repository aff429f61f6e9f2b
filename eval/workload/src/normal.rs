// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bell curves: the mean of some uniform numbers, which is the distribution of Irwin and Hall, scaled to the range.
//!
//! Its mean is the middle, the deviation of `n` numbers is `1 / sqrt(12 n)` of the range, and no place has a share of zero. pmbench's
//! pattern `normal_ih` is that of twelve: a twelfth of the range. It draws whole numbers and rounds; here the range is divided
//! evenly, which differs by less than one page.

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::alias::split;

/// A place in `0..count`, by so many numbers.
#[inline]
pub(crate) fn draw(rng: &mut Pcg64Mcg, count: u64, numbers: u8) -> u64 {
    let mut sum = 0;
    for _ in 0..numbers / 2 {
        let (high, low) = split(rng.next_u64());
        sum += u64::from(high) + u64::from(low);
    }
    if numbers % 2 == 1 {
        sum += u64::from(split(rng.next_u64()).0);
    }
    // The sum is below 2^40; the product needs more than 64 bits.
    let wide = (u128::from(sum) * u128::from(count) / u128::from(numbers)) >> 32;
    u64::try_from(wide).expect("below count")
}

/// Calls `each` with the share of every place in `0..count`, in order.
pub(crate) fn shares(count: u32, numbers: u8, mut each: impl FnMut(u32, f64)) {
    let edge = |place: u32| {
        let x = f64::from(numbers) * f64::from(place) / f64::from(count);
        below(x, numbers)
    };
    for place in 0..count {
        // The upper half mirrors the lower: near 1, differences would lose their digits.
        let lower = place.min(count - 1 - place);
        each(place, (edge(lower + 1) - edge(lower)).max(0.0));
    }
}

/// The probability that so many uniform numbers sum up to less than `x`.
fn below(x: f64, numbers: u8) -> f64 {
    let n = f64::from(numbers);
    if x > n / 2.0 {
        // The terms of the sum cancel; on this side they would cancel to nothing.
        return 1.0 - below(n - x, numbers);
    }
    let mut sum = 0.0;
    let (mut binomial, mut factorial) = (1.0, 1.0);
    (1..=numbers).for_each(|k| factorial *= f64::from(k));
    let mut k = 0.0;
    while k < x {
        sum += binomial * (x - k).powi(i32::from(numbers));
        binomial *= -(n - k) / (k + 1.0);
        k += 1.0;
    }
    (sum / factorial).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_bell_of_a_twelfth() {
        let (mut sum, mut variance, mut centre) = (0.0, 0.0, 0.0);
        shares(1200, 12, |place, share| {
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
        shares(100, 12, |_, share| all.push(share));
        for (place, share) in all.iter().enumerate() {
            assert!(*share > 0.0, "{place}");
            assert!((share - all[99 - place]).abs() < 1e-12, "{place}");
        }
    }

    #[test]
    fn the_fewer_numbers_the_wider_it_is() {
        for numbers in [1_u8, 2, 3, 12] {
            let (mut sum, mut variance) = (0.0, 0.0);
            shares(1200, numbers, |place, share| {
                let x = (f64::from(place) + 0.5) / 1200.0 - 0.5;
                sum += share;
                variance += x * x * share;
            });
            let wanted = 1.0 / (12.0 * f64::from(numbers)).sqrt();
            assert!((sum - 1.0).abs() < 1e-12, "{numbers}: {sum}");
            assert!((variance.sqrt() - wanted).abs() < 1e-4, "{numbers}");
            let mut rng = Pcg64Mcg::new(7);
            let drawn = (0..100_000).map(|_| draw(&mut rng, 1200, numbers) as f64 / 1200.0 - 0.5);
            let of: f64 = drawn.map(|x| x * x).sum::<f64>() / 1e5;
            assert!((of.sqrt() / wanted - 1.0).abs() < 0.01, "{numbers}: drawn");
        }
    }
}
