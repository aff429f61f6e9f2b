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

use std::collections::BTreeMap;

use super::classes::LEVELS;
use super::classes::Level;
use super::classes::PER_OCTAVE;
use super::classes::level_of;
use super::classes::moved;
use super::classes::rate_of;

/// Passes before the last that an estimate is of, at most.
pub(super) const PASSES: u32 = 5;
/// Passes until an estimate is about what it would be of a page that was always there.
pub(super) const SETTLING: u32 = 4;
/// The mean of -ln of a wait whose mean is 1.
const EULER_GAMMA: f64 = 0.577_215_664_901_532_9;
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
    /// How long a page was there to be seen, s: of one that was, half of the time between, whatever it is taken for. By
    /// what it is taken for, those taken for hot would be hotter for it.
    pub(super) fn exposure(self) -> f64 {
        if self.seen {
            (self.since + self.until) / 2.0
        } else {
            self.until
        }
    }

    /// E[ln t] of a page of that rate, by what L is.
    fn mean_log(self, rate: f64, beyond: impl Fn(f64) -> f64) -> f64 {
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

/// L of all products of a rate and a wait: both are of levels, eight an octave, and so is what they make.
#[derive(Debug, Clone)]
struct Beyond(Box<[f64]>);

impl Default for Beyond {
    fn default() -> Self {
        let at = |index: u32| ((f64::from(index) - Self::ONE) / PER_OCTAVE).exp2();
        Self((0..=512).map(|index| beyond(at(index))).collect())
    }
}

impl Beyond {
    /// The place of L(1).
    const ONE: f64 = 256.0;

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded before"
    )]
    fn of(&self, x: f64) -> f64 {
        if x <= 0.0 {
            return -EULER_GAMMA;
        }
        let index = (x.log2() * PER_OCTAVE + Self::ONE).round();
        self.0[index.clamp(0.0, 2.0 * Self::ONE) as usize]
    }
}

/// The rate after an observation in the pass after so many; `before` is 0 where nothing is known.
fn next_rate(before: f64, one: Seen, passes: u32, beyond: impl Fn(f64) -> f64) -> f64 {
    if before <= 0.0 {
        let seen = if one.seen { 1.0 } else { LEAST };
        return seen / one.exposure();
    }
    let n = f64::from(passes.clamp(1, PASSES));
    let wait = (n * -before.ln() + one.mean_log(before, beyond) + EULER_GAMMA) / (n + 1.0);
    (-wait).exp()
}

/// What an observation does: the level after it, by the one before.
pub(super) type Step = [Level; LEVELS];

/// Between which readings a page was seen, as levels: when it was seen at last, and how much sooner it was not yet, 0 where that
/// is not known to be. None where it was not seen.
type Between = Option<Level>;

/// E[ln t] + ln rate of all rates, by how many levels above 1 / until they are, from [`Self::LOWEST`] on: where a wait is
/// so many times as long as another, it says the same of a page visited so many times less.
#[derive(Debug, Clone)]
struct Means(Box<[f64]>);

impl Means {
    const LOWEST: i16 = -255;

    fn new(between: Between, beyond: &Beyond) -> Self {
        let one = Seen {
            seen: between.is_some(),
            since: between.map_or(0.0, |sooner| match sooner {
                0 => 0.0,
                sooner => (-f64::from(sooner) / PER_OCTAVE).exp2(),
            }),
            until: 1.0,
        };
        let mean = |above: i16| {
            let rate = (f64::from(above) / PER_OCTAVE).exp2();
            one.mean_log(rate, |x| beyond.of(x)) + rate.ln()
        };
        Self((Self::LOWEST..=-Self::LOWEST).map(mean).collect())
    }

    fn of(&self, level: Level, until: Level) -> f64 {
        let above = i16::from(level) - i16::from(until);
        self.0[usize::from((above - Self::LOWEST).unsigned_abs())]
    }
}

/// Steps that were worked out: as many as there are waits of an eighth of an octave, and a reading needs one or two.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    beyond: Beyond,
    means: BTreeMap<Between, Means>,
    known: BTreeMap<(bool, u32, [Level; 2]), Box<Step>>,
}

