// SPDX-License-Identifier: MIT OR Apache-2.0
//! The visits of a program, one after the other, from a seed.
//!
//! One 64-bit random number says the part of the mixture, the first line, the word in each line and
//! whether it writes; as many more as the distribution needs choose the page. Same program and seed:
//! same visits, on every machine. No distribution keeps a table that grows with the pages.

use std::num::NonZeroU64;

use rand::Rng;
use rand_pcg::Pcg64Mcg;

use crate::Choice;
use crate::LINES_PER_PAGE;
use crate::Part;
use crate::Phase;
use crate::Program;
use crate::WORDS_PER_PAGE;
use crate::alias::AliasTable;
use crate::alias::scale_wide;
use crate::alias::split;
use crate::by_rank::ZipfRanks;
use crate::choice::aged;
use crate::choice::row_page;
use crate::choice::small;
use crate::kronecker::Vertices;
use crate::normal;
use crate::nurand::NuRand;
use crate::spread::Spread;
use crate::spread::mix;
use crate::workload::is_inside;

/// Bits of the coin for writing.
const WRITE_BITS: u8 = 19;

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
    /// The words touched, by index in the program's memory.
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

/// How a page of one part comes about, as an offset from the part's first.
#[derive(Debug, Clone)]
enum Chooser {
    Uniform,
    /// The next page.
    Sequential(u32),
    Zipf(Zipf),
    Latest {
        ranks: ZipfRanks,
        per_page: NonZeroU64,
        head: u64,
        items: u64,
    },
    Runs {
        starts: Zipf,
        pages_max: u32,
        next: u32,
        left: u32,
    },
    Normal {
        stride: u32,
        numbers: u8,
        places: u64,
    },
    Kronecker {
        vertices: Vertices,
        spread: Option<Spread>,
        per_page: NonZeroU64,
    },
    NuRand {
        rows: NuRand,
        per_group: u64,
        groups: u64,
        row_bytes: u16,
    },
}

/// Zipfian items, spread over the pages.
#[derive(Debug, Clone)]
struct Zipf {
    ranks: ZipfRanks,
    spread: Spread,
    per_page: NonZeroU64,
}

#[derive(Debug, Clone)]
struct PartVisits {
    chooser: Chooser,
    first: u32,
    count: u32,
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
        Self::of(program, seed, 0, |_| true)
    }

    /// The visits of one of its threads: the same distribution (`seed` says where the hot pages
    /// are) or its own part of it, other draws.
    #[must_use]
    pub fn for_thread(program: &Program, seed: u64, thread: u32) -> Self {
        let own = program.partitions.get(thread as usize);
        let visited = |part: &Part| own.is_none_or(|own| is_inside(&part.pages, own));
        Self::of(program, seed, thread, visited)
    }

    fn of(program: &Program, seed: u64, thread: u32, visited: impl Fn(&Part) -> bool) -> Self {
        let stream = mix(mix(seed) ^ u64::from(thread));
        Self {
            rng: Pcg64Mcg::new(u128::from(mix(stream ^ 1)) << 64 | u128::from(stream)),
            phases: program
                .phases
                .iter()
                .map(|phase| PhaseVisits::new(phase, seed, &visited))
                .collect(),
        }
    }

    /// The next visit, if `phase` runs.
    ///
    /// # Panics
    ///
    /// If the program has no such phase.
    #[inline]
    pub fn visit(&mut self, phase: usize) -> Visit {
        let (coin, low) = split(self.rng.next_u64());
        let phase = &mut self.phases[phase];
        let part = match &phase.mixture {
            Mixture::One => 0,
            Mixture::Two(below) => usize::from(u64::from(coin) >= *below),
            Mixture::Many(table) => table.draw(self.rng.next_u64()) as usize,
        };
        let part = &mut phase.parts[part];
        let offset = part.chooser.page(&mut self.rng, part.count);
        let [line, word, ..] = low.to_le_bytes();
        Visit {
            page: part.first + offset,
            first_line: line % LINES_PER_PAGE,
            lines: part.lines,
            step: part.step,
            word: word % 8,
            // The bits that line and word leave.
            write: low >> (32 - WRITE_BITS) < part.write_below,
        }
    }
}

