// SPDX-License-Identifier: MIT OR Apache-2.0
//! The visits of a workload, one after the other, from a seed.
//!
//! Two 64-bit random numbers make a visit: one chooses the page, the other the first line, the word
//! in each line and whether it writes. Same spec and seed: same visits.

use std::ops::Range;

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::LINES_PER_PAGE;
use crate::Spec;
use crate::Visit;
use crate::alias::AliasTable;
use crate::alias::scale;
use crate::alias::split;
use crate::spec::Choice;

/// How a page comes from 64 random bits.
#[derive(Debug, Clone)]
enum Chooser {
    Table {
        first: u32,
        table: AliasTable,
    },
    HotSet {
        active: Range<u32>,
        hot: Range<u32>,
        below: u32,
    },
    Uniform {
        active: Range<u32>,
    },
}

/// An endless sequence of visits.
#[derive(Debug, Clone)]
pub struct Stream {
    rng: Pcg64Mcg,
    chooser: Chooser,
    write_below: u64,
    lines: u8,
    step: u8,
}

impl Stream {
    /// The visits of `spec` for that seed.
    #[must_use]
    pub fn new(spec: &Spec, seed: u64) -> Self {
        let active = spec.active.clone();
        let chooser = match &spec.choice {
            Choice::Zipf { .. } => {
                let shares = spec.shares(seed);
                let table = AliasTable::new(&shares[active.start as usize..active.end as usize]);
                Chooser::Table {
                    first: active.start,
                    table,
                }
            }
            Choice::HotSet { hot, percent } => Chooser::HotSet {
                active,
                hot: hot.clone(),
                below: split(of_two_to_32(*percent).saturating_sub(1)).1,
            },
            Choice::Uniform => Chooser::Uniform { active },
        };
        Self {
            rng: Pcg64Mcg::new(u128::from(seed) << 64 | 0xa02b_dbf7_bb3c_0a7a),
            chooser,
            write_below: of_two_to_32(spec.write_percent),
            lines: spec.lines,
            step: spec.step,
        }
    }

    /// The next visit.
    #[inline]
    pub fn visit(&mut self) -> Visit {
        let page = self.chooser.page(self.rng.next_u64());
        let (high, low) = split(self.rng.next_u64());
        let [line, word, ..] = low.to_le_bytes();
        Visit {
            page,
            first_line: line % LINES_PER_PAGE,
            lines: self.lines,
            step: self.step,
            word: word % 8,
            write: u64::from(high) < self.write_below,
        }
    }
}

impl Chooser {
    #[inline]
    fn page(&self, random: u64) -> u32 {
        match self {
            Self::Table { first, table } => first + table.draw(random),
            Self::HotSet { active, hot, below } => {
                let (high, coin) = split(random);
                let range = if coin <= *below { hot } else { active };
                range.start + scale(high, range.len())
            }
            Self::Uniform { active } => active.start + scale(split(random).0, active.len()),
        }
    }
}

/// `percent` of 2^32.
fn of_two_to_32(percent: u8) -> u64 {
    (u64::from(percent.min(100)) << 32) / 100
}
