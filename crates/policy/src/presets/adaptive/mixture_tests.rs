// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

/// Pages of those rates as readings show them.
fn seen(parts: &[Part]) -> Vec<Cell> {
    let still = |t: f64| {
        parts
            .iter()
            .map(|part| part.weight * (-part.rate * t).exp())
            .sum::<f64>()
    };
    let mut since = 0.0;
    let mut cells = Vec::new();
    let mut cell = |share: f64, seen: bool, since: f64, until: f64| {
        let pages = 1e5 * share;
        if pages >= 1.0 {
            cells.push(Cell {
                pages,
                seen,
                since: pages * since,
                until: pages * until,
            });
        }
    };
    for rung in 0..12 {
        let until = 0.001 * f64::from(1 << rung);
        cell(still(since) - still(until), true, since, until);
        since = until;
    }
    cell(still(since), false, 0.0, since);
    cells
}

/// Against [`ROUNDS`] one after the other.
#[test]
fn it_is_as_likely_as_by_one_round_after_the_other() {
    let (mut worst, mut sum): (f64, f64) = (0.0, 0.0);
    for weight in [0.02, 0.2, 0.5, 0.8, 0.98] {
        for (rate, other) in [
            (0.1, 0.2),
            (0.1, 20.0),
            (1.0, 2.0),
            (1.0, 300.0),
            (60.0, 180.0),
        ] {
            let cells = seen(&[
                Part { weight, rate },
                Part {
                    weight: 1.0 - weight,
                    rate: other,
                },
            ]);
            let cells: Vec<&Cell> = cells.iter().collect();
            for rates in 1..=3 {
                let parts = fit(&cells, rates);
                let shares: f64 = parts.0.iter().map(|part| part.weight).sum();
                assert!((shares - 1.0).abs() < 1e-9, "{parts:?}");
                let mut slow = start(&cells, rates);
                for _ in 0..ROUNDS {
                    improve(&cells, &mut slow);
                }
                let all = pages_of(&cells);
                let worse = length(&cells, &parts, all) - length(&cells, &slow, all);
                worst = worst.max(worse);
                sum += worse;
            }
        }
    }
    println!("at worst {worst:.2} nats, {sum:.0} in all");
    // A rate more has to be worth 11.5.
    assert!(worst < 5.0 && sum < -100.0, "{worst} {sum}");
}
