// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the kernel's systems cost and do on the simulated machine: faults and price of a promotion, arming on
//! demotion, pauses of the scanner.

use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;

use terrace_core::Measurement;
use terrace_core::Nanos;
use terrace_machine_spec::Machine;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
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

/// In place of the system's policy: has a pass take a second, and notes when the scanner comes by.
#[derive(Debug)]
struct Watcher {
    asks: Option<Action>,
    /// ms.
    came: Arc<Mutex<Vec<u64>>>,
}

impl Policy for Watcher {
    fn name(&self) -> &'static str {
        "watcher"
    }
    fn observe(&mut self, now: Nanos, event: &Event) {
        if matches!(event, Event::Armed { .. }) {
            let mut came = self.came.lock().expect("one thread");
            came.push(now.0 / 1_000_000);
        }
    }
    fn tick(&mut self, _: Nanos) {}
    fn poll_action(&mut self) -> Option<Action> {
        self.asks.take()
    }
    fn next_deadline(&self) -> Nanos {
        Nanos(u64::MAX)
    }
    fn counters(&self) -> Vec<Measurement> {
        Vec::new()
    }
}

/// When the system's scanner comes by, ms.
fn visits(setup: &Setup) -> Vec<u64> {
    let came = Arc::new(Mutex::new(Vec::new()));
    let scan = Action::Scan {
        scope: ScanScope::All,
        period: Nanos::from_secs(1),
    };
    let mut watcher = |_| -> Box<dyn Policy> {
        Box::new(Watcher {
            asks: Some(scan),
            came: Arc::clone(&came),
        })
    };
    terrace_sim::run_with(setup, &mut watcher, &mut |_| {}).expect("it runs");
    came.lock().expect("one thread").clone()
}

/// `task_numa_work` and `vma_is_accessed` (Linux 6.12): a thread's first look only notes when the next may be, and from
/// the third pass on eight other mappings take an interval each. Before 6.7 a pass follows the other.
#[test]
fn todays_scanner_comes_late_and_takes_its_time_for_other_mappings() {
    for (system, expected) in [
        ("kernel-tiering", [2_000, 3_000, 4_000, 13_000, 22_000]),
        ("tpp", [250, 1_250, 2_250, 3_250, 4_250]),
        ("autonuma", [250, 1_250, 2_250, 3_250, 4_250]),
    ] {
        let mut setup = setup("gups-uniform", system);
        // A pass is one step.
        setup.costs.scan_bytes = 1 << 40;
        setup.costs.scan_work_ns = 0.0;
        setup.seconds = 23.0;
        assert_eq!(visits(&setup)[..5], expected, "{system}");
    }
}

/// `task_numa_work` again: a step's work delays the next by 32 times what it took of a thread's time (`diff * 32` added
/// to `node_stamp`), a pass is divided among its steps, and there are 2,560 MB a second at most (`MAX_SCAN_WINDOW`).
#[test]
fn a_step_comes_after_its_share_of_the_pass_and_32_times_its_work() {
    for (steps, threads, work_ms, floor_ms, expected) in [
        (1, 1, 0, 0, [250, 1_250, 2_250]),
        (4, 1, 0, 0, [62, 312, 562]),
        (4, 1, 0, 400, [100, 500, 900]),
        (1, 1, 10, 0, [250, 1_570, 2_890]),
        (1, 2, 10, 0, [250, 1_410, 2_570]),
    ] {
        let mut setup = setup("gups-uniform", "tpp");
        let program = &mut setup.workload.programs[0];
        program.threads = threads;
        let pages = u64::from(program.pages);
        setup.costs.scan_bytes = (pages << 12) / steps;
        setup.costs.scan_floor_ns = f64::from(floor_ms) * 1e6;
        #[expect(clippy::cast_precision_loss, reason = "pages of a program")]
        let entries = pages as f64;
        setup.costs.scan_work_ns = f64::from(work_ms) * 1e6 / entries;
        let case = (steps, threads, work_ms, floor_ms);
        assert_eq!(visits(&setup)[..3], expected, "{case:?}");
    }
}
