// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pmbench` and `pmbench-groups`: Chrono section 5.1, several processes that each access one word of
//! a random page.
//!
//! `pmbench` (5.1.1): "50 concurrent Pmbench tasks, each having 5 GB private working sets", pattern
//! `normal_ih` and stride 2: a bell curve over the addresses of which every second 4 KiB page is
//! accessed. All of them are resident: that makes the paper's 62.5 million pages. Half of the accesses
//! write, pmbench's default; the paper shows several ratios (`write_percent`).
//!
//! `pmbench-groups` (5.1.3): 50 processes "with random access pattern"; process i stalls i units of 50
//! cycles before every access (2.6 GHz: 19.2 ns a unit). The paper does not give its working sets; they
//! are those of 5.1.1, with which a quarter of the memory is fast.
//!
//! The time of an access besides memory and stall follows from the paper: "cgroup-0 has 2.8x throughput
//! of cgroup-49", so (t + 49 * 19.2 ns) / t = 2.8 and t is 523 ns, of which 170 ns are memory with a
//! quarter of the pages fast (80 and 200 ns): 350 ns remain. pmbench times every access and keeps a
//! histogram.
//!
//! The small sizes have together 3.9 times the free fast memory, as the paper's 250 GB to 64 GB, in one
//! process for `pmbench` and in eight for `pmbench-groups`, whose stalls span the same range.

use crate::Choice;
use crate::Part;
use crate::Phase;
use crate::Program;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;

const GB: u64 = 1_000_000_000;
/// Processes in the paper.
const PROCESSES: u32 = 50;
/// Computing time of an access, ns.
const ACCESS_NS: f64 = 350.0;
/// One unit of delay: 50 cycles at 2.6 GHz, ns.
const UNIT_NS: f64 = 50.0 / 2.6;

/// `pmbench`: a bell curve, all processes alike.
pub(crate) fn normal(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let stride = parameters.number("stride", 2, 1, 64)?;
    let bell = Choice::Normal {
        stride,
        numbers: 12,
    };
    processes(parameters, 1, &bell, |_| 0.0)
}

/// `pmbench-groups`: uniform, each process slower than the one before.
pub(crate) fn groups(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    processes(parameters, 8, &Choice::Uniform, |nth| {
        nth * f64::from(PROCESSES - 1) * UNIT_NS
    })
}

/// `delay` gets where in the row of processes one is, from 0 to 1, and gives ns.
fn processes(
    parameters: &Parameters<'_>,
    small_count: u32,
    choice: &Choice,
    delay: impl Fn(f64) -> f64,
) -> Result<Workload, WorkloadError> {
    let default = parameters.default(PROCESSES, small_count);
    let count = parameters.number("processes", default, 1, 1000)?;
    let all = parameters.pages("working_set", u64::from(count) * 5 * GB, 390)?;
    let pages = all / count;
    if pages < 64 {
        return Err(parameters.too_small("each process"));
    }
    let think_ns = parameters.think(ACCESS_NS)?;
    let threads = parameters.number("threads", 1, 1, 1024)?;
    let start = parameters.start(Start::FirstTouch)?;
    let write_percent = parameters.write_percent(50)?;
    let program = |index: u32| Program {
        name: format!("{}-{index}", parameters.workload()),
        pages,
        threads,
        start,
        fill: Vec::new(),
        partitions: Vec::new(),
        phases: vec![Phase {
            lasts: None,
            think_ns: think_ns + delay(f64::from(index) / f64::from((count - 1).max(1))),
            parts: vec![Part {
                weight: 1.0,
                pages: 0..pages,
                choice: choice.clone(),
                write_percent,
                lines: 1,
                step: 1,
            }],
        }],
        priority: 0,
    };
    Ok(Workload {
        name: parameters.workload().to_owned(),
        programs: (0..count).map(program).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    #[test]
    fn the_paper_has_50_processes_of_5_gb() {
        for name in ["pmbench", "pmbench-groups"] {
            let workload = Workload::named(name, &Sizes::paper()).expect(name);
            assert_eq!(workload.programs.len(), 50);
            assert!(
                workload
                    .programs
                    .iter()
                    .all(|p| p.bytes() / GB == 4 && p.bytes() > 4999 * GB / 1000)
            );
        }
    }

    #[test]
    fn delays_grow_by_50_cycles() {
        let workload = Workload::named("pmbench-groups", &Sizes::paper()).expect("known");
        let think = |i: usize| workload.programs[i].phases[0].think_ns;
        assert!((think(0) - 350.0).abs() < 1e-9);
        assert!((think(1) - think(0) - UNIT_NS).abs() < 1e-9);
        assert!((think(49) - think(0) - 49.0 * UNIT_NS).abs() < 1e-9);
        // The paper's ratio of throughputs, with its mean memory latency.
        assert!(((think(49) + 170.0) / (think(0) + 170.0) - 2.8).abs() < 0.05);
    }

    #[test]
    fn only_every_second_page_is_visited() {
        let workload = Workload::named("pmbench", &Sizes::fast_free(4 << 20)).expect("known");
        let program = &workload.programs[0];
        let shares = program.phases[0].shares(program, 1);
        for page in 0..program.pages {
            assert_eq!(shares.of(page) > 0.0, page % 2 == 0, "page {page}");
        }
    }
}
