// SPDX-License-Identifier: MIT OR Apache-2.0
//! What runs: programs, their phases, and the mixture of visits of a phase.
//!
//! A [`Workload`] is one or more [`Program`]s that run at the same time, each with a memory of its
//! own. A program goes through [`Phase`]s by elapsed time; in a phase its visits are a mixture of
//! [`Part`]s, each a distribution over a range of pages. That is all that the native runner, the
//! lab and the simulator know of a workload: exact visits come from [`crate::Visits`], shares of the
//! visits per page from [`Phase::shares`] and [`Phase::pieces`].
//!
//! `think_ns` is in nanoseconds of real hardware.

use std::ops::Range;

use terrace_core::Nanos;
use thiserror::Error;

use crate::Choice;
use crate::PAGE_BYTES;
use crate::Sizes;
use crate::sizes::Parameters;

/// What drawing a visit and looping takes by itself on real hardware, ns: what the think time of
/// every workload at least is. The native runner spends it anyway and spins only for the rest.
pub const DRAW_NS: f64 = 5.0;

/// Why there is no such workload.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WorkloadError {
    /// Not one of the names.
    #[error("No workload '{name}'; there are {}", crate::NAMES.join(", "))]
    Name {
        /// What was given.
        name: String,
    },
    /// Something else than `name=value`.
    #[error("'{text}' is not a setting; write name=value, e.g. working_set=4GiB")]
    Setting {
        /// What was given.
        text: String,
    },
    /// The workload has no parameter of that name.
    #[error("{workload} has no parameter '{name}'; it has {known}")]
    Parameter {
        /// The workload.
        workload: String,
        /// What was given.
        name: String,
        /// What there is.
        known: String,
    },
    /// A parameter has a value that it cannot have.
    #[error("{name} cannot be '{value}'; give {wanted}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        wanted: String,
    },
    /// The sizes leave nothing to visit.
    #[error("{workload} has too few pages for {what}; give more memory, at least 1 MiB")]
    TooSmall {
        /// The workload.
        workload: String,
        /// The size that is too small.
        what: &'static str,
    },
    /// More pages than an index holds.
    #[error("{bytes} bytes are more than 2^32 pages of 4 KiB; give a smaller size")]
    TooLarge {
        /// What was asked for.
        bytes: u64,
    },
}

/// Where the pages are before the first visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All on the slow node.
    Slow,
    /// Where touching them in order puts them: on the fast node until it is full.
    FirstTouch,
    /// As in a program whose threads run on several sockets: where a thread of the next socket than the one that visits
    /// them put them by touching them in order.
    Across,
}

/// What runs: one or more programs at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// The programs, at least one.
    pub programs: Vec<Program>,
}

/// A process.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    /// Its name; unique in the workload.
    pub name: String,
    /// Resident set, 4 KiB pages.
    pub pages: u32,
    /// Threads that make visits.
    pub threads: u32,
    /// Where the pages are before the first visit.
    pub start: Start,
    /// The order in which pages are touched first; empty: by address. Covers all pages once.
    pub fill: Vec<Range<u32>>,
    /// By thread: the pages that no other one visits, which cover all pages once; empty: each thread visits all.
    pub partitions: Vec<Range<u32>>,
    /// One after the other, at least one. See [`Program::phase_at`].
    pub phases: Vec<Phase>,
    /// 0 is normal, higher matters more.
    pub priority: u8,
}

/// Visits of the same kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Phase {
    /// How long; `None`: to the end. If all phases have a time, they start over after
    /// the last.
    pub lasts: Option<Nanos>,
    /// Time of a visit besides that for memory, real-hardware ns; at least [`DRAW_NS`].
    pub think_ns: f64,
    /// The mixture; the weights sum to 1.
    pub parts: Vec<Part>,
}

/// One component of the mixture of visits.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// Share of the phase's visits, 0 to 1.
    pub weight: f64,
    /// The pages visited.
    pub pages: Range<u32>,
    /// How a page is chosen among them.
    pub choice: Choice,
    /// Visits that write, in percent.
    pub write_percent: u8,
    /// Cache lines touched by a visit, 1 to 64.
    pub lines: u8,
    /// Distance from one of them to the next, in lines, modulo the page; odd.
    pub step: u8,
}

