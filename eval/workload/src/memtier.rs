// SPDX-License-Identifier: MIT OR Apache-2.0
//! `memtier`: Chrono section 5.3, an in-memory key-value store under memtier_benchmark.
//!
//! "A key-value store including 500 M items, which consumes 160 GB memory": 320 bytes an item, of which twelve are in a
//! page, and an index of 16 bytes an item. Items lie in the order of their keys ("sequential initialization on all the
//! items"), and keys are asked for along a bell curve ("Gaussian distributed SET/GET ops"), with memtier's default deviation, a
//! sixth of the range. An operation is two visits: one line of the index, which is hashed and so has no order, and the item. Nine in a hundred
//! set it, memtier's default of 1 to 10 (`write_percent`).
//!
//! The paper has Memcached and Redis and does not say how many threads; four is Memcached's default, Redis has one
//! (`threads`). Think time is that of `ycsb-*`, 3.5 us a visit. The small size has the paper's proportion to its 64 GB of
//! DRAM: 2.5.

use crate::Choice;
use crate::Part;
use crate::Phase;
use crate::Start;
use crate::Workload;
use crate::WorkloadError;
use crate::sizes::Parameters;
use crate::sizes::Shape;

const GB: u64 = 1_000_000_000;
const THINK_NS: f64 = 3500.0;
/// Items and index entries in a page.
const ITEMS_PER_PAGE: u32 = 12;
const ENTRIES_PER_PAGE: u32 = 256;
/// Lines of an item.
const ITEM_LINES: u8 = 5;
/// memtier's deviation: a sixth of the range.
const NUMBERS: u8 = 3;

/// `memtier`.
pub(crate) fn build(parameters: &Parameters<'_>) -> Result<Workload, WorkloadError> {
    let pages = parameters.pages("working_set", 160 * GB, 250)?;
    let of_items = u64::from(pages) * u64::from(ENTRIES_PER_PAGE)
        / u64::from(ENTRIES_PER_PAGE + ITEMS_PER_PAGE);
    let items = u32::try_from(of_items).unwrap_or(pages);
    let index = pages - items;
    if index == 0 {
        return Err(parameters.too_small("its index"));
    }
    let look_up = Part {
        weight: 0.5,
        pages: 0..index,
        choice: Choice::Uniform,
        write_percent: 0,
        lines: 1,
        step: 1,
    };
    let item = Part {
        pages: index..pages,
        choice: Choice::Normal {
            stride: 1,
            numbers: NUMBERS,
        },
        write_percent: parameters.write_percent(9)?,
        lines: ITEM_LINES,
        ..look_up.clone()
    };
    parameters.program(Shape {
        pages,
        threads_paper: 4,
        start: Start::FirstTouch,
        think_ns: THINK_NS,
        phases: vec![Phase::forever(vec![look_up, item])],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sizes;

    #[test]
    fn the_paper_has_500_million_items_in_160_gb() {
        let workload = Workload::named("memtier", &Sizes::paper()).expect("known");
        let program = &workload.programs[0];
        let parts = &program.phases[0].parts;
        let of =
            |part: &Part, each: u32| f64::from(part.pages.end - part.pages.start) * f64::from(each);
        let (entries, items) = (
            of(&parts[0], ENTRIES_PER_PAGE),
            of(&parts[1], ITEMS_PER_PAGE),
        );
        assert!((entries / items - 1.0).abs() < 1e-4, "an entry an item");
        assert!((items / 5e8 - 1.0).abs() < 0.12, "{items}");
        assert_eq!(program.threads, 4);
    }

    #[test]
    fn items_of_the_middle_are_the_hottest_and_the_index_has_no_order() {
        let workload = Workload::named("memtier", &Sizes::fast_free(16 << 20)).expect("known");
        let program = &workload.programs[0];
        let index = program.phases[0].parts[0].pages.end;
        let shares = program.phases[0].shares(program, 1);
        let centre = (index + program.pages) / 2;
        let deviation = (program.pages - index) / 6;
        let at = |page: u32| shares.of(page) / shares.of(centre);
        // Three numbers: 3/4 in the middle, 1/2 one deviation from it.
        assert!((at(centre - deviation) - 2.0 / 3.0).abs() < 0.01);
        assert!((at(centre + deviation) - 2.0 / 3.0).abs() < 0.01);
        assert!(at(program.pages - 1) < 0.001);
        assert!((shares.of(0) - shares.of(index - 1)).abs() < 1e-12);
    }
}
