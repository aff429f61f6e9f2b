// SPDX-License-Identifier: MIT OR Apache-2.0
use proptest::prelude::*;

use super::*;

fn figure(run: &str) -> Term {
    Term::Figure {
        run: run.to_owned(),
        metric: "m".to_owned(),
    }
}

fn compared(operator: Operator, factor: f64, slack: Slack, left: f64, right: f64) -> bool {
    let relation = Relation::Compare {
        left: figure("l"),
        operator,
        factor,
        right: figure("r"),
        slack,
    };
    relation
        .check(&|run, _| Some(if run == "l" { left } else { right }))
        .holds
}

fn row(rising: bool, factor: f64, tolerance: f64, figures: &[f64]) -> bool {
    let relation = Relation::Trend {
        metric: "m".to_owned(),
        over: (0..figures.len()).map(|i| i.to_string()).collect(),
        rising,
        factor,
        slack: Slack {
            tolerance,
            within: 0.0,
        },
    };
    relation
        .check(&|run, _| run.parse().ok().map(|i: usize| figures[i]))
        .holds
}

const NONE: Slack = Slack {
    tolerance: 0.0,
    within: 0.0,
};

#[test]
fn comparisons_at_their_bounds() {
    use Operator::About;
    use Operator::AtLeast;
    use Operator::AtMost;
    let tenth = Slack {
        tolerance: 0.1,
        within: 0.0,
    };
    let one = Slack {
        tolerance: 0.0,
        within: 1.0,
    };
    assert!(compared(AtLeast, 1.0, NONE, 10.0, 10.0));
    assert!(!compared(AtLeast, 1.0, NONE, 9.99, 10.0));
    assert!(compared(AtLeast, 1.0, tenth, 9.0, 10.0));
    assert!(!compared(AtLeast, 1.0, tenth, 8.9, 10.0));
    assert!(!compared(AtLeast, 2.0, tenth, 17.9, 10.0));
    assert!(compared(AtMost, 2.0, tenth, 22.0, 10.0));
    assert!(!compared(AtMost, 2.0, tenth, 22.1, 10.0));
    assert!(compared(About, 1.0, one, 11.0, 10.0));
    assert!(!compared(About, 1.0, one, 11.1, 10.0));
    assert!(!compared(About, 1.0, one, 8.9, 10.0));
}

#[test]
fn a_flat_row_is_no_trend() {
    assert!(row(true, 1.0, 0.0, &[1.0, 2.0, 3.0]));
    assert!(!row(false, 1.0, 0.0, &[1.0, 2.0, 3.0]));
    assert!(row(false, 1.0, 0.0, &[3.0, 2.0, 1.0]));
    assert!(!row(true, 1.0, 0.5, &[2.0, 2.0]));
    assert!(!row(true, 1.0, 0.0, &[1.0, 3.0, 2.9]));
    assert!(row(true, 1.0, 0.1, &[1.0, 3.0, 2.9]));
    assert!(!row(true, 4.0, 0.0, &[1.0, 2.0, 3.0]));
}

#[test]
fn a_quotient_is_divided() {
    let relation = Relation::Compare {
        left: Term::Quotient(Box::new(figure("a")), Box::new(figure("b"))),
        operator: Operator::AtLeast,
        factor: 1.0,
        right: Term::Number(2.0),
        slack: NONE,
    };
    let check = relation.check(&|run, _| Some(if run == "a" { 6.0 } else { 3.0 }));
    assert!(check.holds);
    assert_eq!(check.figures, [Some(2.0), Some(2.0)]);
    // Nothing divided by nothing is no figure.
    assert!(!relation.check(&|_, _| Some(0.0)).holds);
}

fn relation() -> impl Strategy<Value = Relation> {
    let operator = prop_oneof![
        Just(Operator::AtLeast),
        Just(Operator::AtMost),
        Just(Operator::About)
    ];
    let slack =
        (0.0..1.0f64, 0.0..10.0f64).prop_map(|(tolerance, within)| Slack { tolerance, within });
    let compare = (operator, 0.1..10.0f64, slack.clone()).prop_map(|(operator, factor, slack)| {
        Relation::Compare {
            left: figure("0"),
            operator,
            factor,
            right: figure("1"),
            slack,
        }
    });
    let trend =
        (any::<bool>(), 0.1..10.0f64, slack).prop_map(|(rising, factor, slack)| Relation::Trend {
            metric: "m".to_owned(),
            over: vec!["0".to_owned(), "1".to_owned()],
            rising,
            factor,
            slack,
        });
    prop_oneof![compare, trend]
}

proptest! {
    /// A figure that is missing, infinite or no number makes every relation fail.
    #[test]
    fn nothing_holds_over_nothing(
        relation in relation(),
        other in -1e9..1e9f64,
        bad in prop_oneof![Just(None), Just(Some(f64::NAN)), Just(Some(f64::INFINITY))],
        first in any::<bool>(),
    ) {
        let bad_run = if first { "0" } else { "1" };
        let check = relation.check(&|run, _| if run == bad_run { bad } else { Some(other) });
        prop_assert!(!check.holds);
    }

    /// `>=` and `<=` without slack are each other's opposite but for equality, and `about` is both.
    #[test]
    fn the_operators_agree(left in -1e6..1e6f64, right in -1e6..1e6f64, factor in 0.1..10.0f64, tolerance in 0.0..0.5f64) {
        let slack = Slack { tolerance, within: 0.0 };
        let least = compared(Operator::AtLeast, factor, slack, left, right);
        let most = compared(Operator::AtMost, factor, slack, left, right);
        prop_assert!(least || most);
        // Rounding may part them at the very edge of the slack.
        let edge = ((left - factor * right).abs() - tolerance * (factor * right).abs()).abs() < 1e-6;
        prop_assert!(edge || (least && most) == compared(Operator::About, factor, slack, left, right));
    }

    /// More slack never makes a comparison fail, and a better left side never does either.
    #[test]
    fn slack_only_helps(left in -1e6..1e6f64, right in -1e6..1e6f64, a in 0.0..1.0f64, b in 0.0..1.0f64, more in 0.0..1e6f64) {
        let (small, large) = (a.min(b), a.max(b));
        let with = |tolerance, left| compared(Operator::AtLeast, 1.0, Slack { tolerance, within: 0.0 }, left, right);
        prop_assert!(!with(small, left) || with(large, left));
        prop_assert!(!with(small, left) || with(small, left + more));
    }

    /// A row and its mirror image.
    #[test]
    fn a_row_read_backwards_goes_the_other_way(figures in prop::collection::vec(1.0..1e6f64, 2..6), factor in 0.5..2.0f64) {
        let mirrored: Vec<_> = figures.iter().rev().copied().collect();
        prop_assert_eq!(row(true, factor, 0.05, &figures), row(false, factor, 0.05, &mirrored));
        prop_assert!(!(row(true, 1.0, 0.0, &figures) && row(false, 1.0, 0.0, &figures)));
    }
}
