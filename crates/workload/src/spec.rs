// SPDX-License-Identifier: MIT OR Apache-2.0
//! The workloads by name, and their sizes.
//!
//! `nomad-*` are the micro-benchmark of Nomad, section 4.1: a resident set of which the second half
//! is the working set (all of it for `large`), visited with a zipfian distribution, hot pages
//! spread uniformly. The paper's platforms have a fast node of 16 GB of which "the OS kernel
//! required approximately 3-4 GB"; so the paper's sizes relate to 13 GB that are free:
//!
//! | name          | paper: resident, working set | here, of what is free on the fast node | starts       |
//! | ------------- | ---------------------------- | -------------------------------------- | ------------ |
//! | `nomad-small` | 20 GB, 10 GB                 | 3.0, 0.62                              | on the slow node |
//! | `nomad-medium`| 27 GB, 13.5 GB               | 2.08, 1.04                             | first touch  |
//! | `nomad-large` | 27 GB, 27 GB                 | 2.08, 2.08                             | first touch  |
//!
//! First touch means: filled in the order of the addresses, so that the idle first half is on the
//! fast node, then as much of the working set as still fits. `nomad-small` differs from the paper
//! (1.54, 0.77, first touch): everything starts on the slow node and most of it is idle, so that
//! all of the working set has to be found and moved. `nomad-small-paper-*` is the paper's.
//!
//! `gups` updates single words: 90 % of them in a hot set (40 of 300 MB; scaled, 0.36 and 2.7 of
//! the free fast memory), which lies in one piece in the middle. `gups-uniform` has no hot set.
//!
//! A visit of `nomad-*` touches eight lines of one page, seven lines apart, from a random first one:
//! the paper's benchmark reads or writes whole pages of 64 lines. Eight lines apart from each other
//! are misses that a prefetcher does not hide, so that a visit costs latency as the paper's does on
//! a machine whose prefetcher stops at each page, and a run has eight times the visits.
//! [`Spec::lines`] and [`Spec::step`] set it; 64 and 1 read the whole page in order.

use std::ops::Range;

use thiserror::Error;

use crate::NAMES;
use crate::PAGE_BYTES;
use crate::Scale;
use crate::Start;
use crate::zipf;

/// Why there is no such workload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SpecError {
    /// Not one of [`NAMES`].
    #[error("No workload '{name}'; there are {}", NAMES.join(", "))]
    Name {
        /// What was given.
        name: String,
    },
    /// The sizes leave nothing to visit.
    #[error("{free_bytes} bytes of free fast memory are too few; give at least 1 MiB")]
    TooSmall {
        /// What was given.
        free_bytes: u64,
    },
    /// More pages than an index holds.
    #[error("{bytes} bytes are more than 2^32 pages of 4 KiB; scale to a smaller fast node")]
    TooLarge {
        /// The resident set that was asked for.
        bytes: u64,
    },
}

/// How pages are chosen within the working set.
#[derive(Debug, Clone, PartialEq)]
pub enum Choice {
    /// Zipfian, ranks spread by a seeded permutation.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// A share of the visits goes to a hot range, the rest to all of the working set.
    HotSet {
        /// The hot pages.
        hot: Range<u32>,
        /// Visits to them in percent of all.
        percent: u8,
    },
    /// All alike.
    Uniform,
}

/// A workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Its name.
    pub name: String,
    /// Resident set, pages.
    pub pages: u32,
    /// The working set: the pages that are visited.
    pub active: Range<u32>,
    /// How they are chosen.
    pub choice: Choice,
    /// Visits that write, in percent.
    pub write_percent: u8,
    /// Lines touched by a visit.
    pub lines: u8,
    /// Distance from one of them to the next, in lines, modulo the page; odd.
    pub step: u8,
    /// Where the pages are at first.
    pub start: Start,
}

impl Spec {
    /// The workload `name` at that scale.
    ///
    /// # Errors
    ///
    /// For an unknown name, and where the scale leaves no pages or too many.
    pub fn named(name: &str, scale: Scale) -> Result<Self, SpecError> {
        let spec = match name {
            "gups" | "gups-uniform" => gups(name, scale)?,
            _ => nomad(name, scale)?,
        };
        let hot = match &spec.choice {
            Choice::HotSet { hot, .. } => hot.clone(),
            Choice::Zipf { .. } | Choice::Uniform => spec.active.clone(),
        };
        match scale {
            Scale::FastFree(free_bytes) if spec.active.len() < 64 || hot.is_empty() => {
                Err(SpecError::TooSmall { free_bytes })
            }
            _ => Ok(spec),
        }
    }

