// SPDX-License-Identifier: MIT OR Apache-2.0
//! The default policy on a small machine: finds what is hot, leaves alone what is not worth it.

#[path = "adaptive/early.rs"]
mod early;
#[path = "adaptive/huge.rs"]
mod huge;
#[path = "adaptive/ledger.rs"]
mod ledger;
#[path = "adaptive/limits.rs"]
mod limits;
#[path = "adaptive/machine.rs"]
mod machine;
#[path = "adaptive/nodes.rs"]
mod nodes;
#[path = "adaptive/several_tiers.rs"]
mod several_tiers;
#[path = "adaptive/start.rs"]
mod start;

use machine::Dice;
use machine::Machine;
use nodes::PAGE;
use nodes::tiers;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_policy::belief::ClassBelief;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

const PAGES: usize = 8192;
const QUARTER: u64 = PAGES as u64 / 4;
const EIGHTH: usize = PAGES / 8;

/// Nine accesses in ten go to the hot pages: 500 a second each, the others 8.
fn hot(from: usize) -> impl Fn(usize, &mut Dice, f64) -> f64 {
    move |page, dice, _| {
        let rate = if (from..from + EIGHTH).contains(&page) {
            500.0
        } else {
            8.0
        };
        dice.exponential() / rate
    }
}

fn fast_of(machine: &Machine, from: usize) -> usize {
    let hot = from..from + EIGHTH;
    hot.filter(|page| machine.is_fast(*page)).count()
}

#[test]
fn a_hot_eighth_is_found_within_three_passes_and_stays() {
    let mut machine = Machine::new(PAGES, QUARTER);
    let from = PAGES / 2;
    assert_eq!(fast_of(&machine, from), 0, "fast memory is full of others");
    for _ in 0..3 {
        machine.pass(hot(from));
    }
    let found = fast_of(&machine, from);
    assert!(found > EIGHTH * 97 / 100, "{found} of {EIGHTH}");
    for _ in 0..20 {
        machine.pass(hot(from));
    }
    let found = fast_of(&machine, from);
    assert!(found > EIGHTH * 99 / 100, "{found} of {EIGHTH}");
}

/// A device has half of the hot set pinned on slow memory: the other half is found as fast as ever, and the pinned pages are tried again
/// and again, ever less often.
#[test]
fn pages_that_never_move_keep_no_others_from_moving() {
    let mut machine = Machine::new(PAGES, PAGES as u64 / 4);
    let from = PAGES - PAGES / 8;
    machine.pinned = Box::new(|page| page >= PAGES - PAGES / 16);
    for _ in 0..4 {
        machine.pass(hot(from));
    }
    let movable = PAGES / 16;
    assert!(fast_of(&machine, from) > movable * 9 / 10);
    let at_first = machine.stayed;
    assert!(at_first > movable as u64 / 2, "{at_first}");
    for _ in 0..60 {
        machine.pass(hot(from));
    }
    let tries = machine.stayed / movable as u64;
    assert!((4..9).contains(&tries), "{tries}");
}

/// New memory where pages never moved waits for nothing.
#[test]
fn what_was_unmapped_waits_no_more() {
    let mut machine = Machine::new(PAGES, PAGES as u64 / 4);
    let from = PAGES - PAGES / 8;
    let pinned = PAGES - PAGES / 16;
    machine.pinned = Box::new(move |page| page >= pinned);
    for _ in 0..34 {
        machine.pass(hot(from));
    }
    machine.pinned = Box::new(|_| false);
    machine.unmapped(pinned..PAGES);
    for _ in 0..4 {
        machine.pass(hot(from));
    }
    let found = fast_of(&machine, from);
    assert!(found > EIGHTH * 9 / 10, "{found} of {EIGHTH}");
}

