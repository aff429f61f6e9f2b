// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two sockets with DRAM and persistent memory at each: straight to the best place that pays, as the one who accesses it sees it.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_core::Views;
use terrace_policy::Share;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::machine::Dice;
use crate::machine::Machine;
use crate::nodes::two_sockets;

const PAGES: usize = 8192;
const DRAM: usize = PAGES / 8;

fn machine(at: Vec<u16>) -> Machine {
    machine_with(Params::default(), at)
}

fn machine_with(params: Params, at: Vec<u16>) -> Machine {
    let params = Params {
        reserve: Some(DRAM as u64 / 64 * 4096),
        ..params
    };
    let (tiers, views): (Tiers, Views) = two_sockets(DRAM as u64);
    let policy = Adaptive::on(params, tiers, views);
    Machine::on(policy, at, vec![DRAM as u64, DRAM as u64, 1 << 22, 1 << 22])
}

/// How many of these pages are on that node, hundredths.
fn share(machine: &Machine, pages: std::ops::Range<usize>, node: u16) -> usize {
    let all = pages.len();
    let there = machine.at[pages].iter().filter(|at| **at == node);
    there.count() * 100 / all
}

/// Visits a second by eighths of the memory.
fn eighths(rates: [f64; 8]) -> impl Fn(usize, &mut Dice, f64) -> f64 {
    move |page, dice, _| dice.exponential() / rates[page / DRAM]
}

#[test]
fn what_is_hottest_is_nearest_and_what_is_warm_on_the_other_socket() {
    let mut machine = machine(vec![3; PAGES]);
    machine.runs_on(false, Some(NodeId(0)));
    for _ in 0..12 {
        machine.pass(eighths([0.05, 0.05, 0.05, 500.0, 0.05, 50.0, 0.05, 0.05]));
    }
    let of = |eighth: usize, node: u16| share(&machine, eighth * DRAM..(eighth + 1) * DRAM, node);
    assert!(of(3, 0) >= 95, "{} % of the hot pages are local", of(3, 0));
    assert!(
        of(5, 1) >= 90,
        "{} % of the warm ones are remote DRAM's",
        of(5, 1)
    );
    // Straight there, not by the tiers between, but for those that looked warm at first.
    let hot = (3 * DRAM as u64)..(4 * DRAM as u64);
    let orders = machine.orders.iter().filter(|(page, _)| hot.contains(page));
    let moves = orders.count();
    assert!(moves * 2 < DRAM * 3, "{moves} moves of {DRAM} hot pages");
}

/// Two halves whose hot pages are each on the other's socket, and both are full.
fn across() -> Vec<u16> {
    let half = PAGES / 2;
    let at = |page: usize| match page {
        page if page < DRAM - 32 => 1,
        page if (half..half + DRAM - 32).contains(&page) => 0,
        page if page < half => 2,
        _ => 3,
    };
    (0..PAGES).map(at).collect()
}

/// How much of each hot part is on the node of who accesses it.
fn own(machine: &Machine) -> [usize; 2] {
    let half = PAGES / 2;
    [
        share(machine, 0..DRAM, 0),
        share(machine, half..half + DRAM, 1),
    ]
}

/// Two programs, each with a half.
fn crossed(bound: bool) -> Machine {
    let mut machine = machine(across());
    machine.second = PAGES / 2;
    for (second, node) in [(false, 0), (true, 1)] {
        machine.runs_on(second, bound.then_some(NodeId(node)));
    }
    for _ in 0..12 {
        machine.pass(eighths([500.0, 0.2, 0.2, 0.2, 500.0, 0.2, 0.2, 0.2]));
    }
    machine
}

#[test]
fn pages_of_programs_that_are_bound_change_sockets() {
    let machine = crossed(true);
    let own = own(&machine);
    assert!(own.iter().all(|own| *own >= 95), "{own:?} % are local");
}

fn without() -> Params {
    Params {
        accessors: false,
        ..Params::default()
    }
}

/// One program that runs on both sockets: those of one access the first half of its memory, those of the other the second, and the hot part of each is on
/// the other's node.
fn of_threads(params: Params, accessed_from: impl Fn(usize) -> u16 + 'static) -> Machine {
    let mut machine = machine_with(params, across());
    machine.accessed_from = Some(Box::new(accessed_from));
    for _ in 0..40 {
        machine.pass(eighths([500.0, 0.2, 0.2, 0.2, 500.0, 0.2, 0.2, 0.2]));
    }
    machine
}

#[test]
fn pages_go_to_the_socket_whose_threads_access_them() {
    let by_halves = |page: usize| u16::from(page >= PAGES / 2);
    let machine = of_threads(Params::default(), by_halves);
    let own_share = own(&machine);
    assert!(own_share.iter().all(|own| *own >= 95), "{own_share:?} %");
    assert_eq!(machine.figure("told_apart"), PAGES as u64);
    assert_eq!(machine.figure("faults"), machine.faults);
    // Two passes told, then one in ten minutes.
    assert!(machine.faults <= 3 * PAGES as u64, "{}", machine.faults);
    assert_eq!(machine.armed, Nanos::MAX);
    let machine = of_threads(without(), by_halves);
    assert_eq!(machine.faults, 0);
    let own_share = own(&machine);
    assert!(own_share.iter().all(|own| *own < 10), "{own_share:?} %");
}

#[test]
fn a_ceiling_is_of_the_dram_of_all_sockets() {
    let by_halves = |page: usize| u16::from(page >= PAGES / 2);
    let most = DRAM / 2;
    let mut machine = machine(vec![2; PAGES]);
    machine.accessed_from = Some(Box::new(by_halves));
    machine.shares(
        false,
        Share {
            ceiling_bytes: Some(most as u64 * 4096),
            ..Share::default()
        },
    );
    for _ in 0..40 {
        machine.pass(eighths([500.0, 0.2, 50.0, 0.2, 500.0, 0.2, 50.0, 0.2]));
    }
    assert!(machine.figure("told_apart") > PAGES as u64 / 2);
    let fast = machine.at.iter().filter(|at| **at < 2).count();
    assert!(
        fast > most * 9 / 10 && fast <= most,
        "{fast} pages of {most}"
    );
}

#[test]
fn what_both_sockets_access_stays_where_it_is() {
    // By the page, so that no part of 2 MiB is one socket's.
    let by_turns = |page: usize| u16::from(page.is_multiple_of(2));
    let machine = of_threads(Params::default(), by_turns);
    assert!(machine.faults > PAGES as u64 / 8);
    assert_eq!(machine.figure("told_apart"), 0);
    // One more plan, as a few cold parts look like one socket's for a while.
    let without = of_threads(without(), by_turns);
    let moves = [machine.moves, without.moves];
    assert!(moves[0] * 4 < moves[1] * 5, "{moves:?} moves");
}

#[test]
fn who_runs_everywhere_is_as_near_to_either_socket() {
    let machine = crossed(false);
    let hot = 2 * DRAM as u64;
    assert!(machine.moves * 5 < hot, "{} moves", machine.moves);
}
