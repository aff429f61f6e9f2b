// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an observation makes of a page's rate.
//!
//! The estimate is a mean of the logarithms of waits: how long after a pass began the page was visited.
//!
//! ```text
//! ln(1 / rate') = K ln(1 / rate) + (1 - K) (E[ln t | what was seen, rate] + gamma),   K = n / (n + 1)
//! E[ln t]       = L(rate until) - ln rate                                of a page that was not seen until then
//!               = (L(a) - e^(a - b) L(b)) / (1 - e^(a - b)) - ln rate    of one seen after a = rate since, before b = rate until
//! L(x)          = ln x + e^x E1(x): the mean of ln(x + a wait whose mean is 1);  L(0) = -gamma
//! ```
//!
//! n is the number of passes that the page is there for, at most [`PASSES`]; gamma is Euler's, as E[ln t] = -ln(rate) - gamma of all waits
//! of a rate. By logarithms an estimate follows a page that becomes hot as fast as one that becomes cold: sightings over
//! exposure, both fading, do not, as what a cold page was watched for outweighs many passes of a hot one.
//! With n = 5 both are as noisy as such a fraction that keeps three quarters: (1 - K) / (1 + K) pi^2 / 6 is 0.15, and 0.14.
//!
//! A sighting says only between which readings it was. A page taken to be visited many times in between was
//! likely visited right at their beginning; so a long wait says nothing against a page it cannot tell apart.
//! Of a page of which nothing is known the first observation says its sightings, over how long it was there to be seen
//! ([`Seen::exposure`], by which the rates of classes are counted, too).
//! Times are the process's own (`clock`).

/// Passes before the last that an estimate is of, at most.
pub(super) const PASSES: u32 = 5;
/// Passes until an estimate is about what it would be of a page that was always there.
pub(super) const SETTLING: u32 = 4;
/// The mean of -ln of a wait whose mean is 1.
pub(super) const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;
/// Sightings that are taken for seen where there were less, of pages that are never touched.
const LEAST: f64 = 0.05;

/// One observation: whether a page was seen, and between which times of the pass; s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) seen: bool,
    /// 0 where it was not.
    pub(super) since: f64,
    pub(super) until: f64,
}

impl Seen {
    /// Of pages that were seen between two readings, and of those that were not until the last.
    pub(super) fn both(since: f64, until: f64) -> [Self; 2] {
        [(true, since), (false, 0.0)].map(|(seen, since)| Self { seen, since, until })
    }

    /// How long a page was there to be seen, s: of one that was, half of the time between, whatever it is taken for. By
    /// what it is taken for, those taken for hot would be hotter for it.
    pub(super) fn exposure(self) -> f64 {
        if self.seen {
            (self.since + self.until) / 2.0
        } else {
            self.until
        }
    }

    /// E[ln t] of a page of that rate.
    pub(super) fn mean_log(self, rate: f64) -> f64 {
        let until = beyond(rate * self.until);
        let visits = rate * (self.until - self.since);
        let mean = if !self.seen {
            until
        } else if visits < 1e-3 {
            // As likely at any time between them.
            let sum = |t: f64| {
                if t > 0.0 {
                    t * (rate * t).ln() - t
                } else {
                    0.0
                }
            };
            (sum(self.until) - sum(self.since)) / (self.until - self.since)
        } else {
            (beyond(rate * self.since) - (-visits).exp() * until) / -(-visits).exp_m1()
        };
        mean - rate.ln()
    }
}

/// L, by the series and the continued fraction of E1 (Abramowitz and Stegun, 5.1.11 and 5.1.22).
fn beyond(x: f64) -> f64 {
    if x <= 0.0 {
        return -EULER_GAMMA;
    }
    let scaled = if x < 1.0 {
        let mut power = -1.0;
        let series = (1..20).map(|k| {
            power *= -x / f64::from(k);
            power / f64::from(k)
        });
        x.exp() * (series.sum::<f64>() - EULER_GAMMA - x.ln())
    } else {
        let fraction = |rest, k: f64| x + 2.0 * k - 1.0 - k * k / rest;
        let first = (1..60).rev().map(f64::from).fold(x + 119.0, fraction);
        1.0 / first
    };
    x.ln() + scaled
}

