// SPDX-License-Identifier: MIT OR Apache-2.0
//! What many small programs take the default in a pass, and of memory: 256 of 4 MiB each, whose pages differ in heat by two
//! decades, a sixteenth of all in fast memory, read after waits that double from 1 ms to 1 s. Nothing moves.
//!
//! Times are processor time, a program and pass, by pass: the first ones go by first waits, from the ninth on it is known what pages do
//! over eight. `cargo bench -p terrace-policy --bench programs`.

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
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::Pid;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::kit::Random;

const PROGRAMS: u32 = 256;
const CHUNKS: u64 = 2;
const PASS: Nanos = Nanos::from_secs(1);
const FIRST: Nanos = Nanos::from_millis(1);
const PASSES: u64 = 24;

/// Uniform in 0 to 1, exclusive.
fn draw(random: &mut Random) -> f64 {
    ((random.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
}

/// How a chunk is read in one pass: each page is visited at its own rate.
fn read((pid, chunk): (Pid, u64), random: &mut Random) -> Vec<ChunkReading<'static>> {
    let waits: Vec<f64> = (0..CHUNK_PAGES)
        .map(|page| -draw(random).ln() / (0.1 * 100_f64.powf(page as f64 / CHUNK_PAGES as f64)))
        .collect();
    let nodes: &[(NodeId, PageBits)] = if chunk == 0 && pid.0 % 8 == 0 {
        &[(FAST, PageBits::ALL)]
    } else {
        &[(SLOW, PageBits::ALL)]
    };
    let mut readings = Vec::new();
    let (mut since, mut until, mut seen) = (Nanos::ZERO, FIRST, PageBits::NONE);
    loop {
        let last = until >= PASS;
        let mut fresh = PageBits::NONE;
        for (page, wait) in waits.iter().enumerate() {
            if (since.as_secs_f64()..until.as_secs_f64()).contains(wait) {
                fresh.set(page);
            }
        }
        seen = seen.or(&fresh);
        readings.push(ChunkReading {
            pid,
            parts: 1,
            start: Addr(chunk * CHUNK_BYTES),
            ran: None,
            since,
            until,
            last,
            huge: false,
            present: PageBits::ALL,
            accessed: seen,
            fresh,
            nodes,
        });
        if last {
            return readings;
        }
        (since, until) = (until, Nanos(until.0 * 2).min(PASS));
    }
}

/// One pass of all, at its begin.
fn pass(engine: &mut Engine, begin: Nanos, readings: &[ChunkReading<'_>]) {
    for reading in readings {
        engine.accessed(begin + reading.until, reading);
    }
    for pid in (1..=PROGRAMS).map(Pid) {
        let watched = Event::Watched {
            pid,
            parts: 1,
            pages: CHUNKS * CHUNK_PAGES as u64,
            busy: Nanos(1),
            lost: Nanos::ZERO,
        };
        engine.observe(begin + PASS, &watched);
    }
}

fn main() {
    let policy = terrace_policy::by_name("adaptive", &read_tiers(1 << 30)).expect("the default");
    let mut engine = Engine::new(policy);
    for (node, free_bytes) in [(FAST, 0), (SLOW, 1 << 30)] {
        let memory = NodeMemory {
            free_bytes,
            low_bytes: 0,
            high_bytes: 0,
            total_bytes: 1 << 30,
        };
        engine.observe(Nanos::ZERO, &Event::Memory { node, memory });
    }
    let mut random = Random::new(1);
    let programs = f64::from(PROGRAMS);
    for number in 0..PASSES {
        let begin = Nanos(PASS.0 * (number + 1) * 2);
        let pages = (1..=PROGRAMS).flat_map(|pid| (0..CHUNKS).map(move |chunk| (Pid(pid), chunk)));
        let mut readings: Vec<_> = pages.flat_map(|page| read(page, &mut random)).collect();
        readings.sort_by_key(|reading| reading.until);
        let begun = processor_time();
        pass(&mut engine, begin, &readings);
        let read = processor_time() - begun;
        engine.tick(begin + PASS + PASS);
        let all = processor_time() - begun;
        let us = |time: Duration| time.as_secs_f64() * 1e6 / programs;
        println!(
            "pass {number}: {:.0} us a program, {:.0} of them the plan",
            us(all),
            us(all - read)
        );
    }
    println!(
        "{:.0} KiB are known of a program",
        counter(&engine, "metadata_bytes") as f64 / programs / 1024.0
    );
}
