// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simple patterns: `zipf`, `scan`, `phases`.
//!
//! `zipf`: single words, zipfian over the pages (theta 0.99 as in YCSB), half of the visits write (MTM's
//! Table 2 gives 1:1 for its micro-benchmark). The sizes and the start are those of `gups-uniform`.
//!
//! `scan`: reads whole pages in the order of addresses, again and again, as the robustness test of
//! Nomad's section 4.1 ("a micro-benchmark that sequentially scans a predefined RSS area", Table 3:
//! 23 to 29 GB, by default 27); with the small sizes 2.08 of the free fast memory, the same
//! proportion. Nothing in it is hot: what a system promotes, it promotes in vain.
//!
//! `phases`: 90 % of the updates go to a hot set that jumps to another quarter of the working set
//! every 30 s, and comes back to the first after the fourth. No paper has it; it is a harder form of
//! the dynamic hot set of HeMem's section 5.1 (`gups-moving`), with the sizes of `gups`.

use terrace_core::Nanos;

use crate::Choice;
use crate::DRAW_NS;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::YCSB_THETA;
use crate::gups::update;
use crate::sizes::Parameters;
use crate::sizes::Shape;

const GIB: u64 = 1 << 30;
const GB: u64 = 1_000_000_000;

/// `zipf`.
pub(crate) fn zipf(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let part = Part {
        weight: 1.0,
        pages: 0..pages,
        choice: Choice::Zipf {
            theta: parameters.theta(YCSB_THETA)?,
            items_per_page: 1,
        },
        write_percent: parameters.write_percent(50)?,
        lines: parameters.number("lines", 1, 1, 64)?,
        step: parameters.step(7)?,
    };
    parameters.program(Shape {
        pages,
        threads_paper: 16,
        start: parameters.default(Start::FirstTouch, Start::Slow),
        think_ns: DRAW_NS,
        phases: vec![Phase::forever(vec![part])],
    })
}

/// `scan`.
pub(crate) fn scan(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 27 * GB, 208)?;
    let part = Part {
        weight: 1.0,
        pages: 0..pages,
        choice: Choice::Sequential,
        write_percent: parameters.write_percent(0)?,
        lines: 64,
        step: 1,
    };
    parameters.program(Shape {
        pages,
        threads_paper: 1,
        start: Start::FirstTouch,
        think_ns: DRAW_NS,
        phases: vec![Phase::forever(vec![part])],
    })
}

/// `phases`.
pub(crate) fn phases(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = parameters.pages("hot", 16 * GIB, 36)?;
    let regions = parameters.number("regions", 4, 2, 1000)?;
    let room = pages / regions;
    if hot > room {
        return Err(parameters.too_small("its hot set in each region"));
    }
    let lasts = parameters.time("phase_time", Nanos(30_000_000_000))?;
    let phase = |region| {
        let first = region * room + (room - hot) / 2;
        Phase {
            lasts: Some(lasts),
            think_ns: DRAW_NS,
            parts: vec![update(0.1, 0..pages), update(0.9, first..first + hot)],
        }
    };
    parameters.program(Shape {
        pages,
        threads_paper: 16,
        start: parameters.default(Start::FirstTouch, Start::Slow),
        think_ns: DRAW_NS,
        phases: (0..regions).map(phase).collect(),
    })
}
