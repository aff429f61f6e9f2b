// SPDX-License-Identifier: MIT OR Apache-2.0
//! `gups*`: updates of single words, HeMem section 5.1.
//!
//! "GUPS executes parallel read-modify-write operations to fixed size objects in a uniform or
//! skewed random pattern": 16 threads, objects of 8 bytes, a working set of 512 GB with a hot set of
//! 16 GB that gets 90 % of the operations (the rest goes to all of the working set: the paper says
//! that "approximately 10% of accesses must go to slow" memory when only the hot set fits). "Each
//! thread has its own exclusive working set partition", so the hot set is one piece in the middle of
//! each thread's partition; where exactly the paper does not say. The small sizes have one thread,
//! a working set of 2.7 and a hot set of 0.36 of the free fast memory, and start on the slow node,
//! so that all of the hot set has to be found and moved; with the paper's sizes pages start where
//! filling by address puts them.

use std::ops::Range;

use crate::Choice;
use crate::Part;
use crate::Phase;
use crate::Program;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;

const GIB: u64 = 1 << 30;

/// Share of the operations that goes to the hot set.
const HOT_PERCENT: f64 = 90.0;

/// `gups-uniform`: all pages alike.
pub(crate) fn uniform(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let parts = vec![update(1.0, 0..pages)];
    program(parameters, pages, vec![Phase::forever(parts)])
}

/// `gups`: a hot set that stays.
pub(crate) fn hot_set(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let (pages, hot) = sizes(parameters)?;
    let share = parameters.number("hot_percent", HOT_PERCENT, 0.0, 100.0)? / 100.0;
    let mut parts = vec![update(1.0 - share, 0..pages)];
    let pieces = pieces(pages, hot, threads(parameters)?);
    let all: u32 = pieces.iter().map(|piece| piece.end - piece.start).sum();
    parts.extend(pieces.into_iter().map(|piece| {
        let size = f64::from(piece.end - piece.start);
        update(share * size / f64::from(all), piece)
    }));
    program(parameters, pages, vec![Phase::forever(parts)])
}

fn sizes(parameters: &Parameters<'_>) -> Result<(u32, u32), WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = parameters.pages("hot", 16 * GIB, 36)?;
    if hot > pages || hot < threads(parameters)? {
        return Err(parameters.too_small("its hot set"));
    }
    Ok((pages, hot))
}

fn threads(parameters: &Parameters<'_>) -> Result<u32, WorkloadError> {
    parameters.number("threads", parameters.default(16, 1), 1, 1024)
}

/// A piece in the middle of each of `count` partitions; together `hot` pages.
fn pieces(pages: u32, hot: u32, count: u32) -> Vec<Range<u32>> {
    let share = |of: u32, i: u32| {
        let cut = u64::from(of) * u64::from(i) / u64::from(count);
        u32::try_from(cut).expect("at most `of`")
    };
    (0..count)
        .map(|i| {
            let (begin, end) = (share(pages, i), share(pages, i + 1));
            let size = (share(hot, i + 1) - share(hot, i)).min(end - begin);
            let first = begin + (end - begin - size) / 2;
            first..first + size
        })
        .collect()
}

/// Read-modify-write of one word.
fn update(weight: f64, pages: Range<u32>) -> Part {
    Part {
        weight,
        pages,
        choice: Choice::Uniform,
        write_percent: 100,
        lines: 1,
        step: 1,
    }
}

fn program(
    parameters: &Parameters<'_>,
    pages: u32,
    phases: Vec<Phase>,
) -> Result<Workload, WorkloadError> {
    if pages < 64 {
        return Err(parameters.too_small("its working set"));
    }
    Ok(Workload::of(Program {
        name: parameters.workload().to_owned(),
        pages,
        threads: threads(parameters)?,
        start: parameters.start(parameters.default(Start::FirstTouch, Start::Slow))?,
        fill: Vec::new(),
        phases,
        priority: 0,
    }))
}
