// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad with a terabyte known in pages of 4 KiB: what its metadata takes (goal: 8 bytes a page; here a
//! quarter is on the fast node, whose lists take 9 of each), and how long a tick takes (goal: 10 ms when nothing changed). Needs 2.2 GB of memory.

mod common;

use std::time::Duration;
use std::time::Instant;

use common::Bench;
use common::FAST;
use common::SLOW;
use common::counter;
use criterion::Criterion;
use criterion::criterion_group;
use criterion::criterion_main;
use terrace_core::Nanos;
use terrace_policy::Verdict;

/// Pages of 4 KiB in a terabyte.
const TERABYTE: u64 = 1 << 28;

fn tick(c: &mut Criterion) {
    let fast = TERABYTE / 4;
    let mut bench = Bench::new(TERABYTE, fast, SLOW);
    let quarter = usize::try_from(fast).expect("a length in memory");
    bench.machine.node[..quarter].fill(FAST);
    let begun = Instant::now();
    bench.pass(false);
    let bytes = counter(&bench.engine, "metadata_bytes");
    println!(
        "nomad/metadata: {:.3} bytes a page ({TERABYTE} pages of 4 KiB, {bytes} bytes); made in {:.1} s",
        bytes as f64 / TERABYTE as f64,
        begun.elapsed().as_secs_f64()
    );
    bench.machine.free = fast;
    bench.sample();
    let mut group = c.benchmark_group("nomad/tick_268m_pages");
    group
        .sample_size(10)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    group.bench_function("nothing_changed", |b| {
        b.iter(|| {
            bench.now = bench.now + Nanos::from_millis(200);
            bench.engine.pump(bench.now, &mut bench.machine)
        });
    });
    // The node is short of memory and nothing is moved: each tick takes from the lists.
    let mut lost = Vec::new();
    bench.machine.free = 0;
    bench.sample();
    group.bench_function("short_of_memory", |b| {
        b.iter_custom(|times| {
            let mut spent = Duration::ZERO;
            for _ in 0..times {
                bench.now = bench.now + Nanos::from_secs(60);
                let begun = Instant::now();
                bench.engine.pump(bench.now, &mut bench.machine);
                spent += begun.elapsed();
                lost.append(&mut bench.machine.orders);
                for (page, migration) in lost.drain(..) {
                    let event = common::ended(page, migration, Verdict::Busy);
                    bench.engine.observe(bench.now, &event);
                }
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, tick);
criterion_main!(benches);
