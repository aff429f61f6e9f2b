// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of the visits per page: dense, or as a few ranges where every part is uniform.
//!
//! A share is of the visits of the program in that phase, not of the cache lines: where parts touch
//! different numbers of lines, use [`Phase::shares_weighted`].

use std::num::NonZeroU64;
use std::ops::Range;

use crate::Choice;
use crate::Part;
use crate::Phase;
use crate::Program;
use crate::by_rank;
use crate::spread::Spread;

/// Visits per page of a program, reads and writes apart; the sum over both is 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Shares {
    /// Visits that read, by page.
    pub read: Vec<f32>,
    /// Visits that write, by page.
    pub write: Vec<f32>,
}

/// Pages that are all alike.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The pages.
    pub pages: Range<u32>,
    /// Share of the visits that read one of these pages.
    pub read: f64,
    /// Share of the visits that write one of these pages.
    pub write: f64,
}

impl Shares {
    /// Reads and writes of a page together.
    #[must_use]
    pub fn of(&self, page: u32) -> f32 {
        self.read[page as usize] + self.write[page as usize]
    }

    /// All pages, the most visited first; equals by index. What a perfect placement follows.
    #[must_use]
    pub fn by_popularity(&self) -> Vec<u32> {
        let pages = u32::try_from(self.read.len()).expect("a program has at most 2^32 - 1 pages");
        let mut order: Vec<u32> = (0..pages).collect();
        order.sort_by(|&a, &b| self.of(b).total_cmp(&self.of(a)).then(a.cmp(&b)));
        order
    }
}

impl Phase {
    /// Visits per page. Takes 8 bytes a page.
    #[must_use]
    pub fn shares(&self, program: &Program, seed: u64) -> Shares {
        self.shares_weighted(program, seed, |part| part.weight)
    }

    /// As [`Phase::shares`] with another weight for each part, e.g. `weight * lines / mean_lines`
    /// for shares of the cache lines. The sum over all pages is the sum of the weights.
    #[must_use]
    pub fn shares_weighted(
        &self,
        program: &Program,
        seed: u64,
        weight: impl Fn(&Part) -> f64,
    ) -> Shares {
        let mut shares = Shares {
            read: vec![0.0; program.pages as usize],
            write: vec![0.0; program.pages as usize],
        };
        for part in &self.parts {
            let writes = f64::from(part.write_percent) / 100.0;
            let weight = weight(part);
            let (start, end) = (part.pages.start as usize, part.pages.end as usize);
            if writes < 1.0 {
                part.add_to(&mut shares.read[start..end], seed, weight * (1.0 - writes));
            }
            if writes > 0.0 {
                part.add_to(&mut shares.write[start..end], seed, weight * writes);
            }
        }
        shares
    }

    /// The same in a few ranges that cover all pages, where every part is uniform or sequential;
    /// else `None`.
    #[must_use]
    pub fn pieces(&self, program: &Program) -> Option<Vec<Piece>> {
        let flat = |part: &Part| matches!(part.choice, Choice::Uniform | Choice::Sequential);
        if !self.parts.iter().all(flat) {
            return None;
        }
        let mut cuts = vec![0, program.pages];
        for part in &self.parts {
            cuts.extend([part.pages.start, part.pages.end]);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let piece = |cut: &[u32]| {
            let mut piece = Piece {
                pages: cut[0]..cut[1],
                read: 0.0,
                write: 0.0,
            };
            for part in &self.parts {
                if part.pages.contains(&cut[0]) {
                    let each = part.weight / f64::from(part.page_count());
                    let writes = f64::from(part.write_percent) / 100.0;
                    piece.read += each * (1.0 - writes);
                    piece.write += each * writes;
                }
            }
            piece
        };
        Some(cuts.windows(2).map(piece).collect())
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

    /// Where its ranks are. The same range has the same order in every phase.
    pub(crate) fn spread(&self, items: NonZeroU64, seed: u64) -> Spread {
        Spread::new(items, seed ^ u64::from(self.pages.start) << 32)
    }

    /// Shares of its own pages, whose sum is 1.
    pub(crate) fn page_shares(&self, seed: u64) -> Vec<f64> {
        let mut pages = vec![0.0; self.page_count() as usize];
        self.add_to(&mut pages, seed, 1.0);
        pages.into_iter().map(f64::from).collect()
    }

    /// Adds `weight` in all, distributed over `pages`, the part's own.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "shares are kept in single precision: 268 million pages in 2 GiB"
    )]
    fn add_to(&self, pages: &mut [f32], seed: u64, weight: f64) {
        match &self.choice {
            Choice::Uniform | Choice::Sequential => {
                let each = (weight / f64::from(self.page_count())) as f32;
                pages.iter_mut().for_each(|share| *share += each);
            }
            Choice::Zipf {
                theta,
                items_per_page,
            } => {
                let per_page = u64::from(*items_per_page);
                let items = self.items(*items_per_page);
                let spread = self.spread(items, seed);
                let total = by_rank::zipf_sum(items.get(), *theta);
                for rank in 0..items.get() {
                    let share = by_rank::zipf_weight(rank, *theta) / total;
                    let page = spread.at(rank) / per_page;
                    pages[usize::try_from(page).expect("in memory")] += (weight * share) as f32;
                }
            }
        }
    }
}
