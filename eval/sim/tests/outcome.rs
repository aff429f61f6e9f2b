// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a run is said to have come to: rates over their windows, and what cannot be.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

fn setup(workload: &str, system: &str) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let workload = Workload::named(workload, &Sizes::fast_free(16 << 20)).expect("known");
    let mut setup = Setup::new(machine, workload);
    setup.system = system.to_owned();
    setup.free.insert(0, 16 << 20);
    setup.seconds = 1.5;
    setup
}

#[test]
fn what_cannot_be_is_an_error_of_the_model() {
    let mut outcome = terrace_sim::run(&setup("gups", "nomad"), &mut |_| {}).expect("fine");
    assert_eq!(outcome.model_errors(), [""; 0], "no oracle was asked");
    let own = outcome.metric("ops_per_s").expect("measured");
    outcome.oracle_ops_per_s = Some(own / 1.02);
    assert_eq!(outcome.model_errors(), [""; 0], "as the engines differ");
    outcome.oracle_ops_per_s = Some(own / 1.1);
    let errors = outcome.model_errors();
    let above = "nomad comes to 110.0 % of the oracle's speed";
    assert!(
        errors.len() == 1 && errors[0].starts_with(above),
        "{errors:?}"
    );
    outcome.profiling_ns = outcome.thread_ns * 1.5;
    assert_eq!(outcome.model_errors().len(), 2);
}

/// Hottest pages first, whatever the workload: nobody, from the same start, has more fast accesses than the
/// oracle; and `none` moves nothing.
#[test]
fn the_oracle_is_above_none_for_every_workload() {
    for name in terrace_workload::NAMES {
        let run = |system| {
            let setup = setup(name, system);
            let outcome = terrace_sim::run(&setup, &mut |_| {}).expect(name);
            assert!(system != "none" || outcome.stats.ordered == 0);
            let fast = outcome.metric("fast_access_ratio").expect("measured");
            (
                fast,
                outcome.metric("ops_per_s").expect("measured"),
                outcome,
            )
        };
        let (fast, speed, _) = run("oracle");
        let (start, _, mut none) = run("none");
        none.oracle_ops_per_s = Some(speed);
        assert!(start <= fast + 0.01, "{name}: {start} {fast}");
        assert_eq!(none.model_errors(), [""; 0], "{name}");
    }
}

/// Means over the stated window of the run: slow seconds and idle ones weigh what they took.
#[test]
fn rates_are_means_of_all_seconds_of_their_window() {
    let mut outcome = terrace_sim::run(&setup("gups", "nomad"), &mut |_| {}).expect("fine");
    let point = |second: u32| terrace_sim::outcome::Point {
        t: f64::from(second) + 1.0,
        ops_per_s: match second {
            3 => 0.0,
            7 => 1.0,
            _ => f64::from(second),
        },
        migrating: second == 1 || second == 4,
        ..Default::default()
    };
    outcome.series = (0..9).map(point).collect();
    let metric = |name| outcome.metric(name).expect("measured");
    // Seconds 6, 7 and 8; 1 to 4, in two of which nothing was migrated.
    assert_eq!(metric("ops_per_s"), 5.0);
    assert_eq!(metric("in_progress_ops_per_s"), 1.75);
    assert_eq!(metric("ops_per_s_first"), 1.0);
}