/// What it says of itself is what it does: where pages are, what they are worth, why it moves or rests.
#[test]
fn it_says_what_it_believes() {
    let mut machine = Machine::new(PAGES, QUARTER);
    let from = PAGES / 2;
    for _ in 0..20 {
        machine.pass(hot(from));
    }
    let (hot_page, cold_page) = (Addr(from as u64 * PAGE), Addr(0));
    let about = |page| machine.explain(page).expect("it knows the process");
    let belief = about(None);
    let pages = |of: fn(&ClassBelief) -> u64| belief.classes.iter().map(of).sum::<u64>();
    let fast = (0..PAGES).filter(|page| machine.is_fast(*page)).count() as u64;
    assert_eq!(pages(|one| one.fast_pages), fast);
    assert_eq!(pages(|one| one.slow_pages), PAGES as u64 - fast);
    let rates: Vec<f64> = belief.classes.iter().map(|one| one.rate).collect();
    assert!(
        rates.is_sorted_by(|a, b| a > b),
        "the hottest first: {rates:?}"
    );
    assert!(belief.plan.best_slow_ns.is_some() && belief.plan.least_fast_ns.is_some());
    let page = |addr| about(Some(addr)).page.expect("it knows the page");
    let (hot, cold) = (page(hot_page), page(cold_page));
    assert!(
        hot.fast && hot.rate > cold.rate && hot.value_ns > cold.value_ns,
        "{hot:?} {cold:?}"
    );
    assert_eq!((hot.address, hot.bytes), (hot_page.0, 4096));
    let beyond = Addr(2 * PAGES as u64 * PAGE);
    assert!(about(Some(beyond)).page.is_none(), "not its memory");
}

/// What a visit is taken for, of pages visited eight times a second, where 128 samples a second stand for so many loads each, and the
/// program runs for that part of the time.
fn accesses_a_visit(loads: u64, part: f64) -> f64 {
    let mut machine = Machine::new(PAGES, QUARTER);
    machine.runs = Box::new(move |_, time| time * part);
    after_passes(&mut machine, 20, loads)
}

/// The same of that machine after so many passes.
fn after_passes(machine: &mut Machine, passes: u32, loads: u64) -> f64 {
    let mut before = 0;
    for _ in 0..passes {
        // As many as came in the pass before: passes become longer.
        let time = (machine.seconds() - before).max(1);
        before = machine.seconds();
        (0..128 * time).for_each(|_| machine.sampled(loads));
        machine.pass(|_, dice, _| dice.exponential() / 8.0);
    }
    let belief = machine.explain(None).expect("it knows the process");
    belief.accesses_a_visit
}

#[test]
fn a_visit_is_what_a_pmu_says_it_is_and_no_more_than_there_is_time_for() {
    let none = accesses_a_visit(0, 1.0);
    assert!((none - 1.0).abs() < 1e-9, "{none}");
    let three = accesses_a_visit(3 * 512, 1.0);
    assert!((2.5..3.5).contains(&three), "{three}");
    // 65,536 visits a second that take 100 ns or more with one load each.
    let short = accesses_a_visit(50 * 512, 0.02);
    assert!((1.0..3.5).contains(&short), "{short}");
}

/// How many of the hot and of the warm eighth come up in 30 passes of a program whose visits read 20 lines, one after the other, so
/// that it is the faster the more of them are in fast memory; and what a visit is taken for.
fn of_twenty_lines(response: bool) -> ([usize; 2], f64) {
    let params = Params {
        reserve: Some(0),
        response,
        ..Params::default()
    };
    let policy = Adaptive::new(params, tiers(QUARTER));
    let at = (0..PAGES)
        .map(|page| u16::from(page >= PAGES / 4))
        .collect();
    let mut machine = Machine::on(policy, at, vec![QUARTER, 1 << 22]);
    machine.price = Nanos::from_millis(1);
    let from = [PAGES / 2, PAGES / 2 + EIGHTH];
    let weight = move |page: usize| match page {
        page if (from[0]..from[0] + EIGHTH).contains(&page) => 50.0,
        page if (from[1]..from[1] + EIGHTH).contains(&page) => 3.0,
        _ => 0.1,
    };
    for _ in 0..30 {
        let read = |page| if machine.is_fast(page) { 80.0 } else { 250.0 };
        let visits = (0..PAGES).map(|page| weight(page) * (500.0 + 20.0 * read(page)));
        let all: f64 = (0..PAGES).map(weight).sum();
        let speed = (500.0 + 20.0 * 250.0) / (visits.sum::<f64>() / all);
        machine.pass(|page, dice, _| dice.exponential() / (weight(page) * speed));
    }
    let belief = machine.explain(None).expect("it knows the process");
    let found = from.map(|from| fast_of(&machine, from));
    (found, belief.accesses_a_visit)
}

