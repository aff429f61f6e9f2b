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

/// The weights of parts that read and that write.
fn sums(parts: &[&Part], weight: impl Fn(&Part) -> f64) -> (f64, f64) {
    parts.iter().fold((0.0, 0.0), |(read, write), part| {
        let writes = f64::from(part.write_percent) / 100.0;
        let weight = weight(part);
        (read + weight * (1.0 - writes), write + weight * writes)
    })
}

/// Adds in single precision: 268 million pages take 2 GiB.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "shares are from 0 to 1, lines from 0 to 64"
)]
fn add(sum: &mut f32, more: f64) {
    *sum += more as f32;
}

impl Shares {
    fn none(program: &Program) -> Self {
        Self {
            read: vec![0.0; program.pages as usize],
            write: vec![0.0; program.pages as usize],
        }
    }

    /// The pages of a part: reads, writes. Slices, so that adding to them stays in registers.
    fn slices(&mut self, part: &Part) -> (&mut [f32], &mut [f32]) {
        let (start, end) = (part.pages.start as usize, part.pages.end as usize);
        (&mut self.read[start..end], &mut self.write[start..end])
    }

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
        let mut shares = Shares::none(program);
        for parts in self.distributions() {
            let (read, write) = sums(&parts, &weight);
            let (reads, writes) = shares.slices(parts[0]);
            parts[0].each_share(seed, |page, share| {
                add(&mut reads[page as usize], share * read);
                add(&mut writes[page as usize], share * write);
            });
        }
        shares
    }

    /// Visits per page as [`Phase::shares`], and the mean lines of a visit to each page, in one pass;
    /// `None` where all parts touch as many lines. Takes 12 bytes a page.
    #[must_use]
    pub fn shares_and_lines(&self, program: &Program, seed: u64) -> (Shares, Option<Vec<f32>>) {
        if self
            .parts
            .windows(2)
            .all(|pair| pair[0].lines == pair[1].lines)
        {
            return (self.shares(program, seed), None);
        }
        let mut shares = Shares::none(program);
        let mut lines = vec![0.0f32; program.pages as usize];
        for parts in self.distributions() {
            let (read, write) = sums(&parts, |part| part.weight);
            let (read_lines, write_lines) = sums(&parts, |p| p.weight * f64::from(p.lines));
            let (reads, writes) = shares.slices(parts[0]);
            let lines = &mut lines[parts[0].pages.start as usize..];
            parts[0].each_share(seed, |page, share| {
                add(&mut reads[page as usize], share * read);
                add(&mut writes[page as usize], share * write);
                add(
                    &mut lines[page as usize],
                    share * (read_lines + write_lines),
                );
            });
        }
        for (page, lines) in (0..).zip(&mut lines) {
            let visits = shares.of(page);
            *lines = if visits > 0.0 { *lines / visits } else { 0.0 };
        }
        (shares, Some(lines))
    }

    /// The parts, those of the same distribution together: it is gone through once.
    fn distributions(&self) -> Vec<Vec<&Part>> {
        let mut groups: Vec<Vec<&Part>> = Vec::new();
        for part in &self.parts {
            let alike = |group: &&mut Vec<&Part>| {
                group[0].pages == part.pages && group[0].choice == part.choice
            };
            match groups.iter_mut().find(alike) {
                Some(group) => group.push(part),
                None => groups.push(vec![part]),
            }
        }
        groups
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
