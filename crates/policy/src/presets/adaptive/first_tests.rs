// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;
use crate::presets::adaptive::classes::level_of;
use crate::presets::adaptive::estimate::next_rate;

const TERMS: Terms = Terms {
    pass: 1.0,
    gamma: 0.998,
    saved_ns: 150.0,
    price: 150.0 * 20.0,
    cost: 4_000.0,
    ask: 0.0,
};

/// What readings show of pages of which so large a share was not seen by some time; the classes that
/// there are, from the soonest seen on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "some thousand pages"
)]
fn waits(pages: f64, unseen: impl Fn(f64) -> f64) -> (Waits, Vec<usize>) {
    let (mut waits, mut classes) = (Waits::default(), Vec::new());
    let mut count = |share: f64, one: Seen| {
        let level = level_of(next_rate(0.0, one, 1));
        let pages = (pages * share).round() as u32;
        if pages > 0 {
            waits.count(pages, level, one);
            classes.push(class_of(level));
        }
    };
    let mut since = 0.0;
    for rung in 0..11 {
        let until = 0.001 * f64::from(1 << rung);
        let seen = true;
        count(unseen(since) - unseen(until), Seen { seen, since, until });
        since = until;
    }
    let (seen, until) = (false, since);
    count(
        unseen(until),
        Seen {
            seen,
            since: 0.0,
            until,
        },
    );
    (waits, classes)
}

#[test]
fn pages_that_are_alike_have_one_rate() {
    for rate in [0.3_f64, 3.0, 30.0] {
        let (waits, classes) = waits(1e5, |t| (-rate * t).exp());
        let (rates, worth) = (
            waits.rates(),
            waits.fit().expect("pages").differences(TERMS),
        );
        for class in &classes {
            assert!(
                (rates[*class] / rate - 1.0).abs() < 0.02,
                "{}",
                rates[*class]
            );
            assert!((worth[*class] - worth[classes[0]]).abs() < 1.0);
        }
    }
    // Every page once in two seconds, as a scan does.
    let (waits, classes) = waits(1e5, |t| 1.0 - t / 2.0);
    let rates = waits.rates();
    assert!(
        classes
            .iter()
            .all(|class| rates[*class] == rates[classes[0]])
    );
}

#[test]
fn who_is_hot_for_sure_moves_and_who_may_be_waits() {
    let (waits, classes) = waits(1e5, |t| 0.1 * (-300.0 * t).exp() + 0.9 * (-3.0 * t).exp());
    let rates = waits.rates();
    assert!(rates[classes[0]] > 250.0 && (rates[classes[11]] / 3.0 - 1.0).abs() < 0.05);
    let worth = waits.fit().expect("pages").differences(TERMS);
    let sorted = classes.windows(2).all(|two| worth[two[0]] >= worth[two[1]]);
    assert!(sorted, "{worth:?}");
    let coldest = worth[classes[11]];
    let moves = |at: usize| worth[classes[at]] - coldest > 2.0 * TERMS.cost;
    // Seen within 2 ms, and in 16 to 32 ms: a fifth of them is hot, which is more than nearly all are.
    assert!(
        moves(0) && moves(1) && rates[classes[5]] > 2.0 * 3.0 && !moves(5),
        "{worth:?}"
    );
}

#[test]
fn of_few_pages_little_is_believed() {
    let (few, classes) = waits(12.0, |t| (-3.0 * t).exp());
    let rates = few.rates();
    assert!(
        classes
            .iter()
            .all(|class| (rates[*class] / 3.0 - 1.0).abs() < 0.7)
    );
    assert!((Waits::default().rates()[70] / class_rate(70) - 0.5).abs() < 1e-9);
}

proptest! {
    /// Whatever is seen, there is a number for it.
    #[test]
    fn rates_are_finite_and_not_negative(
        seen in prop::collection::vec((1_u32..10_000, any::<bool>(), 0.0_f64..1.0, prop::sample::select(vec![0.0, 1e-9, 1e-3, 1.0, 60.0])), 0..30),
    ) {
        let mut waits = Waits::default();
        for (pages, seen, part, until) in seen {
            let one = Seen { seen, since: if seen { part * until } else { 0.0 }, until };
            waits.count(pages, level_of(1.0 / one.exposure()), one);
        }
        prop_assert!(waits.rates().iter().all(|rate| rate.is_finite() && *rate >= 0.0));
        if let Some(fit) = waits.fit() {
            prop_assert!(fit.mean().is_finite() && fit.mean() >= 0.0, "{}", fit.mean());
        }
    }
}
