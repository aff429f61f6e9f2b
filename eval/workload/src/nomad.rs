// SPDX-License-Identifier: MIT OR Apache-2.0
//! `nomad-*`: the micro-benchmark of Nomad, section 4.1.
//!
//! A resident set of which the second half is the working set (all of it for `large`), visited with
//! a zipfian distribution (YCSB's theta 0.99; the paper names none), hot pages "uniformly
//! distributed along the WSS". The paper's platforms have a fast node of 16 GB of which "the OS
//! kernel required approximately 3-4 GB"; so the paper's sizes relate to 13 GB that are free:
//!
//! | name          | paper: resident, working set | small sizes, of what is free on the fast node | starts       |
//! | ------------- | ---------------------------- | --------------------------------------------- | ------------ |
//! | `nomad-small` | 20 GB, 10 GB                 | 3.0, 0.62                                     | on the slow node |
//! | `nomad-medium`| 27 GB, 13.5 GB               | 2.08, 1.04                                    | first touch  |
//! | `nomad-large` | 27 GB, 27 GB                 | 2.08, 2.08                                    | first touch  |
//!
//! First touch means: filled in the order of the addresses, so that the idle first half is on the
//! fast node, then as much of the working set as still fits, as the paper does. The small sizes of
//! `nomad-small` differ from the paper (1.54, 0.77, first touch): everything starts on the slow node
//! and most of it is idle, so that all of the working set has to be found and moved.
//! `nomad-small-paper-*` is the paper's at every size, and so is `nomad-small-*` with the paper's sizes.
//!
//! A visit touches eight lines of one page, seven lines apart, from a random first one: the paper's
//! benchmark reads or writes whole pages of 64 lines. Eight lines apart from each other are misses
//! that a prefetcher does not hide, so that a visit costs latency as the paper's does on a machine
//! whose prefetcher stops at each page, and a run has eight times the visits. `lines` and `step` set
//! it; 64 and 1 read the whole page in order.

use crate::Choice;
use crate::DRAW_NS;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::YCSB_THETA;
use crate::sizes::Parameters;
use crate::sizes::Shape;

const GB: u64 = 1_000_000_000;

pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let name = parameters.workload();
    let unknown = || WorkloadError::Name {
        name: name.to_owned(),
    };
    let rest = name.strip_prefix("nomad-").ok_or_else(unknown)?;
    let (size, write_percent) = match (rest.strip_suffix("-read"), rest.strip_suffix("-write")) {
        (Some(size), _) => (size, 0),
        (_, Some(size)) => (size, 100),
        _ => return Err(unknown()),
    };
    let ((rss, rss_paper), (wss, wss_paper), start) = match size {
        "small" => {
            let start = parameters.default(Start::FirstTouch, Start::Slow);
            ((300, 20 * GB), (62, 10 * GB), start)
        }
        "small-paper" => ((154, 20 * GB), (77, 10 * GB), Start::FirstTouch),
        "medium" => ((208, 27 * GB), (104, 27 * GB / 2), Start::FirstTouch),
        "large" => ((208, 27 * GB), (208, 27 * GB), Start::FirstTouch),
        _ => return Err(unknown()),
    };
    let pages = parameters.pages("resident_set", rss_paper, rss)?;
    let active = parameters.pages("working_set", wss_paper, wss)?;
    if active > pages || active < 64 {
        return Err(parameters.too_small("its working set"));
    }
    let part = Part {
        weight: 1.0,
        pages: pages - active..pages,
        choice: Choice::Zipf {
            theta: parameters.theta(YCSB_THETA)?,
            items_per_page: 1,
        },
        write_percent,
        lines: parameters.number("lines", 8, 1, 64)?,
        step: parameters.step(7)?,
    };
    parameters.program(Shape {
        pages,
        threads_paper: 1,
        start,
        think_ns: DRAW_NS,
        phases: vec![Phase::forever(vec![part])],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Program;
    use crate::Sizes;

    const FREE: u64 = 111 << 20;

    fn named(name: &str, sizes: &Sizes) -> Program {
        let mut workload = Workload::named(name, sizes).expect(name);
        workload.programs.remove(0)
    }

    #[test]
    fn small_fits_the_fast_node_and_large_does_not() {
        let free_pages = u32::try_from(FREE / crate::PAGE_BYTES).expect("small");
        let small = named("nomad-small-read", &Sizes::fast_free(FREE));
        let part = &small.phases[0].parts[0];
        assert!(part.page_count() < free_pages * 65 / 100);
        assert!(small.pages > free_pages * 29 / 10);
        assert_eq!((part.write_percent, small.start), (0, Start::Slow));
        let large = named("nomad-large-write", &Sizes::fast_free(FREE));
        let part = &large.phases[0].parts[0];
        assert!(part.page_count() > 2 * free_pages);
        assert_eq!((part.write_percent, large.start), (100, Start::FirstTouch));
    }

    #[test]
    fn the_paper_s_sizes_are_the_paper_s() {
        for (name, rss, wss) in [
            ("nomad-small-read", 20 * GB, 10 * GB),
            ("nomad-small-paper-read", 20 * GB, 10 * GB),
            ("nomad-medium-write", 27 * GB, 27 * GB / 2),
            ("nomad-large-read", 27 * GB, 27 * GB),
        ] {
            let program = named(name, &Sizes::paper());
            let part = &program.phases[0].parts[0];
            assert_eq!(u64::from(program.pages), rss / 4096, "{name}");
            assert_eq!(u64::from(part.page_count()), wss / 4096, "{name}");
            assert_eq!(
                part.pages.end, program.pages,
                "the second half is the working set"
            );
            assert_eq!(program.start, Start::FirstTouch);
        }
    }
}
