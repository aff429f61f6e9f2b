// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it is worth now that a page is fast, as its place can be changed later:
//!
//! ```text
//! D[k] = (r[k] s - price) T + gamma * (sum over k' of M[k][k'] clamp(D[k'], -c, c))        ns
//! ```
//!
//! s is what a visit saves, c what a move costs, the price what the fast memory that a page takes would save for the
//! page that just does not fit: r s there ([`price`]). V takes a page to stay where it goes. But if a pass shows
//! otherwise, it can be moved then: being fast or not is never worth more than the move that would change it, so
//! beyond the next pass the difference is at most c. A page that may soon look different waits, one that is hot for
//! sure pays in the first pass.
//!
//! The equation is solved by its set of classes within the clamp: one elimination for each guess of the set, most often three.

use super::classes::CLASSES;
use super::select::Group;
use super::select::order;
use super::transitions::Matrix;
use super::value::Values;
use super::value::solve;

/// Guesses of the set; it settles after a few.
const GUESSES: usize = 16;

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
}

impl Terms {
    /// What is gained in the next pass by a page of that rate, ns.
    pub(super) fn now(&self, rate: f64) -> f64 {
        (rate * self.saved_ns - self.price) * self.pass
    }
}

/// D by class.
pub(super) fn differences(m: &Matrix, r: &[f64; CLASSES], terms: Terms) -> Values {
    let Terms { gamma, cost, .. } = terms;
    let now = r.map(|rate| terms.now(rate));
    let mut d = now;
    let mut inside = [false; CLASSES];
    for _ in 0..GUESSES {
        let guess = d.map(|d| d.abs() < cost);
        let same = guess == inside;
        inside = guess;
        if same {
            break;
        }
        let mut x = now;
        let rows = m.iter().enumerate().map(|(class, row)| {
            let mut own = [0.0; CLASSES];
            for (to, &share) in row.iter().enumerate() {
                if inside[to] {
                    own[to] = -gamma * share;
                } else {
                    x[class] += gamma * share * d[to].signum() * cost;
                }
            }
            own[class] += 1.0;
            own
        });
        let rows = rows.collect();
        d = solve(rows, x);
    }
    d
}

/// What a second of a base page's fast memory is worth: what the best page saves that does not fit. `capacity` is in
/// base pages.
pub(super) fn price(groups: &[Group], capacity: u64) -> f64 {
    let mut left = capacity;
    for index in order(groups, |group| -group.saves) {
        let group = &groups[index];
        if group.pages > left {
            return group.saves;
        }
        left -= group.pages;
    }
    0.0
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
                let later = m[k]
                    .iter()
                    .zip(&d)
                    .map(|(share, d)| share * d.clamp(-t.cost, t.cost));
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn it_is_the_equation(
            stay in 0.2_f64..1.0, up in 0.0_f64..1.0, cost in 10.0_f64..50_000.0, at in 40_usize..100,
        ) {
            let m = ladder(stay, (1.0 - stay) * up);
            let r: [f64; CLASSES] = std::array::from_fn(class_rate);
            let terms = Terms { pass: 1.0, gamma: 0.99, saved_ns: 150.0, price: 150.0 * r[at], cost };
            let (d, slow) = (differences(&m, &r, terms), slow(&m, &r, terms));
            for (d, slow) in d.iter().zip(&slow) {
                prop_assert!((d - slow).abs() <= 1e-6 * (1.0 + slow.abs()), "{} for {}", d, slow);
            }
            prop_assert!(d.windows(2).all(|w| w[0] <= w[1] + 1e-6 * w[1].abs()));
        }
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
        };
        // 75 ns a pass: 53 passes pay for a move.
        let stays = differences(&ladder(1.0, 0.0), &r, terms);
        assert!(stays[64] > terms.cost && stays[63] < -terms.cost);
        // Anything else each second pass.
        let mut wanders = ladder(1.0, 0.0);
        for row in &mut wanders {
            *row = [1.0 / CLASSES as f64; CLASSES];
        }
        let wanders = differences(&wanders, &r, terms);
        assert!(wanders.iter().all(|d| d.abs() < 100.0));
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