/// The first moves pay with one access a visit; how the program's time answers to them says that it is more.
#[test]
fn what_a_visit_is_shows_in_what_moves_did() {
    let most = EIGHTH * 9 / 10;
    let (found, visit) = of_twenty_lines(false);
    assert!(found[0] > most && found[1] < EIGHTH / 4, "{found:?}");
    assert!((visit - 1.0).abs() < 1e-9, "{visit}");
    let (found, visit) = of_twenty_lines(true);
    assert!(found[0] > most && found[1] > most, "{found:?}");
    // 54,900 visits take a processor while all reads are slow: 18.2 us each, of which 20 accesses have 5,000 in 5,500.
    let access = 18_220.0 / 5_500.0;
    assert!((10.0 * access..20.5 * access).contains(&visit), "{visit}");
}

/// Where most passes read a sample, too: loads are sampled in all of them.
#[test]
fn a_visit_is_the_same_while_a_sample_is_read() {
    let mut machine = Machine::new(8 * PAGES, 2 * PAGES as u64);
    machine.busy = Nanos::from_millis(30);
    let three = after_passes(&mut machine, 60, 3 * 8 * 512);
    assert!(machine.figure("parts") > 1);
    assert!((2.5..3.5).contains(&three), "{three}");
}

/// Moves a pass, of those after the first ten, and surprises in all.
fn moves_at_rest(idle: impl Fn(usize, &mut Dice, f64) -> f64) -> (u64, u64) {
    let mut machine = Machine::new(PAGES, QUARTER);
    for _ in 0..10 {
        machine.pass(&idle);
    }
    let before = machine.moves;
    for _ in 0..20 {
        machine.pass(&idle);
    }
    ((machine.moves - before) / 20, machine.figure("surprises"))
}

/// When a program is stopped: in turns with when it runs, both for random times of that mean, s.
#[derive(Clone)]
struct Stops(Vec<(f64, f64)>);

impl Stops {
    fn new(seed: u64, (from, until): (f64, f64), (runs, stands): (f64, f64)) -> Self {
        let (mut dice, mut at, mut stops) = (Dice(seed), from, Vec::new());
        while at < until {
            let again = at + stands * dice.exponential();
            stops.push((at, again));
            at = again + runs * dice.exponential();
        }
        Self(stops)
    }

    /// How long it takes from then until it has run for so long.
    fn takes(&self, now: f64, ran: f64) -> f64 {
        let (mut at, mut left) = (now, ran);
        for &(stops, again) in self.0.iter().filter(|(_, again)| *again > now) {
            if at + left < stops {
                break;
            }
            left -= (stops - at).max(0.0);
            at = again;
        }
        at + left - now
    }

    /// What it runs in so long from then on.
    fn runs(&self, now: f64, time: f64) -> f64 {
        let overlap =
            |&(stops, again): &(f64, f64)| (again.min(now + time) - stops.max(now)).max(0.0);
        (time - self.0.iter().map(overlap).sum::<f64>()).max(0.0)
    }
}

/// A program that has no processor for a time is as it was.
#[test]
fn who_is_stopped_keeps_its_pages() {
    let from = PAGES / 2;
    let (mut passes, mut lost) = (0, 0);
    for means in [(0.25, 1.0), (3.0, 3.0), (0.1, 0.4)] {
        for seed in 1..3 {
            let mut machine = Machine::new(PAGES, QUARTER);
            let stops = Stops::new(seed, (13.0, 40.0), means);
            let page = hot(from);
            let same = stops.clone();
            machine.runs = Box::new(move |now, time| same.runs(now, time));
            while machine.seconds() < 45 {
                machine.pass(|index, dice, now| stops.takes(now, page(index, dice, now)));
                if machine.seconds() > 5 {
                    passes += 1;
                    lost += u64::from(fast_of(&machine, from) < EIGHTH * 9 / 10);
                }
            }
        }
    }
    assert!(
        lost * 20 < passes,
        "its hot pages were not fast after {lost} of {passes} passes"
    );
}

#[test]
fn uniform_access_moves_next_to_nothing() {
    let (moves, surprises) = moves_at_rest(|_, dice, _| dice.exponential() / 30.0);
    assert!(moves * 1000 < PAGES as u64, "{moves} pages a pass");
    assert_eq!(surprises, 0);
}

