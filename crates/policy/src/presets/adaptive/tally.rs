// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a chunk by the level they had, as a reading takes them on.
//!
//! What a reading makes of a page depends on its level alone. So pages are gone through once, for their
//! bytes, and what is counted of them is counted by level: some dozens in a chunk in place of 512 pages.

use terrace_core::CHUNK_PAGES;
use terrace_core::PageBits;

use super::classes::LEVELS;
use super::classes::Level;
use super::steps::Step;

/// Pages of one level in a row are counted in turns in so many places: an addition need not wait for
/// the one before it.
const PLACES: usize = 2;

/// Pages by level.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    counts: [[u16; PLACES]; LEVELS],
    /// The least and the greatest level that there may be pages of.
    bounds: (Level, Level),
}

const EMPTY: (Level, Level) = (Level::MAX, 0);

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: [[0; PLACES]; LEVELS],
            bounds: EMPTY,
        }
    }
}

impl Tally {
    /// Takes these pages a step on, and counts them by the level that they had.
    pub(super) fn step(
        &mut self,
        levels: &mut [Level; CHUNK_PAGES],
        pages: &PageBits,
        step: &Step,
    ) {
        let (mut low, mut high) = self.bounds;
        for (levels, word) in levels.as_chunks_mut::<64>().0.iter_mut().zip(pages.0) {
            let mut left = word;
            let mut place = 0;
            while left != 0 {
                let level = &mut levels[left.trailing_zeros() as usize % 64];
                left &= left - 1;
                let from = *level;
                (low, high) = (low.min(from), high.max(from));
                *level = step[usize::from(from)];
                self.counts[usize::from(from)][place % PLACES] += 1;
                place += 1;
            }
        }
        self.bounds = (low, high);
    }

    /// The levels that were counted, and how often each; none is afterwards.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Level, u32)) {
        let (low, high) = std::mem::replace(&mut self.bounds, EMPTY);
        for level in low..=high {
            let counts = std::mem::take(&mut self.counts[usize::from(level)]);
            let pages = counts.into_iter().map(u32::from).sum();
            if pages > 0 {
                each(level, pages);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// As page by page.
        #[test]
        fn pages_step_once_and_are_counted_by_where_they_were(
            levels in prop::collection::vec(any::<u8>(), CHUNK_PAGES),
            words in any::<[u64; CHUNK_PAGES / 64]>(),
            step in prop::collection::vec(any::<u8>(), LEVELS),
        ) {
            let before: [Level; CHUNK_PAGES] = levels.try_into().unwrap();
            let step: Step = step.try_into().unwrap();
            let (pages, mut after) = (PageBits(words), before);
            let mut tally = Tally::default();
            tally.step(&mut after, &pages, &step);
            let mut counted = [0; LEVELS];
            tally.drain(|level, n| counted[usize::from(level)] = n);
            for page in 0..CHUNK_PAGES {
                let from = usize::from(before[page]);
                let expected = if pages.get(page) { step[from] } else { before[page] };
                prop_assert_eq!(after[page], expected);
                counted[from] -= u32::from(pages.get(page));
            }
            prop_assert_eq!(counted, [0; LEVELS]);
            tally.drain(|_, _| panic!("is empty"));
        }
    }
}
