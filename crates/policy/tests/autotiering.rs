// SPDX-License-Identifier: MIT OR Apache-2.0
//! AutoTiering by the paper's figures, and against a slow reference whatever happens.

mod autotiering {
    pub(crate) mod layouts;
    pub(crate) mod machine;
    mod measured;
    mod metadata;
    mod orders;
    pub(crate) mod reference;
    mod reserve;

    pub(crate) use super::params;
}

use autotiering::layouts::THREE;
use autotiering::layouts::TWO;
use autotiering::machine::MOVED;
use autotiering::machine::Machine;
use autotiering::machine::page;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Policy;
use terrace_policy::Verdict;
use terrace_policy::presets::autotiering::Mode;
use terrace_policy::presets::autotiering::Params;

fn params(mode: Mode) -> Params {
    Params {
        mode,
        reserved_pages: 3,
        reserved_low: 2,
        reserved_huge: 2,
        reserved_huge_low: 2,
        exchange_scan: 3,
        inflight_pages: 6,
        // Only what a fault makes urgent has it act.
        scan_period_min: Nanos::from_secs(1 << 20),
        scan_period_max: Nanos::from_secs(1 << 20),
        ..Params::default()
    }
}

/// Pages 0 to 7 on node 0, 8 to 15 on node 1 and so on, all full, known and accessed in every round but those named.
fn full(mode: Mode, exchanges: bool, cold: &[u64]) -> Machine {
    let on = (0..32).zip((0..32).map(|n| n / 8)).collect();
    let mut machine = Machine::new(&TWO, params(mode), exchanges, on);
    machine.fill();
    for _ in 0..9 {
        machine.round(|n| !cold.contains(&n));
    }
    machine
}

#[test]
fn free_memory_of_the_best_node_is_taken_first() {
    for mode in [Mode::Cpm, Mode::Cpmx, Mode::Opm, Mode::Opmx, Mode::OpmBd] {
        let mut machine = full(mode, true, &[0]);
        machine.capacity[1] += 1;
        machine.sample();
        assert_eq!(machine.fault(16, Some(1)), [(16, 1, None)]);
        assert!(
            machine.fault(0, Some(0)).is_empty(),
            "it is where it should be"
        );
    }
}

#[test]
fn conservative_modes_take_the_next_best_node() {
    let mut machine = full(Mode::Cpm, true, &[0]);
    assert!(machine.fault(16, Some(0)).is_empty() && machine.fault(8, Some(0)).is_empty());
    // Figure 5a: local slow memory to remote DRAM.
    machine.capacity[1] += 1;
    machine.capacity[2] += 1;
    machine.sample();
    assert_eq!(machine.fault(16, Some(0)), [(16, 1, None)]);
    // Figure 5b: remote slow memory, remote DRAM full by now, to local slow memory.
    assert_eq!(machine.fault(24, Some(0)), [(24, 2, None)]);
    // Nothing better has room; and nothing worse is taken.
    assert!(machine.fault(25, Some(0)).is_empty());
    assert!(machine.fault(17, Some(0)).is_empty());
    assert_eq!(machine.figure("to_other_fast"), 1);
    assert_eq!(machine.figure("to_nearer_slow"), 1);
}

/// Figure 5c.
#[test]
fn pages_that_cannot_migrate_change_places() {
    let mut machine = full(Mode::Cpmx, true, &[]);
    assert!(machine.fault(8, Some(0)).is_empty());
    assert!(machine.fault(8, Some(0)).is_empty(), "it waits once");
    assert_eq!(machine.figure("deferred"), 1);
    assert_eq!(machine.fault(3, Some(1)), [(3, 1, Some(8))]);
    let (_, orders) = machine.finish(3, MOVED);
    assert!(orders.is_empty());
    assert_eq!((machine.node[&3], machine.node[&8]), (1, 0));
    // Without a mover that exchanges, one after the other.
    let mut machine = full(Mode::Cpmx, false, &[]);
    assert!(machine.fault(8, Some(0)).is_empty());
    assert_eq!(machine.fault(3, Some(1)), [(8, 0, None)]);
    assert!(
        machine.fault(3, Some(1)).is_empty(),
        "it waits for its place"
    );
    assert_eq!(machine.finish(8, MOVED).1, [(3, 1, None)]);
}

/// A page waits for who would have it now, whatever it waited for before it moved.
#[test]
fn a_page_that_has_moved_waits_where_it_is() {
    let on = (0..24).zip((0..24).map(|n| n / 8)).collect();
    let mut machine = Machine::new(&THREE, params(Mode::Cpmx), true, on);
    machine.fill();
    assert!(machine.fault(8, Some(0)).is_empty(), "from 1 to 0");
    machine.capacity[2] += 1;
    machine.sample();
    assert_eq!(machine.fault(8, Some(2)), [(8, 2, None)]);
    assert!(machine.finish(8, MOVED).1.is_empty());
    machine.fill();
    assert!(machine.fault(8, Some(0)).is_empty(), "from 2 to 0");
    assert_eq!(machine.figure("deferred"), 1);
    assert_eq!(machine.fault(3, Some(2)), [(3, 2, Some(8))]);
}

