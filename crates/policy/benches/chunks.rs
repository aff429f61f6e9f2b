// SPDX-License-Identifier: MIT OR Apache-2.0
//! One pass of accessed bits over a terabyte in pages of 4 KiB, as each policy that reads them takes it in: 524,288
//! chunks, each told twice, at an early rung with a tenth of its pages fresh and at the last with
//! half of them accessed (goal: under 1 s of one core). Needs 3 GB of memory.
//!
//! Times are processor time. The first pass makes the metadata and is told apart. `cargo bench -p terrace-policy --bench chunks`,
//! with names of policies behind `--` for those alone.

mod common;

use std::time::Duration;

use common::FAST;
use common::SLOW;
use common::counter;
use common::processor_time;
use common::read_tiers;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_policy::Capabilities;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::PRESETS;
use terrace_policy::kit::Random;

const CHUNKS: u64 = 1 << 19;
const PASS: Nanos = Nanos::from_secs(8);
const PASSES: usize = 3;

/// Sets of pages, of which the first have about a tenth and the second half, and are supersets of the first.
fn patterns() -> Vec<(PageBits, PageBits)> {
    let mut random = Random::new(1);
    let mut pattern = || {
        let (mut early, mut late) = (PageBits::NONE, PageBits::NONE);
        for page in 0..CHUNK_PAGES {
            let share = random.below(10);
            if share < 1 {
                early.set(page);
            }
            if share < 5 {
                late.set(page);
            }
        }
        (early, late)
    };
    (0..64).map(|_| pattern()).collect()
}

/// All chunks, the first quarter on the fast node: first at the early rung, then at the last.
fn pass(engine: &mut Engine, begin: Nanos, patterns: &[(PageBits, PageBits)]) {
    let rung = Nanos::from_millis(4);
    for last in [false, true] {
        for (chunk, (early, late)) in (0..CHUNKS).zip(patterns.iter().cycle()) {
            let node = if chunk < CHUNKS / 4 { FAST } else { SLOW };
            let reading = ChunkReading {
                pid: Pid(1),
                parts: 1,
                start: Addr(chunk * CHUNK_BYTES),
                ran: None,
                since: if last { rung } else { Nanos::ZERO },
                until: if last { PASS } else { rung },
                last,
                huge: false,
                present: PageBits::ALL,
                accessed: if last { *late } else { *early },
                fresh: if last { late.without(early) } else { *early },
                nodes: &[(node, PageBits::ALL)],
            };
            engine.accessed(begin + reading.until, &reading);
        }
    }
    let pages = CHUNKS * CHUNK_PAGES as u64;
    let (pid, busy, lost) = (Pid(1), Nanos::from_millis(100), Nanos::ZERO);
    engine.observe(
        begin + PASS,
        &Event::Watched {
            pid,
            parts: 1,
            pages,
            busy,
            lost,
        },
    );
}

fn main() {
    let patterns = patterns();
    let names: Vec<String> = std::env::args().skip(1).collect();
    let names: Vec<_> = names
        .iter()
        .filter(|name| !name.starts_with("--"))
        .collect();
    for preset in PRESETS {
        let wanted = names.is_empty() || names.iter().any(|name| *name == preset.name);
        if !wanted || !preset.needs.contains(Capabilities::ACCESSED_BITS) {
            continue;
        }
        let mut engine =
            match terrace_policy::by_name(preset.name, &read_tiers(CHUNKS * CHUNK_BYTES)) {
                Ok(policy) => Engine::new(policy),
                Err(why) => {
                    println!("{}: not on this machine: {why}", preset.name);
                    continue;
                }
            };
        let mut took: Vec<Duration> = Vec::new();
        let mut begin = Nanos::from_secs(1);
        for _ in 0..PASSES {
            let begun = processor_time();
            pass(&mut engine, begin, &patterns);
            took.push(processor_time() - begun);
            begin = begin + PASS;
        }
        let best = took[1..].iter().min().expect("two passes");
        let pages = CHUNKS as f64 * CHUNK_PAGES as f64;
        println!(
            "{}: a pass over 1 TiB takes {best:.2?} ({:.2} ns a page), the first {:.2?}; {:.2} bytes a page",
            preset.name,
            best.as_secs_f64() * 1e9 / pages,
            took[0],
            counter(&engine, "metadata_bytes") as f64 / pages,
        );
    }
}
