// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use proptest::prelude::*;

/// Seen, or not, after that many seconds.
const fn at(seen: bool, seconds: f64) -> Seen {
    let (since, until) = (if seen { seconds } else { 0.0 }, seconds);
    Seen { seen, since, until }
}

const PASS: Seen = at(true, 0.5);

/// After a first pass in which nothing was counted.
fn begun() -> Transitions {
    let mut one = Transitions::new();
    one.count(1, [0; 2], Known::Hardly, PASS);
    one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0);
    one
}

#[test]
fn before_anything_was_counted_pages_stay_and_rates_are_believed_by_half() {
    let one = Transitions::new();
    for (class, row) in one.matrix().rows().enumerate() {
        assert!((row.of(class) - 1.0).abs() < 1e-9);
    }
    for (class, rate) in one.rates().iter().enumerate() {
        assert!((rate / class_rate(class) - 0.5).abs() < 1e-9);
    }
}

/// Parts of a large process are in the second pass when its first is over: what is counted of them says little of all pages.
#[test]
fn first_waits_say_rates_until_the_second_pass_is_over() {
    let mut one = Transitions::new();
    for (pages, level, seen) in [(500, 80, false), (500, 160, true)] {
        one.count(pages, [0, level], Known::Well, at(seen, 1.0));
        one.count_first(pages, level, at(seen, if seen { 0.01 } else { 1.0 }));
    }
    let first = one.rates();
    for _ in 0..2 {
        assert!(!one.is_counted() && one.first().is_some());
        assert_eq!(one.rates(), first);
        one.count(1, [80; 2], Known::Hardly, PASS);
        one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0);
    }
    assert!(one.is_counted() && one.first().is_none());
    assert_ne!(one.rates(), first);
}

#[test]
fn an_estimate_that_settles_is_no_change_of_its_page() {
    let mut one = begun();
    for _ in 0..30 {
        one.count(1, [100; 2], Known::Hardly, PASS);
    }
    assert!(!one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0));
    assert!((one.matrix().row(50).of(50) - 1.0).abs() < 1e-9);
    assert!(one.rates()[50] > class_rate(50) / 2.0, "but it was seen");
    assert!(!one.trained);
}

/// What M was counted by says nothing of them; when they were counted once it does.
#[test]
fn pages_that_are_new_are_no_surprise() {
    let surprises = |fallen: [Known; 2]| {
        let mut one = Transitions::new();
        let mut pass = |fallen: Option<Known>| {
            for _ in 0..500 {
                one.count(1, [200, 200], Known::Well, PASS);
                if let Some(known) = fallen {
                    one.count(1, [60, 20], known, at(false, 1.0));
                }
            }
            one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0)
        };
        (0..3).for_each(|_| assert!(!pass(None)));
        fallen.map(|known| pass(Some(known)))
    };
    assert_eq!(surprises([Known::New, Known::Well]), [false; 2]);
    assert_eq!(surprises([Known::Well; 2]), [true, false]);
}

/// A few that do what nobody expected are no new phase of a process whose other pages nothing is known of yet.
#[test]
fn a_surprise_is_one_of_all_pages() {
    let surprises = |settling: u32| {
        let mut one = Transitions::new();
        let mut pass = |to: Level| {
            one.count(100, [200, to], Known::Well, PASS);
            one.count(settling, [60, 60], Known::Hardly, at(false, 1.0));
            let so_far = one.surprised_so_far(&one.matrix(), |_| 0, 0.5);
            [so_far, one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0)]
        };
        (0..3).for_each(|_| assert_eq!(pass(200), [false; 2]));
        pass(100)
    };
    assert_eq!(surprises(0), [true; 2]);
    assert_eq!(surprises(10_000), [false; 2]);
}

/// Each pass they come to a class that nobody was in before.
#[test]
fn pages_that_are_never_touched_are_no_surprise_while_their_estimate_falls() {
    let falls = |unseen: fn(usize) -> usize| {
        let mut one = Transitions::new();
        let passes = (0..6_u8).map(|pass| {
            let level = 120 - 8 * pass - pass % 2 * 3;
            for _ in 0..500 {
                one.count(
                    1,
                    [level, level - 8 - pass % 2 * 3],
                    Known::Well,
                    at(false, 1.0),
                );
                one.count(1, [200, 200], Known::Well, PASS);
            }
            one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, unseen)
        });
        passes.filter(|surprised| *surprised).count()
    };
    assert_eq!(falls(|class| class), 0);
    assert!(falls(|_| 0) > 0, "by their classes alone they would be");
}

