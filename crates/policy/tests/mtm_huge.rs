// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM where huge pages and base pages lie side by side and the policy knows of the pages it sampled and of no
//! others.
#![expect(clippy::cast_precision_loss, reason = "small numbers of a test")]

#[path = "mtm/machine.rs"]
mod machine;

use machine::BASE;
use machine::Chunk;
use machine::Machine;
use machine::PID;
use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Range;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::kit::Random;
use terrace_policy::presets::mtm::Params;
use terrace_policy::presets::mtm::params::Spacing;

const PAGE: u64 = 4096;
const CHUNKS: u64 = 40;
const PAGES: u64 = CHUNKS * 512;

#[derive(Debug, Clone)]
enum Step {
    Map(u64, u64),
    Unmap(u64, u64),
    /// By a seed.
    Heat(u64),
    /// Bytes that others have of the last 2 MiB of each node.
    Others(u64),
    Interval,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || (0..PAGES, 1..PAGES / 4);
    let step = prop_oneof![
        1 => span().prop_map(|(at, pages)| Step::Map(at, pages)),
        1 => span().prop_map(|(at, pages)| Step::Unmap(at, pages)),
        2 => any::<u64>().prop_map(Step::Heat),
        2 => (1_u64..512).prop_map(|pages| Step::Others(pages * PAGE)),
        6 => Just(Step::Interval),
    ];
    prop::collection::vec(step, 1..40)
}

/// Neighbours are alike more often than not, so that regions grow across huge pages and base pages.
fn heat(chunks: &mut [Chunk], seed: u64) {
    let mut random = Random::new(seed);
    let mut heat = 0.0;
    for chunk in chunks {
        if random.below(6) == 0 {
            heat = if random.below(2) == 0 { 0.0 } else { 100.0 };
        }
        chunk.heat = heat;
    }
}

fn range(at: u64, pages: u64) -> Range {
    Range {
        start: Addr(BASE + at * PAGE),
        end: Addr(BASE + (at + pages).min(PAGES) * PAGE),
    }
}

/// What is mapped anew, and what is left of a huge page of which a part is gone, is base pages.
fn unmap(machine: &mut Machine, range: Range) {
    let chunks = (range.start.0 - BASE) / CHUNK_BYTES..(range.end.0 - BASE).div_ceil(CHUNK_BYTES);
    for chunk in chunks {
        machine.chunks[usize::try_from(chunk).expect("few")].huge = false;
    }
    let event = Event::Unmapped { pid: PID, range };
    machine.policy.observe(machine.now, &event);
}

fn check(machine: &Machine) -> Result<(), TestCaseError> {
    for (_, region) in machine.policy.regions().iter() {
        for edge in [region.start, region.end] {
            let chunk = machine
                .chunks
                .get(usize::try_from((edge - BASE) / CHUNK_BYTES).expect("few"));
            let cut = chunk.is_some_and(|chunk| chunk.huge) && !edge.is_multiple_of(CHUNK_BYTES);
            prop_assert!(!cut, "a huge page is cut at {edge:#x}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// The machine refuses orders for parts of a huge page.
    #[test]
    fn a_huge_page_is_neither_cut_nor_ordered_in_parts(
        huge in any::<u64>(),
        scan in prop::sample::select(vec![80_u64, 2_500_000, 12_500_000]),
        promote_bytes in prop::sample::select(vec![CHUNK_BYTES / 2 + PAGE, 3 * CHUNK_BYTES - PAGE, 200_000_000]),
        steps in steps(),
    ) {
        let chunk = |index: u64| Chunk {
            node: NodeId(u16::from(index % 8 > 1)),
            heat: 1.0,
            huge: huge >> index & 1 == 1,
        };
        let mut chunks: Vec<Chunk> = (0..CHUNKS).map(chunk).collect();
        heat(&mut chunks, huge);
        let params = Params {
            promote_bytes,
            scan_spacing: Spacing::Fixed(Nanos::from_millis(50)),
            ..Params::default()
        };
        let mut machine = Machine::new(params, &[14, 20, 100], chunks);
        machine.scan = Nanos(scan);
        machine.intervals(1);
        for step in &steps {
            match step {
                Step::Map(at, pages) => {
                    let event = Event::Mapped { pid: PID, range: range(*at, *pages) };
                    machine.policy.observe(machine.now, &event);
                }
                Step::Unmap(at, pages) => unmap(&mut machine, range(*at, *pages)),
                Step::Heat(seed) => heat(&mut machine.chunks, *seed),
                Step::Others(bytes) => machine.others = *bytes,
                Step::Interval => machine.intervals(1),
            }
            check(&machine)?;
        }
    }
}