impl Steps {
    const MOST: usize = 512;

    /// For observations about like this one, of pages that are there for so many passes.
    pub(super) fn of(&mut self, one: Seen, passes: u32) -> &Step {
        let level = |seconds: f64| level_of(1.0 / seconds.max(1e-9));
        let [since, until] = [level(one.since), level(one.until)];
        let passes = passes.clamp(1, PASSES);
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let (beyond, means) = (&self.beyond, &mut self.means);
        let key = (one.seen, passes, [since, until]);
        self.known.entry(key).or_insert_with(|| {
            // The shortest wait there is stands for none.
            let none = since == Level::MAX;
            let sooner = if none {
                0
            } else {
                since.saturating_sub(until).max(1)
            };
            let between = one.seen.then_some(sooner);
            let means = means
                .entry(between)
                .or_insert_with(|| Means::new(between, beyond));
            let by = PER_OCTAVE / std::f64::consts::LN_2 / f64::from(passes + 1);
            let at = |level| 1.0 / rate_of(level);
            let (since, until_s) = (if none { 0.0 } else { at(since) }, at(until));
            let first = Seen {
                since,
                until: until_s,
                ..one
            };
            let first = level_of(next_rate(0.0, first, passes, |x| beyond.of(x)));
            let next = |before| match before {
                0 => first,
                before => moved(before, -by * (means.of(before, until) + EULER_GAMMA)),
            };
            Box::new(std::array::from_fn(|level| {
                next(u8::try_from(level).unwrap_or(Level::MAX))
            }))
        })
    }
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

    #[test]
    fn the_table_is_the_equation() {
        let one = seen(0.25, 0.5);
        let mut steps = Steps::default();
        for passes in 1..8 {
            let step = *steps.of(one, passes);
            for level in 0..=u8::MAX {
                let rate = rate_of(level);
                let at = usize::from(level);
                let next = level_of(next_rate(rate, one, passes, beyond));
                let off = i32::from(step[at]) - i32::from(next);
                assert!(off.abs() <= 1, "{level}: {off} eighths of an octave");
            }
        }
        for millis in 1..5_000 {
            let until = f64::from(millis) / 1e3;
            let _ = steps.of(Seen { until, ..one }, LONG);
        }
        assert!(steps.known.len() < 120, "{}", steps.known.len());
    }

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
                kept = next_rate(kept, observed(wait(rate), &READINGS), LONG, beyond);
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
                    kept = next_rate(kept, usual, LONG, beyond);
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
        let gain = |passes| {
            next_rate(1.0, one, passes, beyond).ln() / next_rate(1.0, one, LONG, beyond).ln()
        };
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
                let off = one.mean_log(rate, beyond) - mean(f64::ln, (since, until));
                assert!(off.abs() < 1e-3, "{rate}, {since} to {until}: {off}");
                let unseen = Seen {
                    seen: false,
                    since: 0.0,
                    until,
                };
                let off =
                    unseen.mean_log(rate, beyond) - mean(f64::ln, (until, until + 20.0 / rate));
                assert!(off.abs() < 1e-3, "{rate}, not until {until}: {off}");
            }
        }
    }

    #[test]
    fn sooner_seen_is_never_a_lower_class() {
        for before in [0.0, 0.1, 3.0, 900.0] {
            let rates = READINGS.map(|until| {
                let one = observed(until * 0.99, &READINGS);
                next_rate(before, one, LONG, beyond)
            });
            assert!(rates.is_sorted_by(|a, b| a >= b), "{rates:?}");
            let unseen = next_rate(before, observed(2.0, &READINGS), LONG, beyond);
            assert!(unseen < rates[READINGS.len() - 1]);
        }
    }

    /// A reading after a long wait tells nothing of a page that would be seen in it anyway.
    #[test]
    fn what_cannot_be_told_apart_does_not_change() {
        let rate = next_rate(500.0, seen(0.0, 1.0), LONG, beyond);
        assert!((rate / 500.0 - 1.0).abs() < 0.05, "{rate}");
    }
}
