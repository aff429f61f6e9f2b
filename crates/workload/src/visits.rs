// SPDX-License-Identifier: MIT OR Apache-2.0
//! The visits of a program, one after the other, from a seed.
//!
//! One 64-bit random number chooses the page, another the part of the mixture, the first line, the
//! word in each line and whether it writes. Same program and seed: same visits, on every machine.
//! Distributions that are not uniform come from an alias table where the part is small (8 bytes a
//! page, [`TABLE_PAGES_MAX`]) and are computed where it is not.

use std::num::NonZeroU64;

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::Choice;
use crate::LINES_PER_PAGE;
use crate::Part;
use crate::Phase;
use crate::Program;
use crate::Visit;
use crate::alias::AliasTable;
use crate::alias::scale_wide;
use crate::alias::split;
use crate::by_rank::ZipfRanks;
use crate::spread::Spread;

/// Pages of a part up to which it gets an alias table: 8 MiB of table for 4 GiB of pages.
pub const TABLE_PAGES_MAX: u32 = 1 << 20;

/// How a page of one part comes about.
#[derive(Debug, Clone)]
enum Chooser {
    Uniform,
    /// The next page, from the part's first.
    Sequential(u32),
    Table(AliasTable),
    Zipf {
        ranks: ZipfRanks,
        spread: Spread,
        per_page: NonZeroU64,
    },
}

#[derive(Debug, Clone)]
struct PartVisits {
    chooser: Chooser,
    first: u32,
    count: u64,
    /// In units of 2^-19.
    write_below: u32,
    lines: u8,
    step: u8,
}

/// Which part a visit is of.
#[derive(Debug, Clone)]
enum Mixture {
    One,
    /// The first below this coin, else the second.
    Two(u64),
    Many(AliasTable),
}

#[derive(Debug, Clone)]
struct PhaseVisits {
    mixture: Mixture,
    parts: Vec<PartVisits>,
}

/// An endless sequence of visits.
#[derive(Debug, Clone)]
pub struct Visits {
    rng: Pcg64Mcg,
    phases: Vec<PhaseVisits>,
}

impl Visits {
    /// The visits of `program` for that seed.
    #[must_use]
    pub fn new(program: &Program, seed: u64) -> Self {
        Self::for_thread(program, seed, 0)
    }

    /// The visits of one of its threads: the same distribution (`seed` says where the hot pages
    /// are), other draws.
    #[must_use]
    pub fn for_thread(program: &Program, seed: u64, thread: u32) -> Self {
        Self::with_tables(program, seed, thread, TABLE_PAGES_MAX)
    }

    fn with_tables(program: &Program, seed: u64, thread: u32, table_pages_max: u32) -> Self {
        let phase = |phase: &Phase| PhaseVisits::new(phase, seed, table_pages_max);
        let stream = u128::from(thread) << 32 | 0xa02b_dbf7_bb3c_0a7a;
        Self {
            rng: Pcg64Mcg::new(u128::from(seed) << 64 | stream),
            phases: program.phases.iter().map(phase).collect(),
        }
    }

    /// The next visit, if `phase` runs.
    ///
    /// # Panics
    ///
    /// If the program has no such phase.
    #[inline]
    pub fn visit(&mut self, phase: usize) -> Visit {
        let random = self.rng.next_u64();
        let (coin, low) = split(random);
        let phase = &mut self.phases[phase];
        let part = match &phase.mixture {
            Mixture::One => 0,
            Mixture::Two(below) => usize::from(u64::from(coin) >= *below),
            Mixture::Many(table) => table.draw(self.rng.next_u64()) as usize,
        };
        let part = &mut phase.parts[part];
        let offset = part.chooser.page(&mut self.rng, part.count);
        let [bits, more, ..] = low.to_le_bytes();
        Visit {
            page: part.first + offset,
            first_line: bits % LINES_PER_PAGE,
            lines: part.lines,
            step: part.step,
            word: more % 8,
            // The upper 19 bits of the half that line and word leave.
            write: low >> 13 < part.write_below,
        }
    }
}

impl PhaseVisits {
    fn new(phase: &Phase, seed: u64, table_pages_max: u32) -> Self {
        let weights: Vec<f64> = phase.parts.iter().map(|part| part.weight).collect();
        let mixture = match weights[..] {
            [_] => Mixture::One,
            [first, second] => Mixture::Two(of_two_to(32, first / (first + second))),
            _ => Mixture::Many(AliasTable::new(&weights)),
        };
        let part = |part: &Part| PartVisits {
            chooser: Chooser::new(part, seed, table_pages_max),
            first: part.pages.start,
            count: u64::from(part.page_count()),
            write_below: split(of_two_to(19, f64::from(part.write_percent) / 100.0)).1,
            lines: part.lines,
            step: part.step,
        };
        Self {
            mixture,
            parts: phase.parts.iter().map(part).collect(),
        }
    }
}

impl Chooser {
    fn new(part: &Part, seed: u64, table_pages_max: u32) -> Self {
        let flat = matches!(part.choice, Choice::Uniform | Choice::Sequential);
        if !flat && part.page_count() <= table_pages_max {
            return Self::Table(AliasTable::new(&part.page_shares(seed)));
        }
        match &part.choice {
            Choice::Uniform => Self::Uniform,
            Choice::Sequential => Self::Sequential(0),
            Choice::Zipf {
                theta,
                items_per_page,
            } => {
                let items = part.items(*items_per_page);
                Self::Zipf {
                    ranks: ZipfRanks::new(items.get(), *theta),
                    spread: part.spread(items, seed),
                    per_page: (*items_per_page)
                        .max(1)
                        .try_into()
                        .map_or(NonZeroU64::MIN, |n: std::num::NonZeroU16| n.into()),
                }
            }
        }
    }

    /// A page as an offset from the part's first.
    #[inline]
    fn page(&mut self, rng: &mut Pcg64Mcg, count: u64) -> u32 {
        let wide = match self {
            Self::Uniform => scale_wide(rng.next_u64(), count),
            Self::Sequential(next) => {
                let page = *next;
                let after = u64::from(page) + 1;
                *next = if after < count { page + 1 } else { 0 };
                return page;
            }
            Self::Table(table) => return table.draw(rng.next_u64()),
            Self::Zipf {
                ranks,
                spread,
                per_page,
            } => spread.at(ranks.draw(rng)) / *per_page,
        };
        split(wide).1
    }
}

/// `share` of 2^`bits`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is from 0 to 1"
)]
fn of_two_to(bits: u8, share: f64) -> u64 {
    (share * 2f64.powi(i32::from(bits))).round() as u64
}
