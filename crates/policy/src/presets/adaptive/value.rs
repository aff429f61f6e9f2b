// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a page of a class saves if it is fast, for as long as that can be told:
//!
//! ```text
//! V[k] = (sum over n of gamma^n (M^n r)[k]) * T * (latency of the slow tier - latency of the fast one)    ns
//! ```
//!
//! `gamma = exp(-T / horizon)`. The sum x is what solves `x = r + gamma M x`: one elimination instead of as many
//! steps as the horizon has passes. How many accesses a visit is says `accesses`.

use super::classes::CLASSES;
use super::matrix::Equations;
use super::matrix::Matrix;

/// V by class, ns.
pub(super) type Values = [f64; CLASSES];

/// V by class; `pass` and `horizon` in s.
pub(super) fn values(
    m: &Matrix,
    r: &[f64; CLASSES],
    pass: f64,
    horizon: f64,
    saved_ns: f64,
) -> Values {
    let gamma = (-pass / horizon).exp();
    let mut equations = Equations::of(CLASSES);
    for (row, rate) in m.rows().zip(r) {
        equations.add(*rate, row.iter().map(|(to, share)| (to, gamma * share)));
    }
    let visits = equations.solve();
    std::array::from_fn(|class| visits[class] * pass * saved_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The equation, power by power.
    fn slow(m: &Matrix, r: &[f64; CLASSES], gamma: f64) -> Vec<f64> {
        let mut sum = vec![0.0; CLASSES];
        let mut power: Vec<Vec<f64>> = (0..CLASSES)
            .map(|i| (0..CLASSES).map(|j| f64::from(u8::from(i == j))).collect())
            .collect();
        let mut weight = 1.0;
        while weight >= 1e-12 {
            for k in 0..CLASSES {
                sum[k] += weight * (0..CLASSES).map(|j| power[k][j] * r[j]).sum::<f64>();
            }
            power = power
                .iter()
                .map(|row| {
                    (0..CLASSES)
                        .map(|j| (0..CLASSES).map(|l| row[l] * m.row(l).of(j)).sum())
                        .collect()
                })
                .collect();
            weight *= gamma;
        }
        sum
    }

    fn ladder(stay: f64, up: f64) -> Matrix {
        (0..CLASSES)
            .map(|k| {
                let mut row = [0.0; CLASSES];
                row[k] += stay;
                row[(k + 1).min(CLASSES - 1)] += up;
                row[k.saturating_sub(1)] += 1.0 - stay - up;
                row
            })
            .collect()
    }

    #[test]
    fn the_sum_is_the_equation() {
        let m = ladder(0.6, 0.1);
        let r = std::array::from_fn(super::super::classes::class_rate);
        let (pass, horizon): (f64, f64) = (2.0, 4.0);
        let direct = slow(&m, &r, (-pass / horizon).exp());
        let quick = values(&m, &r, pass, horizon, 150.0);
        for (quick, direct) in quick.iter().zip(direct) {
            assert!((quick / (direct * pass * 150.0) - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn who_stays_saves_its_rate_for_the_horizon() {
        let m = ladder(1.0, 0.0);
        let r = std::array::from_fn(super::super::classes::class_rate);
        for horizon in [60.0, 600.0, 6_000.0] {
            let v = values(&m, &r, 1.0, horizon, 150.0);
            let whole = r.map(|rate| rate * horizon * 150.0);
            assert!(
                v.iter()
                    .zip(whole)
                    .all(|(v, whole)| (v / whole - 1.0).abs() < 0.02)
            );
        }
    }

    #[test]
    fn nothing_is_saved_where_both_tiers_are_equal() {
        let m = ladder(1.0, 0.0);
        let r = [5.0; CLASSES];
        assert!(values(&m, &r, 1.0, 30.0, 0.0).iter().all(|v| *v == 0.0));
    }

    proptest! {
        /// Rows that stochastically rise with the class: so does the value, the shorter the idle time.
        #[test]
        fn value_rises_with_the_class_where_m_does(
            stay in 0.5_f64..0.9, up in 0.0_f64..0.1, top in 1.0_f64..1000.0,
        ) {
            let m = ladder(stay, up);
            let r: [f64; CLASSES] = std::array::from_fn(|k| top * k as f64 / CLASSES as f64);
            let v = values(&m, &r, 1.0, 20.0, 170.0);
            prop_assert!(v.windows(2).all(|w| w[0] <= w[1] * (1.0 + 1e-12)));
        }
    }
}
