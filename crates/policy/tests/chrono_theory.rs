// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono's appendix B by numbers: why the maximum of two rounds.
//!
//! B.2's other densities (equation 11) are left out: as printed, x^(1 - 1/a) has no integral from 0 on for a < 1/2.

/// Numbers from 0 to 1, always the same.
struct Uniform(u64);

impl Uniform {
    fn next(&mut self) -> f64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695);
        (self.0 >> 33) as f64 / f64::from(1_u32 << 31)
    }
}

/// Mean and variance of an estimate of a period of 1 from so many idle times.
fn of_estimate(rounds: u32, estimate: impl Fn(&[f64]) -> f64) -> (f64, f64) {
    let mut uniform = Uniform(3);
    let draws = 400_000;
    let (mut sum, mut squares) = (0.0, 0.0);
    for _ in 0..draws {
        let idle: Vec<f64> = (0..rounds).map(|_| uniform.next()).collect();
        let estimated = estimate(&idle);
        sum += estimated;
        squares += estimated * estimated;
    }
    let mean = sum / f64::from(draws);
    (mean, squares / f64::from(draws) - mean * mean)
}

/// B.1: both estimates have the right mean, the maximum's variance is 1 / (n (n + 2)), the mean's 1 / (3 n).
#[test]
fn the_maximum_is_the_better_estimate_of_a_period() {
    for rounds in 1..=4_u32 {
        let n = f64::from(rounds);
        let longest = |idle: &[f64]| (n + 1.0) / n * idle.iter().copied().fold(0.0, f64::max);
        let twice_mean = |idle: &[f64]| 2.0 / n * idle.iter().sum::<f64>();
        let (mean, variance) = of_estimate(rounds, longest);
        assert!((mean - 1.0).abs() < 0.005, "{rounds}: {mean}");
        let wanted = 1.0 / (n * (n + 2.0));
        assert!(
            (variance / wanted - 1.0).abs() < 0.02,
            "{rounds}: {variance} for {wanted}"
        );
        let (mean, other) = of_estimate(rounds, twice_mean);
        assert!((mean - 1.0).abs() < 0.005, "{rounds}: {mean}");
        assert!((other * 3.0 * n - 1.0).abs() < 0.02, "{rounds}: {other}");
        assert!(rounds == 1 || variance < other);
    }
}

/// B.2, equations 7 to 12: of pages whose periods are spread evenly the real-hot-page ratio by its cost is (n - 1) / n^2
/// in n rounds, and greatest for two.
#[test]
fn two_rounds_select_most_efficiently() {
    // Periods in units of the threshold; those beyond 4,000 pass a round once in as many.
    let (step, end) = (0.001_f64, 4_000.0_f64);
    let efficiency = |rounds: i32| {
        let mut selected = 0.0;
        let mut period = step / 2.0;
        while period < end {
            selected += step
                * if period < 1.0 {
                    1.0
                } else {
                    (1.0 / period).powi(rounds)
                };
            period += step;
        }
        1.0 / selected / f64::from(rounds)
    };
    let by_rounds: Vec<f64> = (1..=5).map(efficiency).collect();
    for (rounds, found) in (2..).zip(&by_rounds[1..]) {
        let n = f64::from(rounds);
        assert!(
            (found / ((n - 1.0) / (n * n)) - 1.0).abs() < 0.01,
            "{rounds}: {found}"
        );
    }
    let best = by_rounds.iter().copied().fold(0.0, f64::max);
    assert_eq!(best.to_bits(), by_rounds[1].to_bits(), "{by_rounds:?}");
}
