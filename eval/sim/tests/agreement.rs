// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two engines of time agree: within 3 % on throughput and 2 points on fast accesses.

use std::path::Path;

use terrace_core::PageSize;
use terrace_machine_spec::Machine;
use terrace_sim::EngineKind;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const FREE: u64 = 32 << 20;

fn setup(workload: &str, system: &str) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let sizes = Sizes::fast_free(FREE);
    let workload = Workload::named(workload, &sizes).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.free.insert(0, FREE);
    setup.seconds = 3.0;
    // A cache that does not hold all of a small machine's memory.
    setup.machine.sockets[0].llc.bytes = 2 << 20;
    setup
}

fn run(setup: &Setup, engine: EngineKind) -> Outcome {
    let mut setup = setup.clone();
    setup.engine = engine;
    terrace_sim::run(&setup, &mut |_| {}).expect("it can be simulated")
}

fn agree(setup: &Setup) -> Outcome {
    let (exact, rate) = (run(setup, EngineKind::Exact), run(setup, EngineKind::Rate));
    let of = |outcome: &Outcome, name| outcome.metric(name).expect("measured");
    let what = format!("{} {}", setup.workload.name, setup.system);
    let (a, b) = (of(&exact, "ops_per_s"), of(&rate, "ops_per_s"));
    assert!(
        (b / a - 1.0).abs() < 0.03,
        "{what} ops_per_s: exact {a}, rate {b}"
    );
    let (a, b) = (
        of(&exact, "fast_access_ratio"),
        of(&rate, "fast_access_ratio"),
    );
    assert!(
        (a - b).abs() < 0.02,
        "{what} fast accesses: exact {a}, rate {b}"
    );
    rate
}

#[test]
fn without_migration() {
    for workload in ["gups", "nomad-medium-write"] {
        agree(&setup(workload, "none"));
    }
}

#[test]
fn oracle() {
    for workload in ["nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "oracle"));
    }
}

#[test]
fn nomad() {
    for workload in ["gups", "nomad-small-read", "nomad-medium-write"] {
        agree(&setup(workload, "nomad"));
    }
}

/// HeMem, with what memory is mapped with and what is tracked larger, smaller or equal.
#[test]
fn hemem() {
    let pages = [
        (PageSize::Base4K, "4KiB"),
        (PageSize::Base4K, "2MiB"),
        (PageSize::Huge2M, "2MiB"),
    ];
    for (mapped, tracked) in pages {
        for workload in ["gups", "gups-writeskew"] {
            let mut setup = setup(workload, "hemem");
            setup.page_size = mapped;
            setup.params.insert("page_size".into(), tracked.into());
            // As many samples as a machine of many processors has.
            setup.params.insert("sample_period".into(), 200.into());
            setup
                .params
                .insert("max_migration_rate".into(), "100MB".into());
            setup.seconds = 2.0;
            let outcome = agree(&setup);
            let stats = &outcome.stats;
            assert!(
                stats.samples > 10_000 && stats.promoted_bytes > 4 << 20,
                "{stats:?}"
            );
        }
    }
}

/// Copies take long and many threads write: as many writes wait for them.
#[test]
fn as_many_writes_wait() {
    let mut setup = setup("gups", "hemem");
    setup.machine.sockets[0].cpus = 32;
    setup.workload.programs[0].threads = 16;
    setup.costs.transaction_fixed_ns = 200_000.0;
    setup.cache = false;
    setup.params.insert("page_size".into(), "4KiB".into());
    setup.params.insert("sample_period".into(), 500.into());
    setup.seconds = 1.0;
    let waited = |engine| {
        let outcome = run(&setup, engine);
        assert!(outcome.stats.promoted_pages > 1_000, "{:?}", outcome.stats);
        outcome.metric("writes_waited_share").expect("counted")
    };
    let (a, b) = (waited(EngineKind::Exact), waited(EngineKind::Rate));
    assert!(
        a > 1e-6 && a / b < 1.3 && b / a < 1.3,
        "exact {a}, rate {b}"
    );
}

/// What is sampled faster than it can be read is lost, in both engines alike.
#[test]
fn as_many_samples_are_lost() {
    let mut setup = setup("gups-uniform", "hemem");
    setup.params.insert("sample_period".into(), 20.into());
    setup.costs.pmu_rate_max = 20_000.0;
    setup.seconds = 1.0;
    let lost = |engine| {
        let outcome = run(&setup, engine);
        assert!(outcome.stats.samples < 30_000, "{}", outcome.stats.samples);
        outcome.metric("samples_lost_share").expect("counted")
    };
    let (a, b) = (lost(EngineKind::Exact), lost(EngineKind::Rate));
    assert!(a > 0.5 && (a - b).abs() < 0.02, "exact {a}, rate {b}");
}

