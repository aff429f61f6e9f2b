// SPDX-License-Identifier: MIT OR Apache-2.0
//! `drifting`, `alternating`, `sparse`: hot sets that do not stay, or are hard to see.
//!
//! `drifting`: 90 % of the updates go to a hot set that moves on by a hundredth of itself every second, and comes
//! round to where it began. There is never a jump, and a page is hot for 100 s.
//!
//! `alternating`: the hot set is in one half of the working set for 3 s, then as long in the other: before it is moved it
//! is not hot any more, and the next time it is.
//!
//! `sparse`: 90 % of the updates go to one 4 KiB page of each 2 MiB, along a bell curve; the rest to all. Seen by 2 MiB, all memory is
//! alike.
//!
//! The sizes are those of `gups`. No paper has them.

use std::ops::Range;

use terrace_core::Nanos;

use crate::Choice;
use crate::DRAW_NS;
use crate::Part;
use crate::Phase;
use crate::Workload;
use crate::WorkloadError;
use crate::gups::program;
use crate::gups::update;
use crate::sizes::Parameters;

const GIB: u64 = 1 << 30;
/// Share of the updates that goes to what is hot.
const HOT: f64 = 0.9;
/// 4 KiB pages in 2 MiB.
const CHUNK_PAGES: u32 = 512;

/// `drifting`.
pub(crate) fn drifting(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let (pages, hot) = sizes(parameters)?;
    let each = Nanos(1_000_000_000);
    let percent: u32 = parameters.number("drift_percent", 1, 1, 100)?;
    let step = (hot * percent / 100).max(1);
    // At most so many places: of large memories a page's step is a larger one.
    let step = step.max(pages.div_ceil(10_000));
    let phases = (0..pages.div_ceil(step)).map(|at| {
        let first = at * step;
        let end = first + hot;
        let mut parts = vec![update(1.0 - HOT, 0..pages)];
        let mut add = |range: Range<u32>| {
            if !range.is_empty() {
                let weight = HOT * f64::from(range.end - range.start) / f64::from(hot);
                parts.push(update(weight, range));
            }
        };
        add(first..end.min(pages));
        add(0..end.saturating_sub(pages));
        phase(each, parts)
    });
    program(parameters, pages, phases.collect())
}

/// `alternating`.
pub(crate) fn alternating(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let (pages, hot) = sizes(parameters)?;
    let half = pages / 2;
    if hot > half {
        return Err(parameters.too_small("its hot set in each half"));
    }
    let each = parameters.time("phase_time", Nanos(3_000_000_000))?;
    let phases = [0, half].map(|from| {
        let first = from + (half - hot) / 2;
        let parts = vec![update(1.0 - HOT, 0..pages), update(HOT, first..first + hot)];
        phase(each, parts)
    });
    program(parameters, pages, phases.to_vec())
}

/// `sparse`.
pub(crate) fn sparse(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = Part {
        choice: Choice::Normal {
            stride: CHUNK_PAGES,
            numbers: 12,
        },
        ..update(HOT, 0..pages)
    };
    let parts = vec![update(1.0 - HOT, 0..pages), hot];
    program(parameters, pages, vec![Phase::forever(parts)])
}

fn sizes(parameters: &Parameters<'_>) -> Result<(u32, u32), WorkloadError> {
    let pages = parameters.pages("working_set", 512 * GIB, 270)?;
    let hot = parameters.pages("hot", 16 * GIB, 36)?;
    if hot >= pages {
        return Err(parameters.too_small("what is not hot"));
    }
    Ok((pages, hot))
}

fn phase(lasts: Nanos, parts: Vec<Part>) -> Phase {
    Phase {
        lasts: Some(lasts),
        think_ns: DRAW_NS,
        parts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    fn phases(name: &str) -> (u32, Vec<Phase>) {
        let sizes = Sizes::fast_free(64 << 20);
        let program = Workload::named(name, &sizes)
            .expect(name)
            .programs
            .remove(0);
        (program.pages, program.phases)
    }

    #[test]
    fn a_drifting_set_keeps_its_size_and_comes_round() {
        let (pages, phases) = phases("drifting");
        let hot = |phase: &Phase| -> u32 {
            let parts = phase.parts.iter().skip(1);
            parts.map(|part| part.pages.end - part.pages.start).sum()
        };
        assert!(phases.iter().all(|phase| hot(phase) == hot(&phases[0])));
        let weights = |phase: &Phase| phase.parts.iter().map(|p| p.weight).sum::<f64>();
        assert!(
            phases
                .iter()
                .all(|phase| (weights(phase) - 1.0).abs() < 1e-9)
        );
        let last = &phases[phases.len() - 1];
        assert_eq!(last.parts.len(), 3, "it is at both ends");
        assert!(phases[1].parts[1].pages.start * 99 <= hot(&phases[0]));
        assert!(last.parts[1].pages.end == pages && last.parts[2].pages.start == 0);
    }

    #[test]
    fn alternating_sets_have_nothing_in_common_and_sparse_ones_no_neighbours() {
        let (_, both) = phases("alternating");
        assert!(both[0].parts[1].pages.end <= both[1].parts[1].pages.start);
        assert_eq!(both[0].lasts, both[1].lasts);
        let (_, sparse) = phases("sparse");
        let bell = Choice::Normal {
            stride: 512,
            numbers: 12,
        };
        assert_eq!(sparse[0].parts[1].choice, bell);
    }
}
