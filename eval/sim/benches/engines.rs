// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast the two engines are on one core: visits a second of the exact one for gups (goal 50
//! million), simulated seconds a second of the rate engine with 1 TiB in base pages (goal: above 1).

use std::path::Path;
use std::time::Duration;

use criterion::Criterion;
use criterion::Throughput;
use criterion::criterion_group;
use criterion::criterion_main;
use terrace_machine_spec::Machine;
use terrace_sim::EngineKind;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

fn setup(size: &str, system: &str, engine: EngineKind) -> Setup {
    let text = include_str!("../../../machines/optane-4tier.toml");
    let machine = Machine::parse(text, Path::new("optane-4tier.toml")).expect("it is checked");
    let sizes = Sizes::paper()
        .with(&format!("working_set={size}"))
        .and_then(|sizes| {
            sizes.with(if size == "300MiB" {
                "hot=40MiB"
            } else {
                "hot=4GiB"
            })
        })
        .expect("settings");
    let workload = Workload::named("gups", &sizes).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.engine = engine;
    setup
}

fn exact(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sim/exact");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(10));
    for (name, size, cache) in [
        ("gups 300 MiB", "300MiB", false),
        ("gups 16 GiB", "16GiB", false),
        ("gups 300 MiB with cache", "300MiB", true),
    ] {
        let mut setup = setup(size, "none", EngineKind::Exact);
        setup.cache = cache;
        setup.seconds = 0.3;
        let outcome = terrace_sim::run(&setup, &mut |_| {}).expect("fine");
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        let visits = outcome.programs[0].visits as u64;
        group.throughput(Throughput::Elements(visits));
        group.bench_function(name, |bencher| {
            bencher.iter(|| terrace_sim::run(&setup, &mut |_| {}).expect("fine"));
        });
    }
    group.finish();
}

fn rate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sim/rate");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(10));
    // An element is a simulated second.
    for (name, size, seconds) in [
        ("nomad 16 GiB", "16GiB", 20.0),
        ("nomad 1 TiB", "1TiB", 10.0),
    ] {
        let mut setup = setup(size, "nomad", EngineKind::Rate);
        setup.seconds = seconds;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count"
        )]
        group.throughput(Throughput::Elements(seconds as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| terrace_sim::run(&setup, &mut |_| {}).expect("fine"));
        });
    }
    group.finish();
}

criterion_group!(benches, exact, rate);
criterion_main!(benches);