/// The rate after an observation in the pass after so many; `before` is 0 where nothing is known.
pub(super) fn next_rate(before: f64, one: Seen, passes: u32) -> f64 {
    if before <= 0.0 {
        let seen = if one.seen { 1.0 } else { LEAST };
        return seen / one.exposure();
    }
    let n = f64::from(passes.clamp(1, PASSES));
    let wait = (n * -before.ln() + one.mean_log(before) + EULER_GAMMA) / (n + 1.0);
    (-wait).exp()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: u32 = u32::MAX;

    const fn seen(since: f64, until: f64) -> Seen {
        Seen {
            seen: true,
            since,
            until,
        }
    }

    /// What readings at those times make of a page that is visited first at `t`.
    fn observed(t: f64, readings: &[f64]) -> Seen {
        let until = readings.iter().position(|until| t < *until);
        let Some(at) = until else {
            let until = readings.last().copied().unwrap_or(0.0);
            return Seen {
                seen: false,
                since: 0.0,
                until,
            };
        };
        let since = if at == 0 { 0.0 } else { readings[at - 1] };
        seen(since, readings[at])
    }

    const READINGS: [f64; 11] = [
        0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.0,
    ];

    /// Of a page visited by Poisson's law: right in the mean, and no noisier than said above.
    #[test]
    fn an_estimate_is_right_in_the_mean() {
        let mut dice = 1_u64;
        let mut wait = |rate: f64| {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let share = ((dice >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
            -share.ln() / rate
        };
        for rate in [0.3_f64, 1.0, 20.0, 300.0] {
            let (mut kept, mut sum, mut squares, all) = (rate, 0.0, 0.0, 20_000);
            for _ in 0..all {
                kept = next_rate(kept, observed(wait(rate), &READINGS), LONG);
                let off = (kept / rate).ln();
                (sum, squares) = (sum + off, squares + off * off);
            }
            let (mean, noise) = (sum / f64::from(all), squares / f64::from(all));
            assert!(mean.abs() < 0.15, "{rate}: off by {mean}");
            assert!(noise < 0.25, "{rate}: {noise}");
        }
    }

    /// From 7 visits a second to 166, and back.
    #[test]
    fn it_follows_as_fast_up_as_down() {
        let passes = |from: f64, to: f64| {
            let mut kept = from;
            let far = |kept: f64| (kept / to).ln().abs() > 2.0_f64.ln();
            // The wait whose logarithm is the mean of those of its rate.
            let usual = observed((-EULER_GAMMA).exp() / to, &READINGS);
            (0..40)
                .take_while(|_| {
                    kept = next_rate(kept, usual, LONG);
                    far(kept)
                })
                .count()
        };
        let (up, down) = (passes(7.0, 166.0), passes(166.0, 7.0));
        assert!(up <= 10 && down <= 10, "{up} passes, and {down} back");
    }

    /// What is there for a short time only is known by the mean of what there is.
    #[test]
    fn of_few_passes_each_counts_as_much() {
        let one = seen(0.0019, 0.002);
        let gain = |passes| next_rate(1.0, one, passes).ln() / next_rate(1.0, one, LONG).ln();
        assert!((gain(1) - 3.0).abs() < 1e-9, "half for a sixth");
        assert!((gain(2) - 2.0).abs() < 1e-9, "a third");
    }

    /// The mean of many draws that came out so.
    #[test]
    fn means_are_those_of_when_such_a_page_is_seen() {
        for rate in [0.5_f64, 8.0, 300.0] {
            for (since, until) in [(0.0, 0.001), (0.1, 0.2), (0.01, 1.0)] {
                let mean = |of: fn(f64) -> f64, (since, until): (f64, f64)| {
                    let (mut sum, mut all) = (0.0, 0.0);
                    for step in 0..100_000 {
                        let t = since + (f64::from(step) + 0.5) / 1e5 * (until - since);
                        let weight = (-rate * (t - since)).exp();
                        (sum, all) = (sum + of(t) * weight, all + weight);
                    }
                    sum / all
                };
                let one = seen(since, until);
                let off = one.mean_log(rate) - mean(f64::ln, (since, until));
                assert!(off.abs() < 1e-3, "{rate}, {since} to {until}: {off}");
                let unseen = Seen {
                    seen: false,
                    since: 0.0,
                    until,
                };
                let off = unseen.mean_log(rate) - mean(f64::ln, (until, until + 20.0 / rate));
                assert!(off.abs() < 1e-3, "{rate}, not until {until}: {off}");
            }
        }
    }

    #[test]
    fn sooner_seen_is_never_a_lower_class() {
        for before in [0.0, 0.1, 3.0, 900.0] {
            let rates = READINGS.map(|until| {
                let one = observed(until * 0.99, &READINGS);
                next_rate(before, one, LONG)
            });
            assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
            let unseen = next_rate(before, observed(2.0, &READINGS), LONG);
            assert!(unseen < rates[READINGS.len() - 1]);
        }
    }

    /// A reading after a long wait tells nothing of a page that would be seen in it anyway.
    #[test]
    fn what_cannot_be_told_apart_does_not_change() {
        let rate = next_rate(500.0, seen(0.0, 1.0), LONG);
        assert!((rate / 500.0 - 1.0).abs() < 0.05, "{rate}");
    }
}
