// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fast tier that cannot serve all that fits into it: the default comes to rest where both take as long, ahead of all in either.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const FREE: u64 = 128 << 20;

fn run(system: &str, workload: &str, sizes: &[&str], balance: bool) -> Outcome {
    let text = include_str!("../../../machines/narrow-dram.toml");
    let machine = Machine::parse(text, Path::new("narrow-dram.toml")).expect("it is checked");
    let mut all = Sizes::fast_free(FREE);
    for size in sizes {
        all = all.with(size).expect("a size");
    }
    let mut setup = Setup::new(machine, Workload::named(workload, &all).expect("known"));
    setup.system = system.to_owned();
    setup.free.insert(0, FREE);
    setup.seconds = 40.0;
    if system == "adaptive" {
        setup.params.insert("balance".to_owned(), balance.into());
    }
    terrace_sim::run(&setup, &mut |_| {}).expect("it can be simulated")
}

fn speed(outcome: &Outcome) -> f64 {
    outcome.metric("ops_per_s").expect("measured")
}

fn moved(outcome: &Outcome, after: f64) -> u64 {
    let late = outcome.series.iter().filter(|point| point.t > after);
    late.map(|point| point.promoted_pages + point.demoted_pages)
        .sum()
}

#[test]
fn a_loaded_tier_is_left_to_what_it_serves_as_soon() {
    let of = |system, balance| run(system, "gups", &["threads=16"], balance);
    let [none, oracle] = ["none", "oracle"].map(|system| speed(&of(system, true)));
    let adaptive = of("adaptive", true);
    let best = speed(&adaptive);
    // All hot pages fit into DRAM, which is one of two tiers of equal bandwidth.
    assert!(
        best > 1.3 * oracle && best > 1.5 * none,
        "{best}: {oracle} all fast, {none} slow"
    );
    let pages = moved(&adaptive, 0.0);
    let late = moved(&adaptive, 25.0);
    assert!(late * 5 < pages, "{late} of {pages} moved late");
    let without = of("adaptive", false);
    assert!(speed(&without) * 1.2 < best, "{} without", speed(&without));
    assert!(moved(&without, 0.0) > 3 * pages, "to and fro");
}

/// Another program takes most of the bandwidth there is, and both get as much of it as both tiers have.
#[test]
fn with_an_antagonist_both_tiers_serve() {
    let sizes = [
        "of=gups+antagonist:gups-uniform",
        "gups.threads=2",
        "antagonist.threads=12",
    ];
    let of = |system| speed(&run(system, "mix", &sizes, true));
    let [none, kernel, adaptive] = ["none", "kernel-tiering", "adaptive"].map(of);
    let all = format!("none {none}, kernel {kernel}, adaptive {adaptive}");
    assert!(adaptive > 1.4 * none && adaptive > 0.98 * kernel, "{all}");
}