/// Nor before transitions are counted: what is likely chance is taken for that, in the first plan, too.
#[test]
fn uniform_access_moves_next_to_nothing_before_transitions_are_counted() {
    for rate in [1.0, 3.0, 8.0, 30.0] {
        let mut machine = Machine::new(PAGES, QUARTER);
        let mut moves = [0; 6];
        for after in &mut moves {
            machine.pass(|_, dice, _| dice.exponential() / rate);
            *after = machine.moves;
        }
        assert!(moves[0] * 100 < PAGES as u64, "{rate} a second: {moves:?}");
        assert!(moves[5] * 40 < PAGES as u64, "{rate} a second: {moves:?}");
    }
}

/// What would come up for it is as cold; only who is likely enough to be hot by its first wait is worth two moves.
#[test]
fn what_is_cold_beside_a_hot_set_that_is_fast_stays() {
    let mut machine = Machine::new(PAGES, QUARTER);
    machine.pass(hot(0));
    let first = machine.moves;
    assert!(first * 8 < PAGES as u64, "{first}");
    for _ in 0..5 {
        machine.pass(hot(0));
    }
    let more = machine.moves - first;
    assert!(more * 40 < PAGES as u64, "{more}");
    assert!(fast_of(&machine, 0) > EIGHTH * 99 / 100);
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
fn a_scan_moves_next_to_nothing() {
    let round = 2.7;
    let (moves, _) = moves_at_rest(|page, _, now| {
        let at = page as f64 / PAGES as f64 * round;
        (at - now % round).rem_euclid(round)
    });
    assert!(moves * 1000 < PAGES as u64, "{moves} pages a pass");
}

#[test]
fn a_hot_set_that_jumps_is_followed() {
    let mut machine = Machine::new(PAGES, QUARTER);
    for _ in 0..30 {
        machine.pass(hot(PAGES / 2));
    }
    let jumped = machine.seconds();
    while machine.seconds() < jumped + 20 {
        machine.pass(hot(PAGES - EIGHTH));
    }
    let found = fast_of(&machine, PAGES - EIGHTH);
    assert!(found > EIGHTH * 9 / 10, "{found} of {EIGHTH}");
}

/// Rates of three decades up to the top, in no order of addresses.
fn wide_rate(page: usize, top: f64) -> f64 {
    let mixed = (page as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let rank = mixed as f64 / f64::from(1 << 24);
    top * 0.001_f64.powf(rank)
}

fn wide(top: f64) -> impl Fn(usize, &mut Dice, f64) -> f64 {
    move |page, dice, _| dice.exponential() / wide_rate(page, top)
}

/// What fast memory serves of that.
fn wide_share(machine: &Machine) -> f64 {
    let fast = |page: &usize| machine.is_fast(*page);
    let served: f64 = (0..PAGES)
        .filter(fast)
        .map(|page| wide_rate(page, 1.0))
        .sum();
    served / (0..PAGES).map(|page| wide_rate(page, 1.0)).sum::<f64>()
}

/// Pages that are not seen for long have estimates that fall, pass by pass: no new phase.
#[test]
fn pages_of_low_rates_are_told_apart_in_time_and_surprise_nobody() {
    for top in [50.0, 5.0, 1.0] {
        let mut machine = Machine::new(PAGES, 2 * QUARTER);
        machine.busy = Nanos::from_millis(200);
        for _ in 0..24 {
            machine.pass(wide(top));
        }
        let share = wide_share(&machine);
        assert_eq!(machine.figure("surprises"), 0, "{top} a second");
        assert!(share > 0.95, "{top} a second: {share}, the best is 0.969");
    }
}

/// A class is an estimate, and pages of nearly the same rate look different each time.
#[test]
fn pages_of_nearly_the_same_rate_do_not_change_places_for_ever() {
    let run = |later: bool| {
        let mut machine = Machine::new(PAGES, QUARTER);
        let params = Params {
            reserve: Some(0),
            later,
            ..Params::default()
        };
        machine.policy = Adaptive::new(params, tiers(QUARTER));
        for _ in 0..60 {
            machine.pass(wide(50.0));
        }
        let before = machine.moves;
        for _ in 0..60 {
            machine.pass(wide(50.0));
        }
        (machine.moves - before, wide_share(&machine))
    };
    let ((moves, share), (by_value, share_by_value)) = (run(true), run(false));
    assert!(
        moves * 2 < by_value,
        "{moves} pages, and {by_value} without it"
    );
    assert!(
        share > share_by_value - 0.01,
        "{share}, and {share_by_value} without it"
    );
}

/// At rest a pass is long; a hot set that jumps in one is not waited for until it is over, let alone until the next one is.
#[test]
fn a_jump_is_seen_within_a_pass() {
    let mut machine = Machine::new(PAGES, QUARTER);
    machine.busy = Nanos::from_millis(80);
    for _ in 0..30 {
        machine.pass(hot(PAGES / 2));
    }
    let pass = machine.figure("pass_ms");
    assert!(pass >= 8_000, "reading takes 1 % of a processor: {pass} ms");
    assert_eq!(machine.figure("surprises"), 0);
    let jumped = machine.seconds();
    while fast_of(&machine, PAGES - EIGHTH) < EIGHTH * 9 / 10 {
        machine.pass(hot(PAGES - EIGHTH));
    }
    let took = machine.seconds() - jumped;
    assert!(took <= 3, "{took} s, with passes of {pass} ms before");
    assert_eq!(machine.figure("surprises"), 1);
}

/// Where nothing changes a sample is read, and everything once in a minute. What changes is seen in the sample, or by then.
#[test]
fn at_rest_a_sample_is_read_and_what_changes_is_followed() {
    let mut machine = Machine::new(8 * PAGES, 2 * PAGES as u64);
    machine.busy = Nanos::from_millis(30);
    let (mut read, mut parts) = (0, 0);
    for _ in 0..40 {
        machine.pass(hot(4 * PAGES));
        read += u64::from(machine.figure("parts") == 1);
        parts = parts.max(machine.figure("parts"));
    }
    assert_eq!(fast_of(&machine, 4 * PAGES), EIGHTH);
    assert_eq!(machine.figure("pass_ms"), 4_000);
    assert!(read < 16, "{read} passes of 40 read it all");
    assert_eq!(parts, 16, "128 chunks: eight of them are a sample");
    let before = machine.moves;
    for _ in 0..40 {
        machine.pass(hot(4 * PAGES));
    }
    let moves = machine.moves - before;
    assert!(moves * 1000 < 8 * PAGES as u64, "{moves} moves");
    assert_eq!(machine.figure("surprises"), 0);
    let jumped = machine.seconds();
    while fast_of(&machine, 0) < EIGHTH * 9 / 10 {
        machine.pass(hot(0));
    }
    let took = machine.seconds() - jumped;
    assert!(took < 80, "{took} s");
}

/// A large process is cleared and read part by part: a part is read for the last time before another is half through.
#[test]
fn parts_that_are_read_later_are_of_the_same_pass() {
    let mut machine = Machine::new(PAGES, QUARTER);
    machine.lag = 700_000_000;
    for _ in 0..8 {
        machine.pass(hot(PAGES / 2));
    }
    assert_eq!(machine.figure("passes"), 8);
    let found = fast_of(&machine, PAGES / 2);
    assert!(found > EIGHTH * 99 / 100, "{found} of {EIGHTH}");
}

/// Reading is cheap; what costs is that the program sets its bits again. There is nothing left to find.
#[test]
fn who_loses_time_to_it_is_looked_at_seldom() {
    let rest = |lost| {
        let mut machine = Machine::new(PAGES, QUARTER);
        (machine.busy, machine.lost) = (Nanos::from_millis(1), Nanos::from_millis(lost));
        for _ in 0..10 {
            machine.pass(hot(PAGES / 2));
        }
        assert_eq!(fast_of(&machine, PAGES / 2), EIGHTH);
        machine.figure("pass_ms")
    };
    assert_eq!(rest(0), 1_000);
    let seldom = rest(150);
    assert!(seldom >= 15_000, "1 % of the program's time: {seldom} ms");
}

#[test]
fn the_same_events_give_the_same_orders() {
    let run = || {
        let mut machine = Machine::new(PAGES, QUARTER);
        for pass in 0..8 {
            machine.pass(hot(if pass < 5 { PAGES / 2 } else { 0 }));
        }
        machine.orders
    };
    let orders = run();
    assert!(orders.len() > EIGHTH);
    assert_eq!(orders, run());
}
