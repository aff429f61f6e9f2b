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
use crate::WORDS_PER_PAGE;
use crate::alias::AliasTable;
use crate::alias::scale;
use crate::alias::split;
use crate::spec::Choice;

/// One operation: some lines of one page, one word in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// The page, by index.
    pub page: u32,
    /// The first line, 0 to 63.
    pub first_line: u8,
    /// How many lines.
    pub lines: u8,
    /// From one to the next, modulo 64.
    pub step: u8,
    /// The word in each line, 0 to 7.
    pub word: u8,
    /// Whether the words are updated or only read.
    pub write: bool,
}

impl Visit {
    /// The words touched, by index in the workload's memory.
    #[inline]
    pub fn words(self) -> impl Iterator<Item = u64> {
        let base = u64::from(self.page) * WORDS_PER_PAGE + u64::from(self.word);
        let mut line = self.first_line;
        (0..self.lines).map(move |_| {
            let index = base + u64::from(line) * 8;
            line = line.wrapping_add(self.step) % LINES_PER_PAGE;
            index
        })
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;

    fn spec(name: &str) -> Spec {
        Spec::named(name, Scale::FastFree(8 << 20)).expect("known")
    }

    #[test]
    fn visits_follow_the_shares_and_stay_inside() {
        for name in crate::NAMES {
            let spec = spec(name);
            let shares = spec.shares(9);
            let mut stream = Stream::new(&spec, 9);
            let mut seen = vec![0u32; spec.pages as usize];
            let draws = 400_000u32;
            for _ in 0..draws {
                let visit = stream.visit();
                assert!(spec.active.contains(&visit.page), "{name}");
                seen[visit.page as usize] += 1;
            }
            // No page is further from its share than six deviations of a binomial count.
            for (page, (&n, &share)) in seen.iter().zip(&shares).enumerate() {
                let expected = share * f64::from(draws);
                let off = (f64::from(n) - expected).abs();
                assert!(off < 6.0 * expected.sqrt() + 6.0, "{name} page {page}: {n}");
            }
        }
    }

    #[test]
    fn same_seed_same_visits() {
        let spec = spec("nomad-small-write");
        let (mut a, mut b) = (Stream::new(&spec, 5), Stream::new(&spec, 5));
        assert!((0..1000).all(|_| a.visit() == b.visit()));
        let mut c = Stream::new(&spec, 6);
        assert!((0..100).any(|_| a.visit() != c.visit()));
    }

    #[test]
    fn a_visit_touches_as_many_lines_as_it_says_each_once() {
        let spec = spec("nomad-medium-read");
        let mut stream = Stream::new(&spec, 1);
        for _ in 0..100 {
            let visit = stream.visit();
            let mut lines: Vec<u64> = visit.words().map(|word| word / 8).collect();
            assert!(lines.iter().all(|l| l / 64 == u64::from(visit.page)));
            lines.sort_unstable();
            lines.dedup();
            assert_eq!(lines.len(), 8);
        }
    }

    #[test]
    fn writes_are_as_many_as_asked_for() {
        let mut spec = spec("gups");
        for (percent, range) in [(0, 0..=0), (50, 4700..=5300), (100, 10_000..=10_000)] {
            spec.write_percent = percent;
            let mut stream = Stream::new(&spec, 2);
            let writes = (0..10_000).filter(|_| stream.visit().write).count();
            assert!(range.contains(&writes), "{percent} %: {writes}");
        }
    }
}
