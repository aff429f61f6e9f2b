// SPDX-License-Identifier: MIT OR Apache-2.0
//! A seeded permutation of `0..count` that is computed, not stored.
//!
//! Multiplications by odd numbers and shifts of the upper half into the lower are bijections of
//! the numbers of `k` bits; a result outside `0..count` goes through again until it is inside
//! (cycle walking, fewer than two rounds on average). So 10^9 items need no table.

use std::num::NonZeroU64;

/// A permutation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spread {
    count: u64,
    mask: u64,
    shift: u32,
    multipliers: [u64; 3],
    offset: u64,
}

impl Spread {
    pub(crate) fn new(count: NonZeroU64, seed: u64) -> Self {
        let count = count.get();
        let bits = (64 - (count - 1).leading_zeros()).max(2);
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        };
        Self {
            count,
            mask: u64::MAX >> (64 - bits),
            shift: bits.div_ceil(2),
            multipliers: [next() | 1, next() | 1, next() | 1],
            offset: next(),
        }
    }

    /// Where `rank` goes.
    #[inline]
    pub(crate) fn at(&self, rank: u64) -> u64 {
        let mut x = rank;
        loop {
            x = x.wrapping_add(self.offset) & self.mask;
            for multiplier in self.multipliers {
                x = x.wrapping_mul(multiplier) & self.mask;
                x ^= x >> self.shift;
            }
            if x < self.count {
                return x;
            }
        }
    }
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread(count: u64, seed: u64) -> Vec<u64> {
        let spread = Spread::new(NonZeroU64::new(count).expect("not 0"), seed);
        (0..count).map(|rank| spread.at(rank)).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_permutation(count in 1u64..3000, seed: u64) {
            let mut order = spread(count, seed);
            order.sort_unstable();
            prop_assert!(order.into_iter().eq(0..count));
        }
    }

    #[test]
    fn the_hottest_lie_everywhere() {
        for seed in 0..20 {
            let order = spread(10_000, seed);
            // The hottest tenth: each tenth of the range holds about 100 of them.
            let mut tenths = [0u32; 10];
            for place in &order[..1000] {
                tenths[usize::try_from(place / 1000).expect("small")] += 1;
            }
            assert!(tenths.iter().all(|n| (60..140).contains(n)), "{tenths:?}");
        }
        assert_ne!(spread(10_000, 1), spread(10_000, 2));
    }
}