/// Whether a range has nothing outside of the other.
pub(crate) fn is_inside(inner: &Range<u32>, outer: &Range<u32>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Lines one after the other from a first one.
pub(crate) fn part(
    weight: f64,
    pages: &Range<u32>,
    choice: Choice,
    write_percent: u8,
    lines: u8,
) -> Part {
    Part {
        weight,
        pages: pages.clone(),
        choice,
        write_percent,
        lines,
        step: 1,
    }
}

impl Workload {
    /// The workload of that name. The table of names is in the crate's documentation.
    ///
    /// # Errors
    ///
    /// For a name, a parameter or a value that there is not, and where the sizes leave no pages or
    /// too many.
    pub fn named(name: &str, sizes: &Sizes) -> Result<Self, WorkloadError> {
        let parameters = Parameters::new(name, sizes);
        let workload = crate::names::build(&parameters)?;
        parameters.finish()?;
        Ok(workload)
    }

    /// A workload of one program of the same name.
    #[must_use]
    pub fn of(program: Program) -> Self {
        Self {
            name: program.name.clone(),
            programs: vec![program],
        }
    }

    /// The same for who knows only programs: each thread that has pages of its own is a program.
    #[must_use]
    pub fn by_thread(&self) -> Self {
        Self {
            name: self.name.clone(),
            programs: self.programs.iter().flat_map(Program::by_thread).collect(),
        }
    }

    /// Resident set of all programs, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.programs.iter().map(Program::bytes).sum()
    }
}

impl Program {
    /// Resident set, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE_BYTES
    }

    /// Whether its threads belong to sockets: who visits what, or who touched it first, depends on it.
    #[must_use]
    pub fn is_bound(&self) -> bool {
        self.start == Start::Across || !self.partitions.is_empty()
    }

    /// Each of its threads as a program, where they have pages of their own.
    fn by_thread(&self) -> Vec<Self> {
        if self.partitions.is_empty() {
            return vec![self.clone()];
        }
        let one = |(thread, own): (usize, &Range<u32>)| Self {
            name: format!("{}.{thread}", self.name),
            pages: own.end - own.start,
            threads: 1,
            fill: Vec::new(),
            partitions: Vec::new(),
            phases: self.phases.iter().map(|phase| phase.within(own)).collect(),
            ..self.clone()
        };
        self.partitions.iter().enumerate().map(one).collect()
    }

    /// The ranges in the order in which their pages are touched first.
    #[must_use]
    pub fn fill_order(&self) -> Vec<Range<u32>> {
        match &self.fill[..] {
            [] => vec![Range {
                start: 0,
                end: self.pages,
            }],
            ranges => ranges.to_vec(),
        }
    }

    /// The phase that runs at that time since the first visit, and when it ends (`None`: never).
    #[must_use]
    pub fn phase_at(&self, elapsed: Nanos) -> (usize, Option<Nanos>) {
        let cycle: Option<u64> = self.phases.iter().map(|p| p.lasts.map(|t| t.0)).sum();
        let begin = match cycle {
            Some(cycle) if cycle > 0 => elapsed.0 - elapsed.0 % cycle,
            _ => 0,
        };
        let mut end = begin;
        for (index, phase) in self.phases.iter().enumerate() {
            let Some(lasts) = phase.lasts else {
                return (index, None);
            };
            end = end.saturating_add(lasts.0);
            if elapsed.0 < end {
                return (index, Some(Nanos(end)));
            }
        }
        (self.phases.len().saturating_sub(1), None)
    }
}

impl Phase {
    /// A phase that lasts to the end, with no more think time than drawing takes.
    #[must_use]
    pub fn forever(parts: Vec<Part>) -> Self {
        Self {
            lasts: None,
            think_ns: DRAW_NS,
            parts,
        }
    }

    /// The visits to a range of pages alone, which the parts are inside or outside of, by index in the range.
    fn within(&self, pages: &Range<u32>) -> Self {
        let inside = |part: &&Part| is_inside(&part.pages, pages);
        let mut parts: Vec<Part> = self.parts.iter().filter(inside).cloned().collect();
        let sum: f64 = parts.iter().map(|part| part.weight).sum();
        for part in &mut parts {
            part.weight /= sum;
            part.pages = part.pages.start - pages.start..part.pages.end - pages.start;
        }
        Self {
            parts,
            ..self.clone()
        }
    }

    /// Cache lines that a visit touches on average.
    #[must_use]
    pub fn mean_lines(&self) -> f64 {
        self.parts
            .iter()
            .map(|part| part.weight * f64::from(part.lines))
            .sum()
    }
}
