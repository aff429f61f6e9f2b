// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it is worth now that a page is fast, as its place can be changed later:
//!
//! ```text
//! D[k] = (r[k] s - price) T + gamma * (sum over k' of M[k][k'] clamp(D[k'], -c, c + a))        ns
//! a    = max(0, c_q + D_q)        q: the last page that makes room
//! ```
//!
//! s is what a visit saves, c what a move costs, the price what the fast memory that a page takes would save for the
//! page that just does not fit: r s there ([`price`]). V takes a page to stay where it goes. But if a pass shows
//! otherwise, it can be moved then: being fast or not is never worth more than the moves that would change it, so
//! beyond the next pass the difference is at most c, and what is asked for the room that it needs. A page that may soon look different
//! waits, one that is hot for sure pays in the first pass.
//!
//! What is asked is what the move of q takes that q's own place is not worth ([`asked`]). Where many are too cold for the place they have
//! that is nothing: they would go down anyway. A page that nearly fits would not, so who comes for its place has to pay for
//! both moves, now or later. Without that no move would ever pay for both, as it saves one.
//!
//! The equation is solved by its set of classes within the clamp: one elimination of those for each guess of the set, most often three.

use super::classes::CLASSES;
use super::matrix::Equations;
use super::matrix::Matrix;
use super::select::Group;
use super::select::after;
use super::select::order;
use super::value::Values;

/// Guesses of the set. It settles after a few, but where pages go from a class to the next only, and little stops them, one by one.
const GUESSES: usize = 2 * CLASSES;
/// Halvings of what may be asked.
const HALVINGS: usize = 5;

/// Of one process and size of page: times in ns, `saved_ns` and `price` a page.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// T, s.
    pub(super) pass: f64,
    pub(super) gamma: f64,
    pub(super) saved_ns: f64,
    /// ns of a second of the page's fast memory.
    pub(super) price: f64,
    /// c.
    pub(super) cost: f64,
    /// a, what is asked for room.
    pub(super) ask: f64,
}

impl Terms {
    /// What is gained in the next pass by a page of that rate, ns.
    pub(super) fn now(&self, rate: f64) -> f64 {
        (rate * self.saved_ns - self.price) * self.pass
    }

    /// D as it counts in the pass after that.
    pub(super) fn clamp(&self, d: f64) -> f64 {
        d.clamp(-self.cost, self.cost + self.ask)
    }

    /// Whether that is within the clamp.
    pub(super) fn is_inside(&self, d: f64) -> bool {
        -self.cost < d && d < self.cost + self.ask
    }
}

/// D by class.
pub(super) fn differences(m: &Matrix, r: &[f64; CLASSES], terms: Terms) -> Values {
    let gamma = terms.gamma;
    let now = r.map(|rate| terms.now(rate));
    let (mut d, mut before) = (now, None);
    for _ in 0..GUESSES {
        let inside = d.map(|d| terms.is_inside(d));
        if before.as_ref() == Some(&inside) {
            break;
        }
        let ends = d.map(|d| terms.clamp(d));
        // What is beyond the clamp is known; those within it are one another's.
        let mut x: Values = std::array::from_fn(|class| {
            let row = m.row(class);
            let beyond = row.iter().filter(|(to, _)| !inside[*to]);
            now[class] + gamma * beyond.map(|(to, share)| share * ends[to]).sum::<f64>()
        });
        let (within, numbers) = numbered(&inside);
        let mut equations = Equations::of(within.len());
        for class in &within {
            let row = m.row(*class);
            let others = row.iter().filter(|(to, _)| inside[*to]);
            let shares = others.map(|(to, share)| (numbers[to], gamma * share));
            equations.add(x[*class], shares);
        }
        let solved = equations.solve();
        for (class, x) in x.iter_mut().enumerate() {
            let row = m.row(class);
            let others = row.iter().filter(|(to, _)| inside[*to]);
            let sum: f64 = others.map(|(to, share)| share * solved[numbers[to]]).sum();
            *x += gamma * sum;
        }
        (d, before) = (x, Some(inside));
    }
    d
}

/// Those of the set, and of each its number among them.
fn numbered(set: &[bool; CLASSES]) -> (Vec<usize>, [usize; CLASSES]) {
    let mut numbers = [0; CLASSES];
    let classes: Vec<usize> = (0..CLASSES).filter(|class| set[*class]).collect();
    for (number, class) in classes.iter().enumerate() {
        numbers[*class] = number;
    }
    (classes, numbers)
}

/// What is asked for room, by what those who make it ask at last where so much is paid: what both come to, within a 32nd.
pub(super) fn asked(mut last: impl FnMut(f64) -> f64) -> f64 {
    let mut ends = [0.0, last(0.0)];
    if ends[1] <= 0.0 {
        return 0.0;
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(ends[0], ends[1]);
        let above = last(middle) > middle;
        ends[usize::from(!above)] = middle;
    }
    f64::midpoint(ends[0], ends[1])
}

/// What a second of a base page's fast memory is worth between a slow side and a fast one, where so many more base pages fit.
pub(super) fn price_between(sides: &[Vec<Group>; 2], room: u64) -> f64 {
    let there: u64 = sides[1].iter().map(|group| group.pages).sum();
    price(&sides.concat(), there + room)
}

