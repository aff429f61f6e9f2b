// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shares of the visits per page: dense, or as a few ranges where every part is uniform.
//!
//! A share is of the visits of the program in that phase, not of the cache lines: where parts touch
//! different numbers of lines, use [`Phase::shares_weighted`].

use std::ops::Range;

use crate::Part;
use crate::Phase;
use crate::Program;

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
    #[expect(
        clippy::cast_possible_truncation,
        reason = "shares are kept in single precision: 268 million pages in 2 GiB"
    )]
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
        let alike = |a: &Part, b: &Part| a.pages == b.pages && a.choice == b.choice;
        for (index, part) in self.parts.iter().enumerate() {
            // Parts of the same distribution are gone through once.
            if self.parts[..index].iter().any(|other| alike(part, other)) {
                continue;
            }
            let (mut read, mut write) = (0.0, 0.0);
            for part in self.parts.iter().filter(|other| alike(part, other)) {
                let writes = f64::from(part.write_percent) / 100.0;
                read += weight(part) * (1.0 - writes);
                write += weight(part) * writes;
            }
            let (start, end) = (part.pages.start as usize, part.pages.end as usize);
            let reads = &mut shares.read[start..end];
            let writes = &mut shares.write[start..end];
            part.each_share(seed, |page, share| {
                reads[page as usize] += (share * read) as f32;
                writes[page as usize] += (share * write) as f32;
            });
        }
        shares
    }

    /// The same in a few ranges that cover all pages, where every part is uniform or sequential;
    /// else `None`.
    #[must_use]
    pub fn pieces(&self, program: &Program) -> Option<Vec<Piece>> {
        if !self.parts.iter().all(|part| part.choice.is_flat()) {
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
