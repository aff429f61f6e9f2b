// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages with a few hot parts are split, others are not.

use terrace_core::Nanos;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::machine::Dice;
use crate::machine::Machine;
use crate::nodes::tiers;

const CHUNKS: usize = 64;
const PARTS: usize = 512;
const PAGES: usize = CHUNKS * PARTS;

/// All its memory is in huge pages, the first quarter of them in fast memory.
fn machine(split: bool) -> Machine {
    machine_of(PAGES, PAGES / 4, split)
}

/// So many pages, the first of them in fast memory as far as that goes.
fn machine_of(pages: usize, fast: usize, split: bool) -> Machine {
    let params = Params {
        reserve: Some(0),
        split,
        ..Params::default()
    };
    let at = (0..pages).map(|page| u16::from(page >= fast)).collect();
    let fast = fast as u64;
    let mut machine = Machine::on(Adaptive::new(params, tiers(fast)), at, vec![fast, 1 << 22]);
    machine.huge.fill(true);
    machine
}

/// Of each huge page so many parts have nine visits in ten, which are so many a second to each of the pages.
fn skewed(parts: usize, visits: f64) -> impl Fn(usize, &mut Dice, f64) -> f64 {
    move |page, dice, _| {
        let (share, parts) = if page % PARTS < parts {
            (0.9, parts)
        } else {
            (0.1, PARTS - parts)
        };
        dice.exponential() * parts as f64 / (visits * share)
    }
}

/// All parts alike.
fn alike(_page: usize, dice: &mut Dice, _: f64) -> f64 {
    dice.exponential() * PARTS as f64 / 500.0
}

/// Hot parts of all huge pages that are fast.
fn hot_and_fast(machine: &Machine, parts: usize) -> usize {
    let hot = (0..PAGES).filter(|page| page % PARTS < parts);
    hot.filter(|page| machine.is_fast(*page)).count()
}

#[test]
fn the_hot_parts_of_all_huge_pages_are_fast_in_the_end() {
    // With 100,000 visits a second all are seen at every first reading, and some parts are.
    for (parts, visits) in [(1, 500.0), (16, 500.0), (1, 1e5), (16, 1e5)] {
        let [mut with, mut without] = [true, false].map(machine);
        for _ in 0..15 {
            with.pass(skewed(parts, visits));
            without.pass(skewed(parts, visits));
        }
        let believed = with.explain(None).expect("it is known");
        assert_eq!(believed.surprised_s, None, "what we split is no new phase");
        let fast = hot_and_fast(&with, parts);
        assert!(
            fast >= CHUNKS * parts * 97 / 100,
            "{fast} of {CHUNKS} x {parts}"
        );
        // Each page twice: up as a whole before it is split, down in parts.
        let moved = with.pages_moved;
        assert!(
            moved < 2 * PAGES as u64,
            "{parts} parts, {visits} visits: {moved}"
        );
        assert_eq!(hot_and_fast(&without, parts), CHUNKS / 4 * parts);
        assert_eq!(without.splits, 0);
        assert_eq!(with.figure("splits"), with.splits);
    }
}

/// Nothing is to be had where parts are alike, where visits to parts take what is gained, where all fits, where there are few, or where a machine cannot.
#[test]
fn others_are_split_to_see_at_most() {
    let passes = |machine: &mut Machine, idle: &dyn Fn(usize, &mut Dice, f64) -> f64| {
        (0..40).for_each(|_| machine.pass(idle));
        machine.splits
    };
    assert_eq!(passes(&mut machine(true), &alike), 8);
    let few = &mut machine_of(PAGES - PARTS, PAGES / 4, true);
    assert_eq!(
        passes(few, &skewed(16, 500.0)),
        0,
        "eight are too many of them"
    );
    let mut dear = machine(true);
    dear.walk = Some(Nanos(160));
    assert_eq!(passes(&mut dear, &skewed(16, 500.0)), 8);
    let mut room = machine_of(PAGES, 2 * PAGES, true);
    assert_eq!(passes(&mut room, &skewed(16, 500.0)), 0);
    let mut cannot = machine(true);
    cannot.walk = None;
    assert_eq!(passes(&mut cannot, &skewed(16, 500.0)), 0);
    assert_eq!(cannot.asked, 8, "what is refused is not asked for again");
}
