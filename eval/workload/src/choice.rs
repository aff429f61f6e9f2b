// SPDX-License-Identifier: MIT OR Apache-2.0
//! How pages are chosen within a part's range, and the share that each of them gets.
//!
//! Distributions are over items (records, vertices, rows) of which a page holds several; hot items
//! are spread over the pages by a seeded, computed permutation, the same one in every phase.

use std::num::NonZeroU64;

use crate::PAGE_BYTES;
use crate::Part;
use crate::by_rank;
use crate::kronecker;
use crate::normal;
use crate::nurand::NuRand;
use crate::spread::Spread;

/// How pages are chosen within a part's range.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// All alike.
    Uniform,
    /// One after the other, then from the beginning again.
    Sequential,
    /// Zipfian over items, of which each page holds the same number; rank `i` has a share in
    /// proportion to `1 / (i + 1)^theta`. A seeded permutation spreads the ranks over the items.
    Zipf {
        /// The exponent, above 0.
        theta: f64,
        /// Items in a page, at least 1.
        items_per_page: u16,
    },
    /// Zipfian by age: the range is a ring of items, written in order; the youngest is the hottest.
    Latest {
        /// The exponent, above 0.
        theta: f64,
        /// Items in a page, at least 1.
        items_per_page: u16,
        /// The page after the youngest, as an offset in the range.
        head: u32,
    },
    /// Runs of neighbouring pages: the first as with [`Choice::Zipf`], the length from 1 to
    /// `pages_max` with equal probability, over the end to the beginning.
    Runs {
        /// The exponent, above 0.
        theta: f64,
        /// Items in a page, at least 1.
        items_per_page: u16,
        /// The longest run, at least 1 and at most the range.
        pages_max: u32,
    },
    /// A bell curve over the range, of which only every `stride`th page is visited, beginning with the first.
    Normal {
        /// 1 visits all pages.
        stride: u32,
        /// Uniform numbers whose mean a place is, at least 1: of twelve (pmbench's `normal_ih`) the deviation is a
        /// twelfth of the range, of three (memtier's default) a sixth.
        numbers: u8,
    },
    /// Vertices of a Kronecker graph (R-MAT), each as often as edges end there. Pages and vertices in
    /// a page are powers of two.
    Kronecker {
        /// The probability that a bit of the vertex' number is 0: a + b of the generator.
        zero: f64,
        /// Vertices in a page, at least 1.
        items_per_page: u16,
        /// Whether vertices are numbered anew by a random permutation, as GAP and Graph500 do.
        permuted: bool,
    },
    /// TPC-C's NURand over the rows of a group, groups alike.
    NuRand {
        /// The mask `A`, one less than a power of two.
        a: u32,
        /// Rows of a group.
        rows: u32,
        /// Groups.
        groups: u32,
        /// Bytes of a row; it is visited where it begins.
        row_bytes: u16,
    },
}

impl Choice {
    /// Whether all pages of a range get the same share in the long run.
    #[must_use]
    pub fn is_flat(&self) -> bool {
        matches!(self, Self::Uniform | Self::Sequential)
    }
}

impl Part {
    /// Pages in its range.
    #[must_use]
    pub fn page_count(&self) -> u32 {
        self.pages.end - self.pages.start
    }

    /// Items in its range, so many in a page.
    pub(crate) fn items(&self, per_page: u16) -> NonZeroU64 {
        let items = u64::from(self.page_count()) * u64::from(per_page);
        NonZeroU64::new(items).expect("a part has pages and a page has items")
    }

    /// Calls `each` with pages, as offsets in the range, and what share of the part's visits they
    /// get more: a page may come several times. The sum of all is 1.
    ///
    /// Exact, but for a permuted Kronecker graph of more than 2^27 vertices, where all but the hubs are
    /// taken to be spread evenly: 1 % of a page's share for 2^32 vertices.
    pub(crate) fn each_share(&self, seed: u64, mut each: impl FnMut(u32, f64)) {
        let count = self.page_count();
        match &self.choice {
            Choice::Uniform | Choice::Sequential => {
                let share = 1.0 / f64::from(count);
                (0..count).for_each(|page| each(page, share));
            }
            Choice::Zipf {
                theta,
                items_per_page,
            } => self.each_zipf(*theta, *items_per_page, seed, each),
            Choice::Latest {
                theta,
                items_per_page,
                head,
            } => {
                let items = self.items(*items_per_page).get();
                let per_page = u64::from(*items_per_page);
                by_rank::each_zipf_share(items, *theta, |rank, share| {
                    let item = aged(u64::from(*head) * per_page, rank, items);
                    each(small(item / per_page), share);
                });
            }
            Choice::Runs {
                theta,
                items_per_page,
                pages_max,
            } => {
                let mut starts = vec![0.0; count as usize];
                self.each_zipf(*theta, *items_per_page, seed, |page, share| {
                    starts[page as usize] += share;
                });
                each_run_share(&starts, *pages_max, each);
            }
            Choice::Normal { stride, numbers } => {
                normal::shares(count.div_ceil(*stride), *numbers, |place, share| {
                    each(place * stride, share);
                });
            }
            Choice::Kronecker {
                zero,
                items_per_page,
                permuted,
            } => self.each_vertex(*zero, *items_per_page, permuted.then_some(seed), each),
            Choice::NuRand {
                a,
                rows,
                groups,
                row_bytes,
            } => {
                let shares = NuRand::new(*a, *rows, seed).shares();
                for group in 0..u64::from(*groups) {
                    for (row, share) in (0..).zip(&shares) {
                        let page = row_page(group * u64::from(*rows) + row, *row_bytes);
                        each(page, share / f64::from(*groups));
                    }
                }
            }
        }
    }

