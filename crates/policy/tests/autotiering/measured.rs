// SPDX-License-Identifier: MIT OR Apache-2.0
//! The order of the nodes where reads were measured and only distances are known of the machine.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::presets::autotiering::Autotiering;
use terrace_policy::presets::autotiering::Mode;

use super::layouts::TWO;
use super::machine::Machine;
use super::params;

/// From socket 0 reads of the two fast nodes took so long.
fn measured(machine: &mut Machine, read: [u64; 2]) {
    for (node, read) in (0..).zip(read) {
        let event = Event::Latency {
            from: NodeId(0),
            node: NodeId(node),
            read: Nanos(read),
        };
        machine.policy.observe(machine.now, &event);
    }
}

#[test]
fn measured_latencies_go_before_distances() {
    let on = (0..32).zip((0..32).map(|n| n / 8)).collect();
    let params = terrace_policy::presets::autotiering::Params {
        inflight_pages: 100,
        ..params(Mode::Cpm)
    };
    let mut machine = Machine::new(&TWO, params, true, on);
    machine.policy = Autotiering::new(params, TWO.views_by_distance(), true);
    machine.orders();
    machine.capacity.fill(1_000);
    machine.sample();
    assert_eq!(machine.fault(16, Some(0)), [(16, 0, None)]);
    for _ in 0..7 {
        measured(&mut machine, [145, 90]);
    }
    assert_eq!(machine.fault(17, Some(0)), [(17, 0, None)], "too few");
    measured(&mut machine, [145, 90]);
    assert_eq!(machine.fault(18, Some(0)), [(18, 1, None)]);
    assert_eq!(machine.fault(1, Some(0)), [(1, 1, None)]);
    assert_eq!(machine.fault(24, Some(1)), [(24, 1, None)], "as it was");
    // Under load they take longer, which changes nothing.
    for _ in 0..20 {
        measured(&mut machine, [145, 900]);
    }
    assert_eq!(machine.fault(19, Some(0)), [(19, 1, None)]);
    // What was slow was a load all the time: now it is known.
    measured(&mut machine, [80, 90]);
    assert_eq!(machine.fault(20, Some(0)), [(20, 0, None)]);
}