/// Figure 6a and b: only for a page that is accessed more; to where it was accessed from.
#[test]
fn the_least_accessed_page_makes_room() {
    let mut machine = full(Mode::Opm, true, &[5, 6, 17]);
    // Page 6 was accessed from the other socket.
    machine.fault(6, Some(1));
    machine.round(|n| n == 6);
    assert!(
        machine.fault(17, Some(0)).is_empty(),
        "accessed no more than page 5"
    );
    machine.capacity[2] += 2;
    machine.capacity[3] += 2;
    machine.sample();
    assert_eq!(machine.fault(18, Some(0)), [(5, 2, None)]);
    assert!(
        machine.fault(18, Some(0)).is_empty(),
        "it waits for its place"
    );
    assert_eq!(machine.finish(5, MOVED).1, [(18, 0, None)]);
    assert_eq!(
        machine.fault(26, Some(0)),
        [(6, 3, None)],
        "near who accessed it"
    );
    // A victim that stays leaves the page where it was, for another time.
    assert!(machine.finish(6, Verdict::Busy).1.is_empty());
    assert_eq!(machine.fault(26, Some(0)), [(6, 3, None)]);
}

#[test]
fn demotion_and_promotion_fuse_where_their_nodes_match() {
    let mut machine = full(Mode::Opmx, true, &[5]);
    assert_eq!(
        machine.fault(18, Some(0)),
        [(18, 0, Some(5))],
        "nothing is free"
    );
    let (_, orders) = machine.finish(18, MOVED);
    assert!(orders.is_empty() && machine.node[&5] == 2 && machine.node[&18] == 0);
    // From the other socket's slow memory they do not match: the victim goes first.
    let mut machine = full(Mode::Opmx, true, &[5]);
    machine.capacity[2] += 1;
    machine.sample();
    assert_eq!(machine.fault(26, Some(0)), [(5, 2, None)]);
    // Nobody to exchange them: the same where they match.
    let mut machine = full(Mode::Opmx, false, &[5]);
    machine.capacity[2] += 1;
    machine.sample();
    assert_eq!(machine.fault(18, Some(0)), [(5, 2, None)]);
}

/// 4.3, figure 8.
#[test]
fn a_promotion_takes_a_reserved_page_and_demotion_follows() {
    let mut machine = full(Mode::OpmBd, true, &[1, 2, 3, 4, 5]);
    machine.capacity[2] += 8;
    machine.sample();
    // Nothing is in reserve yet: one makes room as without a reserve, and three are demoted for it, in a batch.
    assert_eq!(
        machine.fault(18, Some(0)),
        [(1, 2, None), (2, 2, None), (3, 2, None), (4, 2, None)]
    );
    assert_eq!(machine.figure("reserve_empty"), 1);
    assert_eq!(machine.finish(1, MOVED).1, [(18, 0, None)]);
    for n in [2, 3, 4, 18] {
        assert!(machine.finish(n, MOVED).1.is_empty());
    }
    machine.sample();
    assert_eq!(machine.figure("reserved_pages"), 3);
    // The first two are there at once; with one left it is below the mark.
    assert_eq!(machine.fault(19, Some(0)), [(19, 0, None)]);
    assert_eq!(machine.fault(20, Some(0)), [(20, 0, None), (5, 2, None)]);
    // A reserved page that somebody else took is no more.
    assert!(machine.finish(20, Verdict::NoMemory).1.is_empty());
    assert_eq!(machine.figure("reserved_pages"), 0);
}

/// Across processes the agent cannot: learnt once, then one goes before the other.
#[test]
fn an_exchange_that_turns_out_impossible_is_not_asked_for_again() {
    let mut machine = full(Mode::Opmx, true, &[5]);
    assert_eq!(machine.fault(18, Some(0)), [(18, 0, Some(5))]);
    machine.finish(18, Verdict::Busy);
    // Of the same process it is asked for again.
    assert_eq!(machine.fault(18, Some(0)), [(18, 0, Some(5))]);
    machine.finish(18, Verdict::Busy);
    // The page of another.
    let other = |n| terrace_core::PageRef {
        pid: Pid(2),
        ..page(n)
    };
    let fault = |machine: &mut Machine| {
        let event = Event::HintFault {
            page: other(40),
            node: NodeId(2),
            write: false,
            idle: None,
            cpu_node: Some(NodeId(0)),
        };
        machine.policy.observe(machine.now, &event);
        machine.policy.poll_action()
    };
    let Some(terrace_policy::Action::Migrate { migration, .. }) = fault(&mut machine) else {
        panic!("an order");
    };
    assert!(matches!(
        migration,
        terrace_policy::Migration::Exchange { .. }
    ));
    let event = Event::Ended {
        page: other(40),
        migration,
        from: None,
        verdict: Verdict::Busy,
        mechanism: Mechanism::MovePages,
        took: Nanos::ZERO,
        inaccessible: Nanos::ZERO,
    };
    machine.policy.observe(machine.now, &event);
    machine.capacity[2] += 1;
    machine.sample();
    let Some(terrace_policy::Action::Migrate { migration, .. }) = fault(&mut machine) else {
        panic!("an order");
    };
    assert!(matches!(
        migration,
        terrace_policy::Migration::Demote { .. }
    ));
}