/// Seen soon are pages that were taken to be idle; that those that are not seen any more are missing is known at the end only.
#[test]
fn what_was_seen_so_far_can_be_a_surprise() {
    let mut one = Transitions::new();
    let usual = |one: &mut Transitions| {
        for _ in 0..500 {
            one.count(1, [200, 200], Known::Well, PASS);
        }
    };
    for _ in 0..3 {
        usual(&mut one);
        for _ in 0..500 {
            one.count(1, [20, 20], Known::Well, at(false, 1.0));
        }
        one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |class| class);
    }
    let least = |_| 90;
    assert!(!one.surprised_so_far(&one.matrix(), least, 0.5));
    usual(&mut one);
    assert!(!one.surprised_so_far(&one.matrix(), least, 0.5));
    for _ in 0..200 {
        one.count(1, [20, 200], Known::Well, PASS);
    }
    assert!(one.surprised_so_far(&one.matrix(), least, 0.5));
}

/// The equations as they are written.
fn slow(one: &Transitions) -> (Matrix, Vec<f64>) {
    let near = |class: usize, of: &dyn Fn(usize) -> f64| -> f64 {
        let others = (0..CLASSES).filter(|other| *other != class);
        let weight = |other: usize| 0.5_f64.powf(class.abs_diff(other) as f64);
        others.map(|other| weight(other) * of(other)).sum()
    };
    let counts = |class: usize| one.counts.row(class).copied().unwrap_or([0.0; CLASSES]);
    let all = |class: usize| counts(class).iter().sum::<f64>();
    let rows = (0..CLASSES).map(|class| {
        let mut row = counts(class);
        let least = -i32::try_from(class).unwrap();
        for rise in -127_i32..=127 {
            let of = |other: usize| {
                let to = i32::try_from(other).unwrap() + rise;
                let to = usize::try_from(to).ok().filter(|to| *to < CLASSES);
                to.map_or(0.0, |to| counts(other)[to])
            };
            let stays = if rise == 0 { ROW_PRIOR } else { 0.0 };
            let prior = (near(class, &of) + stays) / (near(class, &all) + ROW_PRIOR);
            let to = class.saturating_add_signed(rise.max(least) as isize);
            row[to.min(CLASSES - 1)] += ROW_PRIOR * prior;
        }
        row.map(|count| count / (all(class) + ROW_PRIOR))
    });
    let counted = std::array::from_fn(|class| {
        let prior = (near(class, &|other| one.seen[other]) + RATE_PRIOR / 2.0)
            / (near(class, &|other| one.exposure[other]) + RATE_PRIOR / class_rate(class));
        [
            one.seen[class] + RATE_PRIOR,
            one.exposure[class] + RATE_PRIOR / prior,
        ]
    });
    (rows.collect(), rising(&counted).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn rows_and_rates_are_the_equations(
        counted in prop::collection::vec((any::<u8>(), any::<u8>(), any::<bool>(), 0.001_f64..2.0), 1..200),
    ) {
        let mut one = begun();
        for (from, to, seen, exposure) in counted {
            one.count(1, [from, to], Known::Well, at(seen, exposure));
        }
        one.end_pass(&one.matrix(), (0.9, 1.0), f64::INFINITY, |_| 0);
        let (m, r) = slow(&one);
        for (row, slow) in one.matrix().rows().zip(m.rows()) {
            prop_assert!((row.iter().map(|(_, share)| share).sum::<f64>() - 1.0).abs() < 1e-9);
            prop_assert!((0..CLASSES).all(|to| (row.of(to) - slow.of(to)).abs() < 1e-9));
        }
        prop_assert!(one.rates().iter().zip(&r).all(|(a, b)| (a / b - 1.0).abs() < 1e-9));
    }
}

#[test]
fn a_pass_like_the_others_is_no_surprise_and_a_new_phase_is() {
    let mut one = Transitions::new();
    for _ in 0..10 {
        for _ in 0..500 {
            one.count(1, [100, 100], Known::Well, PASS);
            one.count(1, [20, 20], Known::Well, PASS);
        }
        assert!(!one.end_pass(&one.matrix(), (0.9, 1.0), 0.5, |_| 0));
    }
    for _ in 0..500 {
        one.count(1, [100, 20], Known::Well, PASS);
        one.count(1, [20, 100], Known::Well, PASS);
    }
    assert!(one.end_pass(&one.matrix(), (0.9, 1.0), 2.0, |_| 0));
    assert!(
        !one.end_pass(&one.matrix(), (0.9, 1.0), 2.0, |_| 0),
        "a pass without a page says nothing"
    );
}
