// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a page of a class saves if it is fast, up to the horizon:
//!
//! ```text
//! V[k] = (sum over n of gamma^n (M^n r)[k]) * T * (latency of the slow tier - latency of the fast one)    ns
//! ```
//!
//! `gamma = exp(-T / horizon)`; the sum ends where a pass counts less than a hundredth, or after 128. A visit is taken
//! for one access that memory serves.

use super::classes::CLASSES;
use super::transitions::Matrix;

const LEAST: f64 = 0.01;
const STEPS_MAX: usize = 128;

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
    // Rows are near their diagonal: what is not there is passed over.
    let rows: Vec<Vec<(usize, f64)>> = m
        .iter()
        .map(|row| {
            let row = row.iter().copied().enumerate();
            row.filter(|(_, share)| *share > 0.0).collect()
        })
        .collect();
    let mut x = *r;
    let mut sum = [0.0; CLASSES];
    let mut weight = 1.0;
    for _ in 0..STEPS_MAX {
        for (sum, x) in sum.iter_mut().zip(x) {
            *sum += weight * x;
        }
        weight *= gamma;
        if weight < LEAST {
            break;
        }
        x = std::array::from_fn(|class| rows[class].iter().map(|(to, share)| share * x[*to]).sum());
    }
    sum.map(|visits| visits * pass * saved_ns)
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
        while weight >= LEAST {
            for k in 0..CLASSES {
                sum[k] += weight * (0..CLASSES).map(|j| power[k][j] * r[j]).sum::<f64>();
            }
            power = power
                .iter()
                .map(|row| {
                    (0..CLASSES)
                        .map(|j| (0..CLASSES).map(|l| row[l] * m[l][j]).sum())
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
