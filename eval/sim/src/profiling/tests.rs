// SPDX-License-Identifier: MIT OR Apache-2.0
//! Trackers on a small machine.

use terrace_machine_spec::machine::Machine;
use terrace_workload::Sizes;
use terrace_workload::Workload;

use super::*;

const MACHINE: &str = include_str!("../../../../machines/cxl-2tier.toml");

fn setup(workload: &str, seconds: f64) -> Setup {
    let machine =
        Machine::parse(MACHINE, std::path::Path::new("cxl-2tier.toml")).expect("a good file");
    let workload = Workload::named(workload, &Sizes::fast_free(64 << 20)).expect("there is one");
    Setup {
        seconds,
        // A hot set of this size would be in the cache, where sampled misses do not see it.
        cache: false,
        ..Setup::new(machine, workload)
    }
}

fn run(workload: &str, seconds: f64, tracker: &str, overhead: f64) -> Profile {
    let options = Options {
        overhead,
        ..Options::default()
    };
    profile(&setup(workload, seconds), tracker, &options, &mut |_| {}).expect("it can be done")
}

#[test]
fn who_knows_all_is_perfect_and_who_guesses_is_right_by_chance() {
    for workload in ["gups", "zipf", "pmbench"] {
        let ideal = run(workload, 3.0, "ideal", 0.05).settled();
        assert!(
            ideal.recall > 0.999 && ideal.precision > 0.999,
            "{workload}: {ideal:?}"
        );
        let random = run(workload, 3.0, "random", 0.05);
        let settled = random.settled();
        assert!(
            (settled.precision - random.hot_share).abs() < 0.03,
            "{workload}: {settled:?}, {} hot",
            random.hot_share
        );
    }
}

#[test]
fn trackers_are_better_than_guessing_and_stay_within_the_budget() {
    for tracker in TRACKERS {
        // Thermostat looks at a share of the memory in 30 s.
        let seconds = if *tracker == "thermostat" {
            360.0
        } else {
            60.0
        };
        let profile = run("gups", seconds, tracker, 0.05);
        let (settled, mean) = (profile.settled(), profile.mean());
        assert!(mean.overhead < 0.06, "{tracker}: {mean:?}");
        // Recency of a fault says nothing where all pages are accessed in a pass (Chrono 2.1).
        if !["random", "hint-faults-mru"].contains(tracker) {
            assert!(
                settled.recall > 1.2 * profile.hot_share,
                "{tracker}: {settled:?}"
            );
        }
    }
}

#[test]
fn more_budget_gives_no_worse_recall() {
    for tracker in ["hint-faults", "pmu", "accessed-bits", "damon", "thermostat"] {
        let recall = |overhead| run("zipf", 60.0, tracker, overhead).settled().recall;
        let (little, much) = (recall(0.001), recall(0.05));
        assert!(much > little - 0.03, "{tracker}: {little} to {much}");
    }
}

#[test]
fn damons_regions_cover_all_and_stay_within_bounds() {
    let setup = setup("gups", 5.0);
    let options = Options {
        overhead: 0.01,
        ..Options::default()
    };
    let ground = Ground::new(&setup, &options).expect("it can be done");
    let mut damon = damon::Damon::new(&ground, &setup.costs, &options);
    let mut draw = Draw::new(7);
    let mut highest = 0;
    for _ in 0..2000 {
        damon.step(&ground, 0.0, &mut draw);
        let regions = &damon.regions;
        assert!((damon::REGIONS_MIN..=damon.most).contains(&regions.len()));
        assert_eq!(regions[0].units.start, 0);
        assert_eq!(regions[regions.len() - 1].units.end, ground.units());
        for pair in regions.windows(2) {
            assert_eq!(pair[0].units.end, pair[1].units.start);
            assert!(!pair[0].units.is_empty());
        }
        highest = highest.max(regions.len());
    }
    assert!(
        highest > 4 * damon::REGIONS_MIN,
        "{highest} regions at most"
    );
}

#[test]
fn a_moving_hot_set_is_lost_and_found_again() {
    let mut setup = setup("gups-moving", 200.0);
    setup.workload.programs[0].phases[0].lasts = Some(terrace_core::Nanos(30_000_000_000));
    setup.seconds = 60.0;
    // So little that a pass takes some ten seconds.
    let options = Options {
        overhead: 0.005,
        ..Options::default()
    };
    let profile = profile(&setup, "hint-faults", &options, &mut |_| {}).expect("it can be done");
    let at = |t: usize| profile.series[t].recall;
    assert!(at(31) < at(28) - 0.05, "{} to {}", at(28), at(31));
    assert!(at(55) > at(31) + 0.05, "{} to {}", at(31), at(55));
}

#[test]
fn mistakes_are_named() {
    let good = setup("gups", 1.0);
    let options = Options::default();
    let error = |setup: &Setup, tracker: &str, options: &Options| {
        let error = profile(setup, tracker, options, &mut |_| {}).expect_err("a mistake");
        error.to_string()
    };
    assert!(error(&good, "damn", &options).contains("'damn'"));
    let none = Options {
        overhead: 0.0,
        ..options
    };
    assert!(error(&good, "pmu", &none).contains("overhead"));
    let uniform = setup("gups-uniform", 1.0);
    assert!(error(&uniform, "pmu", &options).contains("no hot set"));
}
