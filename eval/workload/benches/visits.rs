// SPDX-License-Identifier: MIT OR Apache-2.0
//! Visits a second of one thread, for each kind of distribution: `cargo bench -p terrace-workload`.
//!
//! The promise is 100 million a second for `gups`; the others are what they are.

use std::hint::black_box;

use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use terrace_workload::Sizes;
use terrace_workload::Visits;
use terrace_workload::Workload;

const BATCH: u64 = 100_000;

fn visits(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("visits");
    group.throughput(Throughput::Elements(BATCH));
    group.sample_size(20);
    for name in [
        "gups",
        "gups-uniform",
        "gups-writeskew",
        "zipf",
        "pmbench",
        "ycsb-a",
        "ycsb-d",
        "ycsb-e",
        "bc",
        "tpcc",
        "scan",
    ] {
        // 192 GiB free: HeMem's DRAM, so that sizes are real.
        let workload = Workload::named(name, &Sizes::fast_free(192 << 30)).expect(name);
        let mut visits = Visits::new(&workload.programs[0], 1);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut sum = 0u64;
                for _ in 0..BATCH {
                    let visit = visits.visit(0);
                    sum = sum
                        .wrapping_add(u64::from(visit.page))
                        .wrapping_add(u64::from(visit.first_line) + u64::from(visit.write));
                }
                black_box(sum)
            });
        });
    }
    group.finish();
}

/// Dense shares, pages a second.
fn shares(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("shares");
    group.sample_size(10);
    for name in ["gups", "zipf", "ycsb-a", "tpcc", "bc"] {
        let workload = Workload::named(name, &Sizes::fast_free(1 << 30)).expect(name);
        let program = &workload.programs[0];
        group.throughput(Throughput::Elements(u64::from(program.pages)));
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(program.phases[0].shares(program, 1)));
        });
    }
    group.finish();
}

criterion_group!(benches, visits, shares);
criterion_main!(benches);
