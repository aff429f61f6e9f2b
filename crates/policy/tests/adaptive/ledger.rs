// SPDX-License-Identifier: MIT OR Apache-2.0
//! Moves take no more than they may, and what brings nothing is undone.

use proptest::prelude::*;
use terrace_core::Nanos;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::machine::Dice;
use crate::machine::Machine;
use crate::nodes::tiers;

const PAGES: usize = 2048;
const FAST_PAGES: usize = 512;
const FAST: u64 = FAST_PAGES as u64;

/// A machine whose fast memory is full of the first pages, where what was counted is never forgotten.
fn machine(ledger: bool) -> Machine {
    let params = Params {
        reserve: Some(0),
        horizon: Nanos::from_secs(1 << 30),
        ledger,
        ..Params::default()
    };
    let at = (0..PAGES)
        .map(|page| u16::from(page as u64 >= FAST))
        .collect();
    Machine::on(Adaptive::new(params, tiers(FAST)), at, vec![FAST, 1 << 22])
}

/// So many pages from one on are visited so often, the others hardly ever.
fn hot(from: usize, pages: usize, rate: f64) -> impl Fn(usize, &mut Dice, f64) -> f64 {
    move |page, dice, _| {
        let is_hot = (page + PAGES - from) % PAGES < pages;
        dice.exponential() / if is_hot { rate } else { 0.01 }
    }
}

/// What a program does in a pass: which pages are hot and how much, in decades.
type Does = (usize, usize, i32);

/// What moves had taken beyond what they might have, ns, when it was most and one was made. What is lost later takes no move.
fn over(does: &[Does], price: Nanos, with: bool) -> f64 {
    let mut machine = machine(with);
    machine.price = price;
    let mut most = f64::NEG_INFINITY;
    let (mut spent, mut earned) = (0, 0.0);
    for (from, pages, rate) in does {
        machine.pass(hot(*from, *pages, 10_f64.powi(*rate)));
        let before = std::mem::replace(&mut spent, machine.spent);
        let now = machine.explain(None).map_or(0.0, |belief| {
            belief.ledger.map_or(0.0, |ledger| ledger.earned_ns)
        });
        // Orders are of some time of the pass.
        let then = now.max(std::mem::replace(&mut earned, now));
        if spent > before {
            let once = (PAGES as u64 * price.0.max(10_000)) as f64;
            let ran = machine.seconds() as f64 * 1e9;
            most = most.max(spent as f64 - once - 0.01 * ran - then);
        }
    }
    most
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However a program's pages change, no move leads away from where a page was that would have such moves take more than each page once,
    /// a hundredth of the time and what they brought.
    #[test]
    fn whatever_a_program_does_moves_take_no_more_than_they_may(
        does in prop_oneof![
            prop::collection::vec((0..PAGES, 1..FAST_PAGES, 0..4_i32), 10..40),
            (1..FAST_PAGES, 1..64_usize).prop_map(|(pages, step)| goes_on(pages, step)),
        ],
        price in 100_000..5_000_000_u64,
    ) {
        let over = over(&does, Nanos(price), true);
        prop_assert!(over <= 0.0, "{over} ns more");
    }
}

/// A hot set that goes on by so many pages a pass.
fn goes_on(pages: usize, step: usize) -> Vec<Does> {
    let pass = |pass: usize| (pass * step % PAGES, pages, 3);
    (0..120).map(pass).collect()
}

/// A hot set that is followed and gone when the moves would have paid, for which they are dear.
#[test]
fn without_it_moves_take_more_than_they_may() {
    let does = goes_on(FAST_PAGES / 2, 32);
    let [with, without] = [true, false].map(|with| over(&does, Nanos::from_millis(1), with));
    assert!(
        with < 0.0 && without > 5e8,
        "{with} ns more, {without} without"
    );
}
