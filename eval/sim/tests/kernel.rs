// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's systems cost and do on the simulated machine: faults and price of a promotion, arming on
//! demotion, pauses of the scanner.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_sim::EngineKind;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const ENGINES: [EngineKind; 2] = [EngineKind::Exact, EngineKind::Rate];

fn setup(workload: &str, system: &str) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named(workload, &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.free.insert(0, 16 << 20);
    setup.workload.programs[0].threads = 1;
    setup.cache = false;
    setup.seconds = 4.0;
    setup
}

fn run(setup: &Setup) -> Outcome {
    terrace_sim::run(setup, &mut |_| {}).expect("it can be simulated")
}

fn counter(outcome: &Outcome, name: &str) -> u64 {
    let mut counters = outcome.policy_counters.iter();
    counters.find(|(of, _)| of == name).expect("it counts it").1
}

/// One thread: nobody else is to be told by a shootdown. A copy is 4 KiB at 20 GB/s or so, and the kernel's own
/// work is 2 us.
#[test]
fn a_promotion_costs_its_thread_the_copy_and_two_microseconds() {
    for system in ["tpp", "kernel-tiering", "autonuma"] {
        for engine in ENGINES {
            let mut setup = setup("gups", system);
            setup.engine = engine;
            // All stay: only what was refused for want of memory would be cheaper.
            setup.free.insert(0, 64 << 20);
            let outcome = run(&setup);
            let promoted = outcome.metric("promoted_pages").expect("counted");
            assert!(promoted > 1_000.0, "{system} {engine:?}: {promoted}");
            let each = outcome.migration_ns / promoted;
            assert!(
                (2_100.0..2_600.0).contains(&each),
                "{system} {engine:?}: {each}"
            );
        }
    }
}

/// As long as all pages are inactive each candidate has had its 15 faults, and each of them has cost.
#[test]
fn tpp_takes_fifteen_faults_a_promotion_and_pays_for_each() {
    for engine in ENGINES {
        let mut setup = setup("gups", "tpp");
        setup.engine = engine;
        setup.free.insert(0, 64 << 20);
        let outcome = run(&setup);
        let (faults, candidates) = (outcome.stats.hint_faults, counter(&outcome, "candidates"));
        assert!(candidates > 1_000);
        assert_eq!(faults, 15 * candidates, "{engine:?}");
        #[expect(clippy::cast_precision_loss, reason = "a count")]
        let price = faults as f64 * setup.costs.hint_fault_ns;
        assert!(outcome.profiling_ns >= price);
    }
}

/// In a single pass each page is armed once; what has been demoted since faults, and is promoted again, without another.
#[test]
fn what_tpp_demotes_is_promoted_again_without_a_scan() {
    for engine in ENGINES {
        let mut setup = setup("gups-uniform", "tpp");
        setup.engine = engine;
        // Pages that rest for longer than kswapd takes to come by.
        setup.workload.programs[0].phases[0].think_ns = 40_000.0;
        for name in ["scan_period_min", "scan_period_max"] {
            // The first pass comes after a quarter of it.
            setup.params.insert(name.into(), "20s".into());
        }
        setup.seconds = 20.0;
        let outcome = run(&setup);
        let (promoted, pages) = (outcome.stats.promoted_pages, outcome.base_pages);
        assert!(promoted > pages, "{engine:?}: {promoted} of {pages} pages");
    }
}

/// 32 times as long as it works: a scanner whose work takes long comes by less often.
#[test]
fn every_kernel_scanner_pauses_by_its_work() {
    for system in ["tpp", "kernel-tiering", "autonuma"] {
        let scanned = |work_ns| {
            let mut setup = setup("gups-uniform", system);
            setup.costs.scan_work_ns = work_ns;
            setup.params.insert("scan_period_max".into(), "1s".into());
            // What is left of profiling is looking at entries.
            setup.costs.hint_fault_ns = 0.0;
            setup.seconds = 40.0;
            run(&setup).profiling_ns
        };
        let (quick, slow) = (scanned(1.0), scanned(20_000.0));
        assert!(slow * 1.3 < quick, "{system}: {quick} {slow}");
    }
}
