// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an observation makes of a page's rate.
//!
//! The estimate is sightings over exposure, both fading by `F` a pass:
//!
//! ```text
//! a' = F a + seen,  b' = F b + exposure,  rate' = max(a', g) / b'
//! exposure = E[t | since < t < until]  of a page seen between them, by the rate it was taken to have
//!          = until                     of one that was not seen
//! E        = since + 1 / rate - w / (e^(rate w) - 1),  w = until - since;  since + w / 2 where nothing is known
//! ```
//!
//! A sighting says only between which readings it was. A page taken to be visited many times in between was
//! likely visited right at their beginning; so a long wait says nothing against a page it cannot tell apart.
//! Times are the process's own (`clock`).
//!
//! Only the rate is kept; a and b are taken for those that a page of this rate has in the long run. A pass
//! sees it with `p = 1 - exp(-rate T)`, with a mean exposure of `p / rate`, so `a = p / (1 - F)`, `b = a / rate`.

use std::collections::BTreeMap;

use super::classes::LEVELS;
use super::classes::Level;
use super::classes::level_of;
use super::classes::rate_of;

/// What a pass keeps of the passes before it.
const FADE: f64 = 0.75;
/// Passes until an estimate is about what it would be of a page that was always there: 1 / (1 - F).
pub(super) const SETTLING: u32 = 4;
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
    /// How long a page of that rate was there to be seen, s; 0 is a rate nobody knows.
    fn exposure(self, rate: f64) -> f64 {
        let width = self.until - self.since;
        let visits = rate * width;
        if !self.seen {
            self.until
        } else if visits < 1e-3 {
            self.since + width / 2.0
        } else {
            self.since + 1.0 / rate - width / visits.exp_m1()
        }
    }
}

/// The rate after an observation; `before` is 0 where nothing is known.
fn next_rate(before: f64, one: Seen, pass: f64) -> f64 {
    let (a, b) = if before > 0.0 {
        let p = -(-before * pass).exp_m1();
        let a = FADE * p / (1.0 - FADE);
        (a, a / before)
    } else {
        (0.0, 0.0)
    };
    let seen = if one.seen { 1.0 } else { 0.0 };
    (a + seen).max(LEAST) / (b + one.exposure(before))
}

/// What an observation does, by the level before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Step {
    /// The level after it.
    pub(super) next: [Level; LEVELS],
    /// The exposure, s.
    pub(super) exposure: [f32; LEVELS],
}

/// Steps that were worked out: as many as there are waits of an eighth of an octave, and a reading needs one or two.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    known: BTreeMap<(bool, [Level; 3]), Box<Step>>,
}

impl Steps {
    const MOST: usize = 512;

    /// For observations about like this one, in passes of about that length, s.
    pub(super) fn of(&mut self, one: Seen, pass: f64) -> &Step {
        let level = |seconds: f64| level_of(1.0 / seconds.max(1e-9));
        let key = [level(one.since), level(one.until), level(pass)];
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        self.known.entry((one.seen, key)).or_insert_with(|| {
            let [since, until, pass] = key.map(|level| 1.0 / rate_of(level));
            // The shortest wait there is stands for none.
            let since = if key[0] == Level::MAX { 0.0 } else { since };
            let one = Seen {
                since,
                until,
                ..one
            };
            let next = |level| level_of(next_rate(rate_of(level), one, pass));
            #[expect(clippy::cast_possible_truncation, reason = "to seven digits")]
            let exposure = |level| one.exposure(rate_of(level)) as f32;
            let all: [Level; LEVELS] =
                std::array::from_fn(|level| u8::try_from(level).unwrap_or(Level::MAX));
            Box::new(Step {
                next: all.map(next),
                exposure: all.map(exposure),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_the_equation() {
        let one = Seen {
            seen: true,
            since: 0.25,
            until: 0.5,
        };
        let mut steps = Steps::default();
        let step = *steps.of(one, 2.0);
        for level in 0..=u8::MAX {
            let rate = rate_of(level);
            let at = usize::from(level);
            let off = i32::from(step.next[at]) - i32::from(level_of(next_rate(rate, one, 2.0)));
            assert!(off.abs() <= 1, "{level}: {off} eighths of an octave");
            let exposure = f64::from(step.exposure[at]) / one.exposure(rate);
            assert!((exposure - 1.0).abs() < 0.1, "{level}: {exposure}");
        }
        for millis in 1..5_000 {
            let until = f64::from(millis) / 1e3;
            let _ = steps.of(Seen { until, ..one }, 2.0);
        }
        assert!(steps.known.len() < 120, "{}", steps.known.len());
    }

    /// Sums that are really kept, of a page seen by Poisson's law in the mean: the byte agrees.
    #[test]
    fn a_byte_stays_near_the_sums_it_stands_for() {
        for rate in [0.3_f64, 1.0, 20.0] {
            let p = 1.0 - (-rate).exp();
            let (mut a, mut b) = (0.0_f64, 0.0_f64);
            let mut kept = 0.0;
            let mut credit = 0.0;
            for _ in 0..200 {
                credit += p;
                let seen = credit >= 1.0;
                if seen {
                    credit -= 1.0;
                }
                let exposure = p / rate;
                a = FADE * a + f64::from(u8::from(seen));
                b = FADE * b + exposure;
                let one = Seen {
                    seen,
                    since: exposure,
                    until: exposure,
                };
                kept = rate_of(level_of(next_rate(kept, one, 1.0)));
            }
            let sums = a / b;
            assert!(
                kept / sums < 2.5 && sums / kept < 2.5,
                "{rate}: {kept} for {sums}"
            );
        }
    }

    /// The mean of many draws that came between the two.
    #[test]
    fn the_exposure_is_the_mean_of_when_such_a_page_is_seen() {
        for rate in [0.5_f64, 8.0, 300.0] {
            for (since, until) in [(0.0, 0.001), (0.1, 0.2), (0.01, 1.0)] {
                let (mut sum, mut all) = (0.0, 0.0);
                for step in 0..100_000 {
                    let t = since + (f64::from(step) + 0.5) / 1e5 * (until - since);
                    let weight = (-rate * (t - since)).exp();
                    (sum, all) = (sum + t * weight, all + weight);
                }
                let one = Seen {
                    seen: true,
                    since,
                    until,
                };
                let mean = one.exposure(rate);
                assert!((mean / (sum / all) - 1.0).abs() < 1e-3, "{rate}: {mean}");
            }
        }
    }

    #[test]
    fn sooner_seen_is_never_a_lower_class() {
        let pass = Seen {
            seen: false,
            since: 0.0,
            until: 1.0,
        };
        for before in [0.0, 0.1, 3.0, 900.0] {
            let mut last = f64::INFINITY;
            for rung in 0..12 {
                let until = f64::from(1 << rung) / 2048.0;
                let since = if rung == 0 { 0.0 } else { until / 2.0 };
                let one = Seen {
                    seen: true,
                    since,
                    until,
                };
                let rate = next_rate(before, one, 1.0);
                assert!(rate <= last);
                last = rate;
            }
            assert!(next_rate(before, pass, 1.0) < last);
        }
    }

    /// A reading after a long wait tells nothing of a page that would be seen in it anyway.
    #[test]
    fn what_cannot_be_told_apart_does_not_change() {
        let one = Seen {
            seen: true,
            since: 0.0,
            until: 1.0,
        };
        let rate = next_rate(500.0, one, 1.0);
        assert!((rate / 500.0 - 1.0).abs() < 0.05, "{rate}");
    }
}
