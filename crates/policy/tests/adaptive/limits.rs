// SPDX-License-Identifier: MIT OR Apache-2.0
//! A fast node under its high watermark: who goes down where one of two programs is at its floor.

use terrace_policy::Share;

use crate::machine::Dice;
use crate::machine::Machine;
use crate::nodes::PAGE;

const HALF: usize = 2048;
const FAST: usize = 1024;
const FLOOR: usize = 512;

/// Each program has half of the fast node at first, which is under its high watermark after the first pass; the second one's pages are worth
/// less. Gives the pages of either that are fast in the end, and how many of the second one's went down.
fn fast_pages(floor: Option<u64>) -> ([usize; 2], usize) {
    let mut machine = Machine::new(2 * HALF, FAST as u64);
    machine.second = HALF;
    machine.at = (0..2 * HALF)
        .map(|page| u16::from(page % HALF >= FAST / 2))
        .collect();
    if let Some(floor_bytes) = floor {
        let share = Share {
            floor_bytes,
            ..Share::default()
        };
        machine.shares(true, share);
    }
    let idle = |page: usize, dice: &mut Dice, _| {
        dice.exponential() / if page < HALF { 100.0 } else { 2.0 }
    };
    for pass in 0..6 {
        machine.high = if pass == 0 { 0 } else { FAST as u64 / 8 };
        machine.pass(idle);
    }
    let fast = |of: std::ops::Range<usize>| of.filter(|page| machine.is_fast(*page)).count();
    let down = |(page, up): &&(u64, bool)| *page >= HALF as u64 && !up;
    let down = machine.orders.iter().filter(down).count();
    ([fast(0..HALF), fast(HALF..2 * HALF)], down)
}

#[test]
fn who_is_at_its_floor_does_not_make_room_for_the_kernel() {
    let ([_, without], _) = fast_pages(None);
    assert!(without < FLOOR * 3 / 4, "{without} pages are least worth");
    let ([other, own], down) = fast_pages(Some(FLOOR as u64 * PAGE));
    assert!(own >= FLOOR, "{own} pages are fast");
    assert!(down < FLOOR / 16, "{down} went down");
    let short = FAST - FAST / 8;
    assert!(other + own <= short, "{other} and {own} pages are fast");
}
