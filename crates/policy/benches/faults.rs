// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hint faults that Nomad takes in on one core, through the engine: goal 10 million a second.
//!
//! Faults are a hundred nanoseconds of the policy's time apart: ten million a second. Orders:
//! * by address, and at random, with the engine pumped after every [`PUMP`] faults;
//! * as the supervisor feeds it: faults happen at random; what the ring holds when the tracker looks is
//!   sorted by address (`crates/track/src/hint_faults.rs`) and told with one time, then the engine is
//!   pumped. The tracker is woken by [`WAKE`] records, so a batch has as many at least, and [`MOST`] at
//!   most where records come as fast as they are taken in. Sorting is not in the figure.

mod common;

use std::hint::black_box;
use std::time::Duration;
use std::time::Instant;

use common::Bench;
use common::FAST;
use common::SLOW;
use common::page;
use criterion::BenchmarkId;
use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use terrace_core::Nanos;
use terrace_policy::Event;

const MILLION: u64 = 1 << 20;
const PUMP: usize = 256;
const STEP: Nanos = Nanos(100);
/// Records that wake the tracker: 256 KiB of them.
const WAKE: usize = 4096;
/// Faults that it puts in order at once.
const MOST: usize = 1 << 16;

/// Pages in the order of their faults, and after how many the engine is pumped.
struct Order {
    pages: Vec<u32>,
    pump: usize,
    /// Time goes on from batch to batch only.
    batched: bool,
}

/// Takes in a hint fault of each page.
fn faults(bench: &mut Bench, order: &Order, idle: Nanos) {
    for batch in order.pages.chunks(order.pump) {
        if order.batched {
            bench.now = bench.now + Nanos(STEP.0 * batch.len() as u64);
        }
        for n in batch {
            if !order.batched {
                bench.now = bench.now + STEP;
            }
            let event = Event::HintFault {
                cpu_node: None,
                page: page(u64::from(*n)),
                node: bench.machine.node[*n as usize],
                write: n % 4 == 0,
                idle: Some(idle),
            };
            bench.engine.observe(bench.now, &event);
        }
        bench.pump();
    }
}

fn in_order(pages: u64) -> Vec<u32> {
    (0..u32::try_from(pages).expect("below 2^32")).collect()
}

/// A fixed shuffle.
fn shuffled(pages: u64) -> Vec<u32> {
    let mut order = in_order(pages);
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for n in (1..order.len()).rev() {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        order.swap(n, usize::try_from(x % (n as u64 + 1)).expect("at most n"));
    }
    order
}

/// At random, but those of a batch by address.
fn batched(pages: u64, batch: usize) -> Order {
    let mut pages = shuffled(pages);
    for batch in pages.chunks_mut(batch) {
        batch.sort_unstable();
    }
    Order {
        pages,
        pump: batch,
        batched: true,
    }
}

/// Told one by one.
const fn single(pages: Vec<u32>) -> Order {
    Order {
        pages,
        pump: PUMP,
        batched: false,
    }
}

/// An eighth fits: the fast node is full, the rest wait and compete.
fn contended(order: &Order, idle: Nanos) -> Bench {
    let mut bench = Bench::new(MILLION, MILLION / 8, SLOW);
    for _ in 0..8 {
        faults(&mut bench, order, idle);
        bench.pass(true);
        bench.sample();
    }
    bench
}

fn fault_rates(c: &mut Criterion) {
    let mut group = c.benchmark_group("nomad/hint_faults");
    group
        .throughput(Throughput::Elements(MILLION))
        .sample_size(10)
        .warm_up_time(Duration::from_secs(2))
        .measurement_time(Duration::from_secs(4));
    let idle = Nanos::from_millis(900);
    for (name, order) in [
        ("address_order", single(in_order(MILLION))),
        ("tracker_batches_65536", batched(MILLION, MOST)),
        ("tracker_batches_4096", batched(MILLION, WAKE)),
        ("random_order", single(shuffled(MILLION))),
    ] {
        let mut full = None;
        group.bench_function(BenchmarkId::new("slow_full", name), |b| {
            let bench = full.get_or_insert_with(|| contended(&order, idle));
            b.iter(|| faults(bench, &order, idle));
        });
        let mut fast = None;
        group.bench_function(BenchmarkId::new("fast_node", name), |b| {
            let bench = fast.get_or_insert_with(|| {
                let mut bench = Bench::new(MILLION, MILLION * 2, FAST);
                faults(&mut bench, &order, idle);
                bench
            });
            b.iter(|| faults(bench, &order, idle));
        });
        // From nothing known to all promoted: a fault, a reading, a migration and its end for each page.
        group.bench_function(BenchmarkId::new("promoting", name), |b| {
            b.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                for _ in 0..times {
                    let mut bench = Bench::new(MILLION, MILLION * 2, SLOW);
                    let begun = Instant::now();
                    faults(&mut bench, &order, idle);
                    bench.pass(true);
                    while bench.machine.migrations < MILLION {
                        bench.now = bench.now + Nanos::from_millis(1);
                        bench.pump();
                    }
                    spent += begun.elapsed();
                    black_box(&bench.machine.migrations);
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fault_rates);
criterion_main!(benches);