    fn each_vertex(
        &self,
        zero: f64,
        items_per_page: u16,
        permutation_seed: Option<u64>,
        mut each: impl FnMut(u32, f64),
    ) {
        let items = self.items(items_per_page);
        let (bits, per_page) = (items.ilog2(), u64::from(items_per_page));
        let Some(seed) = permutation_seed else {
            // The upper bits say the page, and the lower ones sum up to 1.
            let by_ones = kronecker::share_by_ones(bits - per_page.ilog2(), zero);
            let share = |page: u32| by_ones[page.count_ones() as usize];
            return (0..self.page_count()).for_each(|page| each(page, share(page)));
        };
        let spread = Spread::new(items, seed);
        let others = kronecker::each_share(bits, zero, |vertex, share| {
            each(small(spread.at(vertex) / per_page), share);
        });
        if others > 0.0 {
            let share = others / f64::from(self.page_count());
            (0..self.page_count()).for_each(|page| each(page, share));
        }
    }

    fn each_zipf(
        &self,
        theta: f64,
        items_per_page: u16,
        seed: u64,
        mut each: impl FnMut(u32, f64),
    ) {
        let items = self.items(items_per_page);
        let spread = Spread::new(items, seed);
        by_rank::each_zipf_share(items.get(), theta, |rank, share| {
            each(small(spread.at(rank) / u64::from(items_per_page)), share);
        });
    }
}

/// The item of that age in a ring of `items` whose next to be written is `head`.
#[inline]
pub(crate) fn aged(head: u64, rank: u64, items: u64) -> u64 {
    (head + items - 1 - rank) % items
}

/// The page, from the first of the table, where a row begins.
#[inline]
pub(crate) fn row_page(row: u64, row_bytes: u16) -> u32 {
    small(row * u64::from(row_bytes) / PAGE_BYTES)
}

/// The shares of pages if runs of 1 to `longest` pages begin with the shares `starts`.
fn each_run_share(starts: &[f64], longest: u32, mut each: impl FnMut(u32, f64)) {
    let (pages, window) = (starts.len(), longest as usize);
    let start = |page: usize, back: usize| starts[(page + pages - back) % pages];
    // A run reaches its page k with probability (longest - k) / longest, and its mean length is
    // (longest + 1) / 2.
    let per_visit = 2.0 / (f64::from(longest) * (f64::from(longest) + 1.0));
    let mut plain: f64 = (0..window).map(|back| start(0, back)).sum();
    let mut weighted: f64 = (0..longest)
        .map(|back| f64::from(longest - back) * start(0, back as usize))
        .sum();
    for (page, offset) in (0..pages).zip(0u32..) {
        if page > 0 {
            // One page on, every start is one further away; a new one enters, the oldest leaves.
            weighted += f64::from(longest) * start(page, 0) - plain;
            plain += start(page, 0) - start(page, window);
        }
        each(offset, weighted.max(0.0) * per_visit);
    }
}

/// A page's index.
#[inline]
pub(crate) fn small(page: u64) -> u32 {
    crate::alias::split(page).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_shares_are_those_of_counting() {
        let starts: Vec<f64> = (0..20).map(|i| f64::from(i) / 190.0).collect();
        for longest in [1, 3, 7, 20] {
            let mut counted = [0.0; 20];
            let mut visits = 0.0;
            for (first, share) in starts.iter().enumerate() {
                for length in 1..=longest {
                    for k in 0..length as usize {
                        counted[(first + k) % 20] += share;
                        visits += share;
                    }
                }
            }
            each_run_share(&starts, longest, |page, share| {
                let expected = counted[page as usize] / visits;
                assert!(
                    (share - expected).abs() < 1e-12,
                    "{longest} {page}: {share}"
                );
            });
        }
    }

    #[test]
    fn the_youngest_is_before_the_head() {
        assert_eq!(aged(5, 0, 10), 4);
        assert_eq!(aged(5, 5, 10), 9);
        assert_eq!(aged(0, 0, 10), 9);
        assert_eq!(aged(5, 9, 10), 5);
    }
}