impl PhaseVisits {
    fn new(phase: &Phase, seed: u64, visited: impl Fn(&Part) -> bool) -> Self {
        let parts: Vec<&Part> = phase.parts.iter().filter(|part| visited(part)).collect();
        let weights: Vec<f64> = parts.iter().map(|part| part.weight).collect();
        let mixture = match weights[..] {
            [_] => Mixture::One,
            [first, second] => Mixture::Two(of_two_to(32, first / (first + second))),
            _ => Mixture::Many(AliasTable::new(&weights)),
        };
        let part = |part: &Part| {
            let writes = of_two_to(WRITE_BITS, f64::from(part.write_percent) / 100.0);
            PartVisits {
                chooser: Chooser::new(part, seed),
                first: part.pages.start,
                count: part.page_count(),
                write_below: split(writes).1,
                lines: part.lines,
                step: part.step,
            }
        };
        Self {
            mixture,
            parts: parts.into_iter().map(part).collect(),
        }
    }
}

impl Zipf {
    fn new(part: &Part, theta: f64, items_per_page: u16, seed: u64) -> Self {
        let items = part.items(items_per_page);
        Self {
            ranks: ZipfRanks::new(items.get(), theta),
            spread: Spread::new(items, seed),
            per_page: per_page(items_per_page),
        }
    }

    #[inline]
    fn page(&self, rng: &mut Pcg64Mcg) -> u32 {
        small(self.spread.at(self.ranks.draw(rng)) / self.per_page)
    }
}

impl Chooser {
    fn new(part: &Part, seed: u64) -> Self {
        match part.choice {
            Choice::Uniform => Self::Uniform,
            Choice::Sequential => Self::Sequential(0),
            Choice::Zipf {
                theta,
                items_per_page,
            } => Self::Zipf(Zipf::new(part, theta, items_per_page, seed)),
            Choice::Latest {
                theta,
                items_per_page,
                head,
            } => {
                let items = part.items(items_per_page).get();
                Self::Latest {
                    ranks: ZipfRanks::new(items, theta),
                    per_page: per_page(items_per_page),
                    head: u64::from(head) * u64::from(items_per_page),
                    items,
                }
            }
            Choice::Runs {
                theta,
                items_per_page,
                pages_max,
            } => Self::Runs {
                starts: Zipf::new(part, theta, items_per_page, seed),
                pages_max,
                next: 0,
                left: 0,
            },
            Choice::Normal { stride, numbers } => Self::Normal {
                stride,
                numbers,
                places: u64::from(part.page_count().div_ceil(stride)),
            },
            Choice::Kronecker {
                zero,
                items_per_page,
                permuted,
            } => {
                let items = part.items(items_per_page);
                Self::Kronecker {
                    vertices: Vertices::new(items.ilog2(), zero),
                    spread: permuted.then(|| Spread::new(items, seed)),
                    per_page: per_page(items_per_page),
                }
            }
            Choice::NuRand {
                a,
                rows,
                groups,
                row_bytes,
            } => Self::NuRand {
                rows: NuRand::new(a, rows, seed),
                per_group: u64::from(rows),
                groups: u64::from(groups),
                row_bytes,
            },
        }
    }

    #[inline]
    fn page(&mut self, rng: &mut Pcg64Mcg, count: u32) -> u32 {
        match self {
            Self::Uniform => small(scale_wide(rng.next_u64(), u64::from(count))),
            Self::Sequential(next) => {
                let page = *next;
                *next = after(page, count);
                page
            }
            Self::Zipf(zipf) => zipf.page(rng),
            Self::Latest {
                ranks,
                per_page,
                head,
                items,
            } => small(aged(*head, ranks.draw(rng), *items) / *per_page),
            Self::Runs {
                starts,
                pages_max,
                next,
                left,
            } => {
                if *left == 0 {
                    *next = starts.page(rng);
                    *left = small(scale_wide(rng.next_u64(), u64::from(*pages_max))) + 1;
                }
                *left -= 1;
                let page = *next;
                *next = after(page, count);
                page
            }
            Self::Normal {
                stride,
                numbers,
                places,
            } => small(normal::draw(rng, *places, *numbers)) * *stride,
            Self::Kronecker {
                vertices,
                spread,
                per_page,
            } => {
                let vertex = vertices.draw(rng);
                let number = spread.map_or(vertex, |spread| spread.at(vertex));
                small(number / *per_page)
            }
            Self::NuRand {
                rows,
                per_group,
                groups,
                row_bytes,
            } => {
                let group = scale_wide(rng.next_u64(), *groups);
                row_page(group * *per_group + u64::from(rows.draw(rng)), *row_bytes)
            }
        }
    }
}

/// The page after `page` in a ring of `count`.
#[inline]
fn after(page: u32, count: u32) -> u32 {
    if page + 1 < count { page + 1 } else { 0 }
}

fn per_page(items: u16) -> NonZeroU64 {
    NonZeroU64::new(u64::from(items)).expect("a page has items")
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