    /// Resident set in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES
    }

    /// Share of the visits that go to each page, by page index; the sum is 1.
    #[must_use]
    pub fn shares(&self, seed: u64) -> Vec<f64> {
        let mut shares = vec![0.0; self.pages as usize];
        let (first, count) = (self.active.start, self.active.len());
        match &self.choice {
            Choice::Zipf { theta } => {
                let pages = count_u32(count);
                let by_rank = zipf::zipf_shares(pages, *theta);
                for (page, share) in zipf::spread(pages, seed).into_iter().zip(by_rank) {
                    shares[(first + page) as usize] = share;
                }
            }
            Choice::HotSet { hot, percent } => {
                let in_hot = f64::from(*percent) / 100.0;
                let everywhere = (1.0 - in_hot) / f64::from(count_u32(count));
                let extra = in_hot / f64::from(count_u32(hot.len()));
                for page in self.active.clone() {
                    let hot_share = if hot.contains(&page) { extra } else { 0.0 };
                    shares[page as usize] = everywhere + hot_share;
                }
            }
            Choice::Uniform => {
                let each = 1.0 / f64::from(count_u32(count));
                for page in self.active.clone() {
                    shares[page as usize] = each;
                }
            }
        }
        shares
    }

    /// All pages, the most visited first; equals by index. What a perfect placement follows.
    #[must_use]
    pub fn by_popularity(&self, seed: u64) -> Vec<u32> {
        let shares = self.shares(seed);
        let mut order: Vec<u32> = (0..self.pages).collect();
        order.sort_by(|&a, &b| {
            shares[b as usize]
                .total_cmp(&shares[a as usize])
                .then(a.cmp(&b))
        });
        order
    }
}

/// Pages for a size of the paper, or for that many hundredths of what is free.
fn pages(scale: Scale, hundredths_of_free: u64, paper_bytes: u64) -> Result<u32, SpecError> {
    let bytes = match scale {
        Scale::Paper => paper_bytes,
        Scale::FastFree(free) => {
            u64::try_from(u128::from(free) * u128::from(hundredths_of_free) / 100)
                .unwrap_or(u64::MAX)
        }
    };
    u32::try_from(bytes / PAGE_BYTES).map_err(|_| SpecError::TooLarge { bytes })
}

fn nomad(name: &str, scale: Scale) -> Result<Spec, SpecError> {
    const GB: u64 = 1_000_000_000;
    let unknown = || SpecError::Name {
        name: name.to_owned(),
    };
    let (size, write_percent) = match name.strip_prefix("nomad-").ok_or_else(unknown)? {
        rest if rest.ends_with("-read") => (rest.trim_end_matches("-read"), 0),
        rest if rest.ends_with("-write") => (rest.trim_end_matches("-write"), 100),
        _ => return Err(unknown()),
    };
    let ((rss, rss_paper), (wss, wss_paper), start) = match size {
        "small" => ((300, 39 * GB), (62, 8 * GB), Start::Slow),
        "small-paper" => ((154, 20 * GB), (77, 10 * GB), Start::FirstTouch),
        "medium" => ((208, 27 * GB), (104, 27 * GB / 2), Start::FirstTouch),
        "large" => ((208, 27 * GB), (208, 27 * GB), Start::FirstTouch),
        _ => return Err(unknown()),
    };
    let total = pages(scale, rss, rss_paper)?;
    let active = pages(scale, wss, wss_paper)?;
    Ok(Spec {
        name: name.to_owned(),
        pages: total,
        active: total - active..total,
        choice: Choice::Zipf {
            theta: crate::YCSB_THETA,
        },
        write_percent,
        lines: 8,
        step: 7,
        start,
    })
}

fn gups(name: &str, scale: Scale) -> Result<Spec, SpecError> {
    const MB: u64 = 1 << 20;
    let total = pages(scale, 270, 300 * MB)?;
    let hot = pages(scale, 36, 40 * MB)?;
    let first = (total - hot) / 2;
    let choice = match name {
        "gups" => Choice::HotSet {
            hot: first..first + hot,
            percent: 90,
        },
        _ => Choice::Uniform,
    };
    Ok(Spec {
        name: name.to_owned(),
        pages: total,
        active: 0..total,
        choice,
        write_percent: 100,
        lines: 1,
        step: 1,
        start: Start::Slow,
    })
}

fn count_u32(count: usize) -> u32 {
    u32::try_from(count).expect("a range of u32 has at most 2^32 - 1 members")
}
