// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two programs that share a fast tier: what they have of it is what was asked for.

use std::path::Path;

use terrace_machine_spec::Machine;
use terrace_policy::Share;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_sim::SimError;
use terrace_workload::Sizes;
use terrace_workload::Workload;

const MIB: u64 = 1 << 20;
const FREE: u64 = 256 * MIB;

/// `a` reads by a Zipf law, `b` has a hot set; each has twice the fast tier.
fn setup(system: &str, shares: &[(&str, Share)]) -> Setup {
    let text = include_str!("../../../machines/cxl-2tier.toml");
    let machine = Machine::parse(text, Path::new("cxl-2tier.toml")).expect("it is checked");
    let mut sizes = Sizes::fast_free(FREE);
    for size in [
        "of=a:zipf+b:gups",
        "a.working_set=512MiB",
        "b.working_set=512MiB",
    ] {
        sizes = sizes.with(size).expect("a size");
    }
    let mut setup = Setup::new(machine, Workload::named("mix", &sizes).expect("known"));
    setup.system = system.to_owned();
    setup.free.insert(0, FREE);
    setup.seconds = 30.0;
    setup.shares = shares
        .iter()
        .map(|(name, share)| ((*name).to_owned(), *share))
        .collect();
    setup
}

fn run(shares: &[(&str, Share)]) -> Outcome {
    terrace_sim::run(&setup("adaptive", shares), &mut |_| {}).expect("it can be simulated")
}

/// Bytes of both in the fast tier at the end.
fn fast(shares: &[(&str, Share)]) -> [u64; 2] {
    let outcome = run(shares);
    [0, 1].map(|program| outcome.programs[program].fast_bytes)
}

const fn limits(floor: u64, ceiling: Option<u64>) -> Share {
    Share {
        whose: None,
        priority: 0,
        floor_bytes: floor,
        ceiling_bytes: ceiling,
    }
}

#[test]
fn each_has_its_floor_and_no_more_than_its_ceiling() {
    let [a, b] = fast(&[]);
    assert!(
        a > 3 * b && b > 32 * MIB,
        "{a}, {b}: a has more that is hot"
    );
    let [rest, b] = fast(&[("b", limits(128 * MIB, Some(160 * MIB)))]);
    assert!((127 * MIB..=160 * MIB).contains(&b), "{b}");
    assert!(rest > 90 * MIB, "{rest} is left");
    let [a, b] = fast(&[
        ("a", limits(0, Some(16 * MIB))),
        ("b", limits(0, Some(8 * MIB))),
    ]);
    assert!(a <= 16 * MIB && b <= 8 * MIB, "{a}, {b}");
    // At its ceiling a program still has its hottest pages there.
    let ceiling = [("b", limits(0, Some(24 * MIB)))];
    let outcome = run(&ceiling);
    let b = &outcome.programs[1];
    assert!(
        b.fast_bytes <= 24 * MIB && b.fast_access_ratio > 0.4,
        "{b:?}"
    );
}

#[test]
fn who_counts_more_has_more() {
    let first = Share {
        priority: 9,
        ..Share::default()
    };
    let ([a, b], [_, more]) = (fast(&[]), fast(&[("b", first)]));
    assert!(more > 3 * b && more < a + b, "{more} where it had {b}");
}

#[test]
fn who_keeps_to_no_limits_is_not_given_any() {
    let run = |system: &str, name: &str| {
        let limits = [(name, limits(MIB, None))];
        terrace_sim::run(&setup(system, &limits), &mut |_| {}).map(|_| ())
    };
    assert!(matches!(run("nomad", "a"), Err(SimError::NoLimits(_))));
    assert!(matches!(run("adaptive", "c"), Err(SimError::Share { .. })));
}
