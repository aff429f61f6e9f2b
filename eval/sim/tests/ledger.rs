// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hot set that is in fast memory and walks on through it: every page that is cold now is asked for later, so each one that gives way for
//! another as cold is lost. The default counts that, takes back what it did, and stops.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const FREE: u64 = 256 << 20;

/// For 90 s, in which two percent more of the hot set are others each second.
fn run(system: &str, ledger: bool) -> Outcome {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let mut sizes = Sizes::paper();
    for size in [
        "threads=1",
        "working_set=691MiB",
        "hot=92MiB",
        "drift_percent=2",
    ] {
        sizes = sizes.with(size).expect("a size");
    }
    let mut setup = Setup::new(machine, Workload::named("drifting", &sizes).expect("known"));
    setup.system = system.to_owned();
    setup.free.insert(0, FREE);
    setup.seconds = 90.0;
    if system == "adaptive" {
        setup.params.insert("ledger".to_owned(), ledger.into());
    }
    terrace_sim::run(&setup, &mut |_| {}).expect("it can be simulated")
}

fn mean(outcome: &Outcome, after: f64) -> f64 {
    let late: Vec<f64> = outcome
        .series
        .iter()
        .filter(|point| point.t > after)
        .map(|point| point.ops_per_s)
        .collect();
    late.iter().sum::<f64>() / f64::from(u32::try_from(late.len()).expect("few"))
}

#[test]
fn what_was_lost_by_moves_is_taken_back() {
    let none = run("none", true);
    let [with, without] = [true, false].map(|ledger| run("adaptive", ledger));
    let share = |outcome: &Outcome, after| mean(outcome, after) / mean(&none, after);
    let all = [0.0, 60.0].map(|after| (share(&with, after), share(&without, after)));
    let [(whole, whole_without), (late, late_without)] = all;
    assert!(whole > 0.98 && late > 0.99, "{all:?}");
    assert!(whole_without < 0.95 && late_without < 0.95, "{all:?}");
}
