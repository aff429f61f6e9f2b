// SPDX-License-Identifier: MIT OR Apache-2.0
//! A generator of random numbers with a fixed seed: the same events give the same choices.

/// splitmix64.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub const fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below that one; 0 below 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(bound);
        u64::try_from(product >> 64).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_numbers_below_the_bound_come_alike_and_again_with_the_same_seed() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            let drawn = one.below(10);
            assert_eq!(drawn, other.below(10));
            counts[usize::try_from(drawn).expect("below 10")] += 1;
        }
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        assert_eq!(one.below(0), 0);
    }
}
