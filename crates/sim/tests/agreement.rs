// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two engines of time agree: within 3 % on throughput and 2 points on fast accesses.

use std::path::Path;

use terrace_config::Machine;
use terrace_sim::EngineKind;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const FREE: u64 = 64 << 20;

fn setup(workload: &str, system: &str) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let sizes = Sizes::fast_free(FREE);
    let workload = Workload::named(workload, &sizes).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.free.insert(0, FREE);
    setup.seconds = 6.0;
    // A cache that does not hold all of a small machine's memory.
    setup.machine.sockets[0].llc.bytes = 4 << 20;
    setup
}

fn run(setup: &Setup, engine: EngineKind) -> Outcome {
    let mut setup = setup.clone();
    setup.engine = engine;
    terrace_sim::run(&setup, &mut |_| {}).expect("it can be simulated")
}

fn agree(setup: &Setup) {
    let (exact, rate) = (run(setup, EngineKind::Exact), run(setup, EngineKind::Rate));
    let of = |outcome: &Outcome, name| outcome.metric(name).expect("measured");
    let what = format!("{} {}", setup.workload.name, setup.system);
    for (name, tolerance) in [("ops_per_s", 0.03)] {
        let (a, b) = (of(&exact, name), of(&rate, name));
        println!(
            "{what} {name}: exact {a:.0} rate {b:.0} {:+.2} %",
            (b / a - 1.0) * 100.0
        );
        assert!(
            (b / a - 1.0).abs() < tolerance,
            "{what} {name}: exact {a}, rate {b}"
        );
    }
    let (a, b) = (
        of(&exact, "fast_access_ratio"),
        of(&rate, "fast_access_ratio"),
    );
    println!(
        "{what} fast: exact {a:.4} rate {b:.4}; promoted {} {} demoted {} {} aborted {} {} faults {} {}",
        exact.stats.promoted_pages,
        rate.stats.promoted_pages,
        exact.stats.demoted_pages,
        rate.stats.demoted_pages,
        exact.stats.tpm_aborted,
        rate.stats.tpm_aborted,
        exact.stats.hint_faults,
        rate.stats.hint_faults,
    );
    assert!(
        (a - b).abs() < 0.02,
        "{what} fast accesses: exact {a}, rate {b}"
    );
}

#[test]
fn without_migration() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "none"));
    }
}

#[test]
fn oracle() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "oracle"));
    }
}

#[test]
fn nomad() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "nomad"));
    }
}

#[test]
fn kernel_tiering() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "kernel-tiering"));
    }
}

#[test]
fn tpp() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "tpp"));
    }
}

#[test]
fn memory_mode() {
    for workload in ["gups", "nomad-small-read"] {
        let mut setup = setup(workload, "memory-mode");
        // The played cache fills first: the engines agree on what comes then.
        setup.seconds = 24.0;
        agree(&setup);
    }
}
