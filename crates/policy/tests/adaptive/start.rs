// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program starts, reads its data and goes to work: what it did first does not stay in what is known of it.

use terrace_core::Nanos;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::EIGHTH;
use crate::PAGES;
use crate::QUARTER;
use crate::fast_of;
use crate::machine::Dice;
use crate::machine::Machine;
use crate::nodes::tiers;

/// When a page is first visited in a pass, s.
type Wait = fn(usize, &mut Dice) -> f64;

/// 25 visits a second of an eighth of the pages, and two in five seconds of the others.
fn eighth(from: usize, page: usize, dice: &mut Dice) -> f64 {
    let is_hot = (from..from + EIGHTH).contains(&page);
    dice.exponential() / if is_hot { 25.0 } else { 0.4 }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
fn fill(page: usize, _: &mut Dice) -> f64 {
    page as f64 / PAGES as f64
}

fn idle(_: usize, _: &mut Dice) -> f64 {
    1e9
}

fn all_hot(_: usize, dice: &mut Dice) -> f64 {
    dice.exponential() / 25.0
}

fn another(page: usize, dice: &mut Dice) -> f64 {
    eighth(PAGES * 3 / 4, page, dice)
}

/// How long after passes of these it takes until nine in ten pages of a hot eighth are fast, s, where fast memory is empty or full of others; and how
/// many surprises there were. A pass is dear, so that passes become longer: of up to 16 s.
fn found_after(first: &[Wait], empty: bool) -> (u64, u64) {
    let params = Params {
        reserve: Some(0),
        ..Params::default()
    };
    let at = (0..PAGES).map(|page| u16::from(empty || page >= PAGES / 4));
    let policy = Adaptive::new(params, tiers(QUARTER));
    let mut machine = Machine::on(policy, at.collect(), vec![QUARTER, 1 << 22]);
    machine.price = Nanos(90_000);
    machine.busy = Nanos::from_millis(150);
    for wait in first {
        machine.pass(|page, dice, _| wait(page, dice));
    }
    let (from, began) = (PAGES / 2, machine.seconds());
    while fast_of(&machine, from) < EIGHTH * 9 / 10 && machine.seconds() < began + 300 {
        machine.pass(|page, dice, _| eighth(from, page, dice));
    }
    (machine.seconds() - began, machine.figure("surprises"))
}

#[test]
fn what_a_program_did_first_is_forgotten() {
    let cases: [(&str, &[Wait]); 7] = [
        ("filled", &[fill]),
        ("filled, and waited", &[fill, idle]),
        ("waited", &[idle]),
        ("waited long", &[idle as Wait; 4]),
        ("all hot", &[all_hot]),
        ("all hot for long", &[all_hot as Wait; 4]),
        ("another eighth hot", &[another as Wait; 4]),
    ];
    for (what, first) in cases {
        for empty in [true, false] {
            let (seconds, surprises) = found_after(first, empty);
            println!("{what}, {empty}: {seconds} s, {surprises}");
            assert!(seconds <= 26, "{what}, {empty}: found after {seconds} s");
            assert!(surprises <= 1, "{what}, {empty}: {surprises} surprises");
        }
    }
}