/// The same of all pages: what the best page saves that does not fit. `capacity` is in base pages.
fn price(groups: &[Group], capacity: u64) -> f64 {
    let mut order = order(groups, |group| group.saves);
    order.reverse();
    after(groups, order, capacity).map_or(0.0, |group| group.saves)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::adaptive::classes::class_rate;
    use proptest::prelude::*;

    /// The equation, pass by pass.
    fn slow(m: &Matrix, r: &[f64; CLASSES], t: Terms) -> Values {
        let now = r.map(|rate| (rate * t.saved_ns - t.price) * t.pass);
        let mut d = now;
        for _ in 0..3_000 {
            d = std::array::from_fn(|k| {
                let row = m.row(k);
                let later = row.iter().map(|(to, share)| share * t.clamp(d[to]));
                now[k] + t.gamma * later.sum::<f64>()
            });
        }
        d
    }

    fn ladder(stay: f64, up: f64) -> Matrix {
        let row = |k: usize| {
            let mut row = [0.0; CLASSES];
            row[k] += stay;
            row[(k + 1).min(CLASSES - 1)] += up;
            row[k.saturating_sub(1)] += 1.0 - stay - up;
            row
        };
        (0..CLASSES).map(row).collect()
    }

    /// That D is what going on pass by pass gives, where the price is what a page of that class saves.
    fn is_the_equation([stay, up]: [f64; 2], at: usize, [cost, ask]: [f64; 2]) {
        let m = ladder(stay, (1.0 - stay) * up);
        let r: [f64; CLASSES] = std::array::from_fn(class_rate);
        let terms = Terms {
            pass: 1.0,
            gamma: 0.99,
            saved_ns: 150.0,
            price: 150.0 * r[at],
            cost,
            ask,
        };
        let (d, slow) = (differences(&m, &r, terms), slow(&m, &r, terms));
        for (d, slow) in d.iter().zip(&slow) {
            assert!(
                (d - slow).abs() <= 1e-6 * (1.0 + slow.abs()),
                "{d} for {slow}"
            );
        }
        assert!(d.windows(2).all(|w| w[0] <= w[1] + 1e-6 * w[1].abs()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn it_is_the_equation(
            stay in 0.2_f64..1.0, up in 0.0_f64..1.0, cost in 10.0_f64..50_000.0, at in 40_usize..100, ask in 0.0_f64..50_000.0,
        ) {
            is_the_equation([stay, up], at, [cost, ask]);
        }
    }

    #[test]
    fn it_is_the_equation_where_one_class_after_the_other_comes_in() {
        is_the_equation([0.2, 0.885], 40, [10.0, 43_411.0]);
    }

    #[test]
    fn a_page_that_stays_pays_in_time_and_one_that_may_change_waits() {
        let r: [f64; CLASSES] = std::array::from_fn(|k| if k < 64 { 1.0 } else { 2.0 });
        let terms = Terms {
            pass: 1.0,
            gamma: 0.998,
            saved_ns: 150.0,
            price: 225.0,
            cost: 4_000.0,
            ask: 0.0,
        };
        // 75 ns a pass: 53 passes pay for a move.
        let stays = differences(&ladder(1.0, 0.0), &r, terms);
        assert!(stays[64] > terms.cost && stays[63] < -terms.cost);
        // Anything else each second pass.
        let wanders: Matrix = (0..CLASSES)
            .map(|_| [1.0 / CLASSES as f64; CLASSES])
            .collect();
        let wanders = differences(&wanders, &r, terms);
        assert!(wanders.iter().all(|d| d.abs() < 100.0));
    }

    /// A few hot pages and many alike, some of which are fast: nobody of these gives way unless who comes pays for that.
    #[test]
    fn who_comes_pays_for_who_gives_way() {
        let r: [f64; CLASSES] = std::array::from_fn(|k| if k < 64 { 1.0 } else { 20.0 });
        let d = |ask| {
            let terms = Terms {
                pass: 1.0,
                gamma: 0.998,
                saved_ns: 150.0,
                price: 150.0,
                cost: 4_000.0,
                ask,
            };
            let d = differences(&ladder(1.0, 0.0), &r, terms);
            [d[0], d[64]]
        };
        let changes = |[alike, hot]: [f64; 2]| hot - alike > 8_000.0;
        assert!(!changes(d(0.0)), "{:?}", d(0.0));
        let ask = asked(|ask| {
            let [alike, hot] = d(ask);
            if hot > 4_000.0 + ask {
                4_000.0 + alike
            } else {
                0.0
            }
        });
        assert!((3_800.0..=4_000.0).contains(&ask), "{ask}");
        assert!(changes(d(ask)), "{:?}", d(ask));
    }

    proptest! {
        /// The more is paid, the fewer come, and the less those ask that are left to give way.
        #[test]
        fn what_is_asked_is_what_is_paid(asks in prop::collection::vec(-5.0_f64..5.0, 20), pays in prop::collection::vec(0.0_f64..8.0, 0..20)) {
            let mut asks = asks;
            asks.sort_by(f64::total_cmp);
            let mut last = |paid: f64| {
                let come = pays.iter().filter(|most| **most > paid).count();
                if come > 0 { asks[come - 1].max(0.0) } else { 0.0 }
            };
            let most = last(0.0);
            let ask = asked(&mut last);
            let near = most / 16.0;
            prop_assert!(last(ask - near) >= ask - near && last(ask + near) <= ask + near, "{ask} of {most}");
        }
    }

    #[test]
    fn the_price_is_what_does_not_fit() {
        let group = |pages, saves| Group {
            pages,
            saves,
            ..Group::default()
        };
        let groups = [group(5, 1.0), group(3, 9.0), group(4, 4.0)];
        assert!((price(&groups, 5) - 4.0).abs() < 1e-9);
        assert!((price(&groups, 7) - 1.0).abs() < 1e-9);
        assert!(price(&groups, 12).abs() < 1e-9);
    }
}
