// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many pages of each class there are: kept up with every change of what is known of them, so that a plan
//! need not go through all pages.

use terrace_core::PageBits;

use super::chunks::Chunk;
use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::decide::SIZES;

/// Base pages of one process by huge, fast and class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Census(pub(super) Box<[[[u64; CLASSES]; 2]; 2]>);

impl Default for Census {
    fn default() -> Self {
        Self(Box::new([[[0; CLASSES]; 2]; 2]))
    }
}

impl Census {
    /// These pages of a chunk, as far as they are in memory, are known as they are now.
    pub(super) fn add(&mut self, chunk: &Chunk, pages: &PageBits) {
        self.each(chunk, pages, |count, by| *count += by);
    }

    /// These pages of a chunk are about to change.
    pub(super) fn remove(&mut self, chunk: &Chunk, pages: &PageBits) {
        self.each(chunk, pages, |count, by| *count -= by);
    }

    /// So many pages of that side have come from one level to another.
    pub(super) fn step(&mut self, (huge, fast): (bool, bool), base_pages: u64, levels: [Level; 2]) {
        let side = &mut self.0[usize::from(huge)][usize::from(fast)];
        side[class_of(levels[0])] -= base_pages;
        side[class_of(levels[1])] += base_pages;
    }

    /// Visits a second of slow pages and of fast ones, by rates of classes.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn visits(&self, rates: &[f64; CLASSES]) -> [f64; 2] {
        let mut visits = [0.0; 2];
        for (sides, size) in self.0.iter().zip(SIZES) {
            for (sum, pages) in visits.iter_mut().zip(sides) {
                let each = pages.iter().zip(rates);
                let pages: f64 = each.map(|(pages, rate)| *pages as f64 * rate).sum();
                *sum += pages / size.base_pages() as f64;
            }
        }
        visits
    }

    /// Nothing is known of any page any more but where it is.
    pub(super) fn forget_levels(&mut self) {
        for side in self.0.as_flattened_mut() {
            let all = side.iter().sum();
            *side = [0; CLASSES];
            side[class_of(0)] = all;
        }
    }

    fn each(&mut self, chunk: &Chunk, pages: &PageBits, count: impl Fn(&mut u64, u64)) {
        let sides = &mut self.0[usize::from(chunk.huge)];
        let base_pages = chunk.size().base_pages();
        for page in pages.and(&chunk.present).pages() {
            let side = &mut sides[usize::from(chunk.fast.get(page))];
            count(&mut side[class_of(chunk.levels[page])], base_pages);
        }
    }
}
