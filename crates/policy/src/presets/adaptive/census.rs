// SPDX-License-Identifier: MIT OR Apache-2.0
//! How many pages of each class there are: kept up with every change of what is known of them, so that a plan
//! need not go through all pages.

use terrace_core::PageBits;

use super::chunk::Chunk;
use super::classes::CLASSES;
use super::classes::Level;
use super::classes::class_of;
use super::decide::SIZES;
use super::places::PLACES;
use super::places::Place;

/// Base pages of one process by huge, place and class; by huge alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Census(
    pub(super) Box<[[[u64; CLASSES]; PLACES]; 2]>,
    pub(super) [u64; 2],
);

impl Default for Census {
    fn default() -> Self {
        Self(Box::new([[[0; CLASSES]; PLACES]; 2]), [0; 2])
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

    /// So many pages of that place have come from one level to another.
    pub(super) fn step(
        &mut self,
        (huge, place): (bool, Place),
        base_pages: u64,
        levels: [Level; 2],
    ) {
        let there = &mut self.0[usize::from(huge)][place];
        there[class_of(levels[0])] -= base_pages;
        there[class_of(levels[1])] += base_pages;
    }

    /// A page of a chunk has moved there from where the chunk has it.
    pub(super) fn moved(&mut self, chunk: &Chunk, page: usize, to: Place) {
        let from = chunk.spread.get(page);
        let (class, base_pages) = (class_of(chunk.levels[page]), chunk.size().base_pages());
        let places = &mut self.0[usize::from(chunk.huge)];
        places[from][class] -= base_pages;
        places[to][class] += base_pages;
    }

    /// Visits a second of the pages of each place, by rates of classes.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn visits(&self, rates: &[f64; CLASSES]) -> [f64; PLACES] {
        let mut visits = [0.0; PLACES];
        for (places, size) in self.0.iter().zip(SIZES) {
            for (sum, pages) in visits.iter_mut().zip(places) {
                let each = pages.iter().zip(rates);
                let pages: f64 = each.map(|(pages, rate)| *pages as f64 * rate).sum();
                *sum += pages / size.base_pages() as f64;
            }
        }
        visits
    }

    /// Nothing is known of any page any more but where it is.
    pub(super) fn forget_levels(&mut self) {
        for there in self.0.as_flattened_mut() {
            let all = there.iter().sum();
            *there = [0; CLASSES];
            there[class_of(0)] = all;
        }
    }

    fn each(&mut self, chunk: &Chunk, pages: &PageBits, count: impl Fn(&mut u64, u64)) {
        let places = &mut self.0[usize::from(chunk.huge)];
        let all = &mut self.1[usize::from(chunk.huge)];
        let base_pages = chunk.size().base_pages();
        for page in pages.and(&chunk.present).pages() {
            let there = &mut places[chunk.spread.get(page)];
            count(&mut there[class_of(chunk.levels[page])], base_pages);
            count(all, base_pages);
        }
    }
}