#[test]
fn kernel_tiering() {
    for workload in ["gups", "nomad-medium-write"] {
        agree(&setup(workload, "kernel-tiering"));
    }
}

#[test]
fn tpp() {
    agree(&setup("nomad-medium-write", "tpp"));
}

#[test]
fn memory_mode() {
    let mut setup = setup("nomad-small-read", "memory-mode");
    // The played cache fills first: the engines agree on what comes then.
    setup.seconds = 20.0;
    agree(&setup);
}

/// More threads than the slow node's bandwidth can serve: both engines queue.
#[test]
fn under_contention() {
    for system in ["none", "nomad", "kernel-tiering"] {
        let mut setup = setup("gups", system);
        setup.machine.sockets[0].cpus = 96;
        setup.workload.programs[0].threads = 96;
        setup.seconds = 0.6;
        agree(&setup);
    }
}

/// Pages of 4 KiB and of 2 MiB in one program.
#[test]
fn mixed_page_sizes() {
    let mut setup = setup("gups", "nomad");
    let program = &setup.workload.programs[0];
    let huge = (program.pages / 4..program.pages * 3 / 4, PageSize::Huge2M);
    setup.mappings.insert(program.name.clone(), vec![huge]);
    // Room for both: what finds none waits, and what is behind it.
    setup.free.insert(0, 2 * FREE);
    let outcome = agree(&setup);
    let stats = &outcome.stats;
    assert!(
        stats.promoted_bytes > stats.promoted_pages * 4096,
        "2 MiB pages were promoted"
    );
    assert!(
        stats.promoted_bytes < stats.promoted_pages << 21,
        "4 KiB pages were promoted"
    );
}

/// Most armed pages are not touched before the next pass finds them armed still: what was drawn is
/// drawn again from where the last draw ended, and as many faults come as when visits are played.
#[test]
fn cold_pages_fault_as_often_when_drawn_again() {
    let mut setup = setup("gups-uniform", "autonuma");
    setup.workload.programs[0].phases[0].think_ns = 40_000.0;
    setup.cache = false;
    setup.seconds = 30.0;
    let (exact, rate) = (
        run(&setup, EngineKind::Exact),
        run(&setup, EngineKind::Rate),
    );
    let (a, b) = (exact.stats.hint_faults, rate.stats.hint_faults);
    assert!(a > 10_000 && a.abs_diff(b) * 50 < a, "exact {a}, rate {b}");
}

/// Long copies, many of which a write aborts.
#[test]
fn as_many_transactions_abort() {
    let mut setup = setup("gups", "nomad");
    setup.machine.sockets[0].cpus = 32;
    setup.workload.programs[0].threads = 16;
    setup.costs.transaction_fixed_ns = 300_000.0;
    setup.cache = false;
    // Passes after which candidates are promoted within the run.
    setup
        .params
        .insert("accessed_pass".to_owned(), "100ms".into());
    setup.seconds = 3.0;
    let (exact, rate) = (
        run(&setup, EngineKind::Exact),
        run(&setup, EngineKind::Rate),
    );
    let share = |o: &Outcome| {
        let (aborted, committed) = (o.stats.tpm_aborted, o.stats.tpm_committed);
        assert!(aborted > 500, "{aborted} aborted, {committed} committed");
        o.metric("tpm_aborted").expect("counted") / (aborted + committed) as f64
    };
    let (a, b) = (share(&exact), share(&rate));
    assert!((a - b).abs() < 0.05, "exact {a}, rate {b}");
}

/// Several programs on two sockets.
#[test]
fn programs_on_two_sockets() {
    let text = include_str!("../../../machines/optane-4tier.toml");
    let mut setup = setup("gups", "none");
    setup.machine = Machine::parse(text, Path::new("optane-4tier.toml")).expect("checked");
    let mut second = setup.workload.programs[0].clone();
    second.name = "second".to_owned();
    setup.workload.programs.push(second);
    setup.spread = true;
    setup.seconds = 2.0;
    agree(&setup);
}

/// Lone lines from persistent memory, whose blocks are four: both engines count what they take of its bandwidth.
#[test]
fn on_persistent_memory() {
    let text = include_str!("../../../machines/hemem.toml");
    let with = |block| {
        let mut setup = setup("gups-uniform", "none");
        setup.machine = Machine::parse(text, Path::new("hemem.toml")).expect("checked");
        setup.machine.nodes[1].block = block;
        setup.machine.sockets[0].llc.bytes = 2 << 20;
        setup.workload.programs[0].threads = 24;
        setup.seconds = 0.6;
        agree(&setup).metric("ops_per_s").expect("measured")
    };
    let (lines, blocks) = (with(64), with(256));
    assert!(blocks < lines * 0.5, "{blocks} {lines}");
}
