// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who decides in user space is charged for it, and the kernel's systems are not; what moves pages is what there is.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_policy::Mover;
use terrace_policy::PRESETS;
use terrace_sim::Costs;
use terrace_sim::EngineKind;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_sim::systems;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const ENGINES: [EngineKind; 2] = [EngineKind::Exact, EngineKind::Rate];

fn setup(system: &str, costs: Costs) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named("gups", &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.costs = costs;
    setup.free.insert(0, 16 << 20);
    setup.workload.programs[0].threads = 2;
    setup.cache = false;
    setup.seconds = 4.0;
    setup
}

fn run(setup: &Setup) -> Outcome {
    terrace_sim::run(setup, &mut |_| {}).expect("it can be simulated")
}

fn as_it_is(system: &str) -> Outcome {
    run(&setup(system, Costs::as_it_is(system, Mover::Auto)))
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    outcome.metric(name).expect("counted")
}

/// Each fault that a supervisor watches costs the program what the kernel's own does, and what the watching takes.
#[test]
fn faults_of_a_preset_cost_more_beside_the_kernel_than_in_it() {
    let costs = Costs::hardware();
    for engine in ENGINES {
        let by = |costs: Costs| {
            let mut setup = setup("nomad", costs);
            setup.engine = engine;
            let outcome = run(&setup);
            let faults = metric(&outcome, "hint_faults");
            assert!(faults > 10_000.0, "{engine:?}: {faults}");
            // Of two threads' time.
            let each = |share| metric(&outcome, share) * 2.0 * 4e9 / faults;
            (each("profiling_share"), each("supervisor_share"))
        };
        let (beside, supervisor) = by(Costs::as_it_is("nomad", Mover::Auto));
        let (kernel, _) = by(Costs::papers());
        let more = beside - kernel;
        assert!(
            (0.9..1.3).contains(&(more / costs.watched_fault_ns)),
            "{engine:?}: a fault costs {kernel}, and {beside} watched"
        );
        assert!(
            supervisor >= costs.supervisor_fault_ns * 0.9,
            "{engine:?}: {supervisor}"
        );
    }
}

/// To the last byte, whatever Terrace costs.
#[test]
fn systems_of_the_kernel_and_baselines_do_not_depend_on_what_terrace_costs() {
    let preset = |name: &str| PRESETS.iter().find(|preset| preset.name == name);
    for system in systems() {
        let kernel = preset(system).is_none_or(|preset| !preset.in_user_space());
        let text = |outcome: &Outcome| serde_json::to_string(outcome).expect("plain data");
        if kernel {
            let papers = text(&run(&setup(system, Costs::papers())));
            assert_eq!(text(&as_it_is(system)), papers, "{system}");
            // Forced on them, costs of user space find nothing to be charged for.
            let forced = text(&run(&setup(system, Costs::hardware())));
            assert_eq!(forced, papers, "{system}");
        }
    }
}

/// `--commit copy`: the kernel moves the page, so no write aborts it, and what moves is inaccessible meanwhile.
#[test]
fn pages_move_as_under_terrace_run_unless_a_mover_is_named() {
    for engine in ENGINES {
        let by = |mover: Mover, costs: Costs| {
            let mut setup = setup("nomad", costs);
            (setup.engine, setup.mover) = (engine, mover);
            // As long as many writes come that transactions are aborted.
            setup.costs.transaction_fixed_ns = 200_000.0;
            run(&setup)
        };
        let run = by(Mover::Auto, Costs::hardware());
        assert!(metric(&run, "tpm_committed") > 500.0, "{engine:?}");
        assert_eq!(metric(&run, "tpm_aborted"), 0.0, "{engine:?}");
        assert!(metric(&run, "shadow_bytes_max") > 0.0, "{engine:?}");
        // As much as the kernel's migration takes at the least.
        assert!(metric(&run, "inaccessible_p99_ns") > 2_000.0, "{engine:?}");
        for costs in [Costs::papers(), Costs::hardware()] {
            let transactions = by(Mover::Agent, costs);
            assert!(metric(&transactions, "tpm_aborted") > 0.0, "{engine:?}");
        }
        let papers = by(Mover::Auto, Costs::papers());
        assert!(metric(&papers, "tpm_aborted") > 0.0, "{engine:?}");
    }
}

/// HeMem orders 2 MiB; what lies in it goes by the kernel's migration, with the pages that the memory is mapped with.
#[test]
fn orders_of_two_mebibytes_are_served_by_the_kernel_too() {
    let mut own = setup("hemem", Costs::papers());
    own.seconds = 10.0;
    let mut service = setup("hemem", Costs::as_it_is("hemem", Mover::Auto));
    service.seconds = 10.0;
    let (own, service) = (run(&own), run(&service));
    let share = |outcome: &Outcome| metric(outcome, "fast_access_ratio");
    assert!(metric(&service, "promoted_bytes") > 0.0);
    assert!(
        (share(&service) - share(&own)).abs() < 0.05,
        "{} and {}",
        share(&service),
        share(&own)
    );
    assert_eq!(
        metric(&service, "writes_waited_share"),
        0.0,
        "all wait, not writers"
    );
    assert!(metric(&own, "writes_waited_share") > 0.0);
}

/// So whatever moves them: an order of many base pages is no order of the first.
#[test]
fn orders_of_two_mebibytes_are_served_by_every_mover() {
    for mover in [
        Mover::MovePages,
        Mover::Agent,
        Mover::InFault,
        Mover::AdaptiveCopy,
        Mover::ParallelCopy,
    ] {
        for engine in ENGINES {
            let mut setup = setup("hemem", Costs::papers());
            (setup.mover, setup.engine, setup.seconds) = (mover, engine, 10.0);
            let outcome = run(&setup);
            let promoted = metric(&outcome, "promoted_bytes");
            assert!(promoted >= 4e6, "{mover:?}, {engine:?}: {promoted} bytes");
            assert!(metric(&outcome, "fast_access_ratio") > 0.3, "{mover:?}");
        }
    }
}

/// A bit that was cleared is set by the program at its next access to the page.
#[test]
fn programs_pay_for_the_bits_that_they_set_again() {
    for engine in ENGINES {
        let by = |set_ns| {
            let mut setup = setup("adaptive", Costs::hardware());
            setup.engine = engine;
            setup.costs.accessed_set_ns = set_ns;
            setup.params.insert("pace".to_owned(), false.into());
            // Of two threads' time.
            metric(&run(&setup), "profiling_share") * 2.0 * 4e9
        };
        let (nothing, once, twice) = (by(0.0), by(1_000.0), by(2_000.0));
        let pages = (once - nothing) / 1_000.0;
        assert!(pages > 20_000.0, "{engine:?}: {pages} bits in three passes");
        let ratio = (twice - nothing) / (once - nothing);
        assert!((1.8..2.2).contains(&ratio), "{engine:?}: {ratio}");
    }
}
