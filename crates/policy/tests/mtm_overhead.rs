// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM's profiling stays within its share where what a scan takes is another time in every interval.
#![expect(clippy::cast_precision_loss, reason = "small numbers of a test")]

#[path = "mtm/machine.rs"]
mod machine;

use machine::Chunk;
use machine::Machine;
use terrace_core::AccessPath;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Views;
use terrace_policy::Capabilities;
use terrace_policy::Host;
use terrace_policy::kit::Random;
use terrace_policy::presets::mtm::Params;

const ROOM: [u64; 3] = [100, 100, 1000];

/// Two sockets, each with its own fastest node: hint faults tell accessors.
fn two_sockets() -> Host {
    let tiers = machine::tiers(&ROOM);
    let path = |from, to, latency| AccessPath {
        from: NodeId(from),
        to: NodeId(to),
        read_latency_ns: Some(latency),
        ..AccessPath::default()
    };
    let mut paths = vec![path(0, 0, 90), path(0, 1, 145), path(0, 2, 275)];
    paths.extend([path(1, 0, 145), path(1, 1, 90), path(1, 2, 275)]);
    Host {
        views: Views::new(&tiers, &[NodeId(0), NodeId(1)], &paths),
        given: Capabilities::HINT_FAULTS,
        ..Host::new(tiers)
    }
}

/// 1 GiB in huge pages, the tenth part hot; processors of several sockets may access it.
fn machine_with(several: bool, share: f64) -> Machine {
    let chunk = |index: u64| Chunk {
        node: NodeId(2),
        heat: if index.is_multiple_of(10) { 100.0 } else { 1.0 },
        huge: true,
    };
    let params = Params {
        profiling_overhead: share,
        ..Params::default()
    };
    let chunks = (0..512).map(chunk).collect();
    if several {
        Machine::on(&two_sockets(), params, &ROOM, chunks)
    } else {
        Machine::new(params, &ROOM, chunks)
    }
}

/// Intervals at these prices of a scan, and at a fourth of them what it takes of the program. The part of its budget that
/// profiling took on average, from the third interval on.
fn runs(machine: &mut Machine, share: f64, prices: impl Iterator<Item = u64>) -> f64 {
    let budget = share * 10e9;
    for price in prices {
        machine.scan = Nanos(price);
        machine.lost = Nanos(price / 4);
        machine.intervals(1);
    }
    let parts = machine
        .intervals
        .iter()
        .map(|spent| spent.0 as f64 / budget);
    let parts: Vec<f64> = parts.collect();
    let worst = parts.iter().copied().fold(0.0, f64::max);
    assert!(worst <= 1.1, "{parts:?}");
    // What it says of itself.
    let told = machine.counter("profiling_worst") as f64 / 1e4;
    assert!(told <= 1.1 * share, "{told} of {share}");
    assert!(
        (told - worst * share).abs() < 0.03 * share,
        "{told} {}",
        worst * share
    );
    let settled = &parts[3..];
    settled.iter().sum::<f64>() / settled.len() as f64
}

const PRICE: u64 = 300_000;

/// By half more or less, by turns or at random.
fn prices(random: Option<u64>) -> impl Iterator<Item = u64> {
    let mut random = random.map(Random::new);
    (0..40_u64).map(move |interval| {
        let dear = random
            .as_mut()
            .map_or(interval % 2, |random| random.below(2));
        if dear == 1 {
            PRICE * 3 / 2
        } else {
            PRICE * 2 / 3
        }
    })
}

#[test]
fn no_interval_takes_more_than_its_share_at_whatever_price() {
    for share in [0.02, 0.05, 0.1] {
        for seed in [None, Some(1), Some(2), Some(3)] {
            for several in [false, true] {
                let mut machine = machine_with(several, share);
                machine.step = 1;
                let used = runs(&mut machine, share, prices(seed));
                assert!(used > 0.6, "{share} {seed:?}: {used}");
                let faults = machine.counter("accessors_told");
                assert_eq!(faults > 0, several, "{faults} hint faults");
            }
        }
    }
}

/// The kernel's scanner arms far more pages at a time than an interval is to have, and a hint fault takes what it takes: as many scans as
/// the rest of the budget has room for are made.
#[test]
fn a_scanner_with_large_steps_is_stopped_in_time() {
    let wanted = 833 / 12;
    let mut faults = Vec::new();
    for (step, takes) in [(1, 30_000), (200, 30_000), (200, 300_000), (1, 3_000_000)] {
        let mut machine = machine_with(true, 0.05);
        (machine.step, machine.fault_takes) = (step, Some(Nanos(takes)));
        println!("{step} {takes}");
        let used = runs(&mut machine, 0.05, prices(Some(1)));
        assert!(used > 0.6, "{step} {takes}: {used}");
        faults.push(machine.counter("accessors_told") / 40);
    }
    let most = wanted * 3;
    assert!(
        faults.iter().all(|each| (10..most).contains(each)),
        "an interval: {faults:?}"
    );
}
