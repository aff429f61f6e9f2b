// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plugin's cache, latencies, streams and queues against a slow model in Rust, access by access: the plugin as
//! it is built for the emulator, with the options it is given for a machine file, but with a clock that moves
//! only while a processor waits. Hits, nodes, ticks and counts must be equal.

#![expect(clippy::unwrap_used, reason = "a test may")]

#[path = "plugin_model/cache.rs"]
mod cache;
#[path = "plugin_model/prices.rs"]
mod prices;
#[path = "plugin_model/reference.rs"]
mod reference;
#[path = "plugin_model/replay.rs"]
mod replay;
#[path = "plugin_model/trace.rs"]
mod trace;

use std::path::Path;

use reference::Reference;
use replay::Harness;
use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Cache;
use terrace_machine_spec::machine::Lab;
use trace::Dice;

/// One and two sockets, two and four nodes; writes as fast as reads, and twelve times slower.
const MACHINES: [&str; 5] = [
    "cxl-2tier",
    "hemem-2cpu",
    "nomad-platform-c",
    "autotiering-2socket",
    "optane-4tier",
];
/// Of the machine file's own cache, and of smaller ones.
const LONG: usize = 150_000;
const SHORT: usize = 20_000;
const SMALL_CACHES: u64 = 4;

fn machine(name: &str) -> Machine {
    let path = format!("../../machines/{name}.toml");
    Machine::load(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// Runs a trace through both; what the slow model has seen.
fn agree(harness: &Harness, machine: &Machine, lab: &Lab, seed: u64, accesses: usize) -> Reference {
    // Half a tick for each nanosecond keeps the counting short; the others do not divide evenly.
    let ticks_per_8ns = Dice::new(seed).choose(&[3, 4, 5, 11]);
    let mut slow = Reference::new(machine, lab, f64::from(ticks_per_8ns) / 8.0);
    let trace = trace::trace(machine, lab, seed, accesses);
    let (outcomes, totals) = harness.run(machine, lab, ticks_per_8ns, &trace);
    let case = format!("{}, {:?}, seed {seed}", machine.name, lab.llc);
    assert_eq!(outcomes.len(), trace.len(), "{case}");
    for (number, (access, outcome)) in trace.iter().zip(&outcomes).enumerate() {
        let expected = slow.access(access);
        assert_eq!(
            outcome, &expected,
            "{case}: access {number}, the plugin's and the slow model's: {access:?}"
        );
    }
    let plugin = (totals.accesses, totals.llc_hits, totals.nodes);
    let expected = (slow.accesses, slow.hits, slow.counts());
    assert_eq!(plugin, expected, "{case}: the series");
    slow
}

/// Otherwise the trace compares nothing.
fn saw_everything(machine: &Machine, slow: &Reference) {
    let seen = &slow.seen;
    let few = [seen.ignored, seen.filtered, seen.ahead, slow.hits];
    // A stream at the node's peak waits in the node's queue and for nothing else.
    let views = (0..machine.nodes.len()).map(|node| machine.path(0, node));
    let can_be_late = views.map(|view| view.stream_bandwidth < view.read_bandwidth);
    let late = can_be_late.max().unwrap().then_some(seen.late);
    let nodes = slow.counts();
    let of_nodes = nodes.iter().flat_map(|node| {
        [
            node.loads,
            node.stores,
            node.tiering_loads,
            node.tiering_stores,
            node.kernel_loads,
            node.kernel_stores,
            node.writebacks_program(),
            node.writebacks_copy,
            node.writebacks_clear,
            node.queue_ns,
        ]
    });
    assert!(
        few.into_iter()
            .chain(late)
            .chain(of_nodes)
            .all(|count| count >= 20),
        "{}: {seen:?} {nodes:?}",
        machine.name
    );
}

#[test]
fn every_access_is_served_as_the_slow_model_says() {
    let harness = Harness::build();
    for (seed, name) in (1..).zip(MACHINES) {
        let machine = machine(name);
        let lab = machine.lab.unwrap();
        let slow = agree(&harness, &machine, &lab, seed, LONG);
        saw_everything(&machine, &slow);
    }
}

#[test]
fn so_it_is_with_any_cache() {
    let harness = Harness::build();
    for (index, name) in (0..).zip(MACHINES) {
        let machine = machine(name);
        for seed in 100 + index * SMALL_CACHES..100 + (index + 1) * SMALL_CACHES {
            let mut dice = Dice::new(seed);
            let (ways, line) = (dice.choose(&[1, 3, 4, 9, 16]), dice.choose(&[64, 128, 256]));
            let sets = dice.choose(&[1, 8, 64]);
            let llc = Cache {
                bytes: sets * u64::from(ways) * u64::from(line),
                ways,
                line,
            };
            let lab = Lab {
                llc,
                ..machine.lab.unwrap()
            };
            agree(&harness, &machine, &lab, seed, SHORT);
        }
    }
}
