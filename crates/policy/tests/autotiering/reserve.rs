// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reserved pages (4.3): how many, of which size, and what may be set.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_policy::Settings;
use terrace_policy::presets::autotiering::Mode;
use terrace_policy::presets::autotiering::Params;

use super::layouts::TWO;
use super::machine::EACH;
use super::machine::HIGH;
use super::machine::HUGE;
use super::machine::MOVED;
use super::machine::Machine;

/// The paper's numbers.
fn params() -> Params {
    let never = Nanos::from_secs(1 << 20);
    Params {
        mode: Mode::OpmBd,
        scan_period_min: never,
        scan_period_max: never,
        ..Params::default()
    }
}

const fn huge(at: u64) -> u64 {
    HUGE + at * EACH
}

fn read(given: &[&str]) -> Result<Params, String> {
    let given: Vec<String> = given.iter().map(|&one| one.to_owned()).collect();
    let mut settings = Settings::parse("autotiering", &given).expect("name=value");
    Params::read(&mut settings).map_err(|error| error.to_string())
}

#[test]
fn the_numbers_are_the_papers() {
    let params = read(&[]).expect("the defaults");
    assert_eq!((params.reserved_pages, params.reserved_low), (16, 4));
    assert_eq!((params.reserved_huge, params.reserved_huge_low), (4, 3));
    assert_eq!(params, Params::default());
}

#[test]
fn the_mark_is_no_more_than_there_is_in_reserve() {
    let error = read(&["reserved_pages=8", "reserved_low=9"]).expect_err("too many");
    assert_eq!(
        error,
        "Parameter reserved_low of 'autotiering' cannot be 9; give a whole number from 1 to reserved_pages"
    );
    let error = read(&["reserved_huge_low=5"]).expect_err("too many");
    assert!(error.ends_with("from 1 to reserved_huge"), "{error}");
    let params = read(&["reserved_low=8", "reserved_pages=8"]).expect("as many");
    assert_eq!(params.reserved_low, 8);
    // Of what is not given there is as much as can be.
    let params = read(&["reserved_pages=2", "reserved_huge=1"]).expect("fewer");
    assert_eq!((params.reserved_low, params.reserved_huge_low), (2, 1));
}

/// Four are demoted at once beside the one that makes room, and more when fewer than three are left.
#[test]
fn pages_of_2_mib_have_a_reserve_of_their_own() {
    let on = (0..16).map(|at| (huge(at), if at < 8 { 0 } else { 2 }));
    let mut machine = Machine::new(&TWO, params(), true, on.collect());
    machine.fill();
    for _ in 0..9 {
        machine.round(|n| n >= huge(8));
    }
    machine.capacity[2] += 8 * 512;
    machine.sample();
    assert_eq!(
        machine.fault(huge(8), Some(0)),
        [0, 1, 2, 3, 4].map(|at| (huge(at), 2, None))
    );
    assert_eq!(machine.figure("reserve_empty"), 1);
    assert_eq!(machine.finish(huge(0), MOVED).1, [(huge(8), 0, None)]);
    for at in [1, 2, 3, 4, 8] {
        assert!(machine.finish(huge(at), MOVED).1.is_empty());
    }
    machine.sample();
    let reserved = |machine: &Machine| {
        ["reserved_pages", "reserved_huge_pages"].map(|name| machine.figure(name))
    };
    assert_eq!(reserved(&machine), [0, 4]);
    assert_eq!(machine.fault(huge(9), Some(0)), [(huge(9), 0, None)]);
    assert_eq!(reserved(&machine), [0, 3], "three are enough");
    assert_eq!(
        machine.fault(huge(10), Some(0)),
        [(huge(10), 0, None), (huge(5), 2, None), (huge(6), 2, None)]
    );
    assert_eq!(machine.figure("from_reserve"), 2);
}

/// Of 4 KiB there is nothing to demote: a huge page makes room for many.
#[test]
fn a_huge_page_goes_where_there_is_no_other() {
    let on = [(8, 2), (9, 2), (huge(0), 0), (huge(1), 0)];
    let mut machine = Machine::new(&TWO, params(), true, on.into_iter().collect());
    machine.fill();
    for _ in 0..9 {
        machine.round(|n| n < HUGE);
    }
    machine.capacity[2] += 2 * 512;
    machine.sample();
    // One for the page, and one for the reserve.
    let both = [0, 1].map(|at| (huge(at), 2, None));
    assert_eq!(machine.fault(8, Some(0)), both);
    assert_eq!(machine.finish(huge(0), MOVED).1, [(8, 0, None)]);
    assert!(machine.finish(huge(1), MOVED).1.is_empty());
    assert_eq!(machine.figure("reserved_pages"), 512);
    assert_eq!(machine.fault(9, Some(0)), [(9, 0, None)]);
}

/// What is free at the start is in reserve first: nobody has to ask in vain.
#[test]
fn the_reserve_is_filled_at_the_start() {
    let on: BTreeMap<u64, u16> = (0..40).map(|n| (n, if n < 8 { 0 } else { 2 })).collect();
    let mut machine = Machine::new(&TWO, params(), true, on);
    machine.capacity = vec![8 + HIGH + 18, HIGH + 5, 200, 200];
    machine.sample();
    assert_eq!(machine.figure("reserved_pages"), 16 + 5);
    for _ in 0..9 {
        machine.round(|n| n >= 8);
    }
    // What is free beyond it is there for all.
    for n in [8, 9] {
        assert_eq!(machine.fault(n, Some(0)), [(n, 0, None)]);
    }
    assert_eq!(machine.figure("to_best"), 2);
    for n in 10..22 {
        assert_eq!(machine.fault(n, Some(0)), [(n, 0, None)]);
    }
    let took = ["from_reserve", "reserve_empty"].map(|name| machine.figure(name));
    assert_eq!(took, [12, 0]);
    // Memory that becomes free later is not held back.
    machine.capacity[1] += 4;
    machine.sample();
    assert_eq!(machine.fault(22, Some(1)), [(22, 1, None)]);
    assert_eq!(machine.figure("to_best"), 3);
}

/// 8 MiB of each node are held back only where somebody has pages of that size.
#[test]
fn huge_pages_are_in_reserve_once_there_are_some() {
    let on: BTreeMap<u64, u16> = (0..8).map(|n| (n, 2)).collect();
    let mut machine = Machine::new(&TWO, params(), true, on);
    machine.capacity = vec![3 * 512, 9 * 512, 4096, 4096];
    machine.sample();
    machine.round(|_| true);
    machine.sample();
    assert_eq!(machine.figure("reserved_huge_pages"), 0);
    machine.node.insert(huge(0), 2);
    machine.round(|_| true);
    machine.sample();
    // Two fit into the first node beside its reserve of 4 KiB.
    assert_eq!(machine.figure("reserved_huge_pages"), 2 + 4);
    assert_eq!(machine.figure("reserved_pages"), 2 * 16);
}
