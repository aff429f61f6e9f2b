// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access history of 512 neighbouring pages: a bit for each of the last eight scan rounds (4.2.1).
//!
//! Bit-sliced: the bits of one round lie together, so a round's reading replaces one plane and shifts 512 histories at
//! once. A page's *level* is how many of its bits are set, 0 to 8. A byte a page.

use terrace_core::PageBits;

/// Rounds that are remembered (4.2.1: "We set N to 8").
pub(super) const ROUNDS: usize = 8;
/// Levels there are: 0 to 8.
pub(super) const LEVELS: usize = ROUNDS + 1;

/// See the module. All pages start as the hottest.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// Rounds, as a ring.
    planes: [PageBits; ROUNDS],
    /// The oldest one.
    oldest: usize,
}

impl Default for History {
    fn default() -> Self {
        Self {
            planes: [PageBits::ALL; ROUNDS],
            oldest: 0,
        }
    }
}

impl History {
    /// A round is over in which these pages were accessed.
    pub(super) const fn shift(&mut self, accessed: PageBits) {
        self.planes[self.oldest] = accessed;
        self.oldest = (self.oldest + 1) % ROUNDS;
    }

    /// These pages are new, and so the hottest.
    pub(super) fn renew(&mut self, pages: &PageBits) {
        for plane in &mut self.planes {
            *plane = plane.or(pages);
        }
    }

    /// In how many rounds a page was accessed.
    pub(super) fn level(&self, page: usize) -> u8 {
        self.planes
            .iter()
            .map(|plane| u8::from(plane.get(page)))
            .sum()
    }

    /// Of these pages those of each level.
    pub(super) fn levels(&self, of: &PageBits) -> [PageBits; LEVELS] {
        let mut levels = [PageBits::NONE; LEVELS];
        for (at, among) in of.0.iter().enumerate().filter(|(_, among)| **among != 0) {
            // Adds eight one-bit numbers, 64 pages at a time.
            let mut sum = [0_u64; 4];
            for plane in &self.planes {
                let mut carry = plane.0[at];
                for digit in &mut sum {
                    (*digit, carry) = (*digit ^ carry, *digit & carry);
                }
            }
            for (level, pages) in levels.iter_mut().enumerate() {
                let is = |(digit, bits): (usize, &u64)| {
                    if level >> digit & 1 == 1 {
                        *bits
                    } else {
                        !bits
                    }
                };
                let same = sum.iter().enumerate().map(is);
                pages.0[at] = same.fold(*among, |all, bits| all & bits);
            }
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits() -> impl Strategy<Value = PageBits> {
        prop::array::uniform8(any::<u64>()).prop_map(PageBits)
    }

    proptest! {
        /// Against a byte a page, shifted one by one.
        #[test]
        fn levels_are_the_set_bits_of_the_last_eight_rounds(
            rounds in prop::collection::vec((bits(), bits()), 0..20),
            of in bits(),
        ) {
            let mut history = History::default();
            let mut bytes = vec![u8::MAX; 512];
            for (accessed, new) in rounds {
                history.shift(accessed);
                history.renew(&new);
                for (page, byte) in bytes.iter_mut().enumerate() {
                    *byte = *byte << 1 | u8::from(accessed.get(page));
                    if new.get(page) {
                        *byte = u8::MAX;
                    }
                }
            }
            let levels = history.levels(&of);
            for (page, byte) in bytes.iter().enumerate() {
                let level = byte.count_ones();
                prop_assert_eq!(u32::from(history.level(page)), level);
                for (at, pages) in (0..).zip(&levels) {
                    prop_assert_eq!(pages.get(page), of.get(page) && at == level);
                }
            }
        }
    }
}
