// SPDX-License-Identifier: MIT OR Apache-2.0
//! A page's class: its estimated access rate, in one byte.
//!
//! Level `l > 0` stands for `2^((l - 1) / 8 - 12)` visits a second, eight levels an octave; level 0 for
//! a page of which nothing is known. Two levels are a class of the matrix.
//!
//! The estimate is sightings over exposure, both fading by `F` a pass:
//!
//! ```text
//! a' = F a + seen,  b' = F b + exposure,  rate = max(a', g) / b'
//! ```
//!
//! An observation weighs by its exposure: up to the sighting, or the whole pass. Only the rate is
//! kept; a and b are taken for those that a page of this rate has in the long run. A pass sees it
//! with `p = 1 - exp(-rate T)`, with a mean exposure of `p / rate`, so `a = p / (1 - F)`, `b = a / rate`.

use std::collections::BTreeMap;

/// Classes of the matrix.
pub(super) const CLASSES: usize = 128;
/// A byte's values.
pub(super) const LEVELS: usize = 256;
/// What a pass keeps of the passes before it.
const FADE: f64 = 0.75;
/// Passes until an estimate is about what it would be of a page that was always there: 1 / (1 - F).
pub(super) const SETTLING: u32 = 4;
/// Sightings that are taken for seen where there were less, of pages that are never touched.
const LEAST: f64 = 0.05;
const LOWEST_OCTAVE: f64 = -12.0;

/// A page's level; 0 is unknown.
pub(super) type Level = u8;

/// Visits a second that a level stands for.
pub(super) fn rate_of(level: Level) -> f64 {
    if level == 0 {
        return 0.0;
    }
    (f64::from(level - 1) / 8.0 + LOWEST_OCTAVE).exp2()
}

/// The level of a rate.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounded to a byte before"
)]
pub(super) fn level_of(rate: f64) -> Level {
    let level = (rate.max(1e-30).log2() - LOWEST_OCTAVE) * 8.0 + 1.0;
    level.round().clamp(1.0, 255.0) as u8
}

/// The class of a level.
pub(super) const fn class_of(level: Level) -> usize {
    level as usize / 2
}

/// The middle of a class, visits a second.
pub(super) fn class_rate(class: usize) -> f64 {
    let level = u8::try_from((class * 2).min(LEVELS - 1)).unwrap_or(u8::MAX);
    rate_of(level.max(1))
}

/// One observation: seconds of exposure, and whether they ended with a sighting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) seen: bool,
    pub(super) exposure: f64,
}

/// The rate after an observation; `before` is 0 where nothing is known.
pub(super) fn next_rate(before: f64, one: Seen, pass: f64) -> f64 {
    let (a, b) = if before > 0.0 {
        let p = -(-before * pass).exp_m1();
        let a = FADE * p / (1.0 - FADE);
        (a, a / before)
    } else {
        (0.0, 0.0)
    };
    let seen = if one.seen { 1.0 } else { 0.0 };
    (a + seen).max(LEAST) / (b + one.exposure)
}

/// The level after an observation, by the level before.
pub(super) type Step = [Level; LEVELS];

/// Steps that were worked out: as many as there are exposures of an eighth of an octave, and a reading of a chunk
/// needs one or two.
#[derive(Debug, Clone, Default)]
pub(super) struct Steps {
    known: BTreeMap<(bool, Level, Level), Box<Step>>,
}

impl Steps {
    const MOST: usize = 512;

    /// For observations about like this one, in passes of about that length, s.
    pub(super) fn of(&mut self, one: Seen, pass: f64) -> &Step {
        let (exposure, length) = (level_of(1.0 / one.exposure), level_of(1.0 / pass));
        if self.known.len() >= Self::MOST {
            self.known.clear();
        }
        let key = (one.seen, exposure, length);
        self.known.entry(key).or_insert_with(|| {
            let one = Seen {
                exposure: 1.0 / rate_of(exposure),
                ..one
            };
            let mut step = Box::new([0; LEVELS]);
            for (level, next) in (0..=u8::MAX).zip(step.iter_mut()) {
                *next = level_of(next_rate(rate_of(level), one, 1.0 / rate_of(length)));
            }
            step
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_rates_are_inverse() {
        for level in 1..=u8::MAX {
            assert_eq!(level_of(rate_of(level)), level);
        }
        assert_eq!(level_of(0.0), 1);
        assert!(rate_of(255) > 500_000.0 && rate_of(1) < 0.001);
        assert!((0..CLASSES - 1).all(|k| class_rate(k) <= class_rate(k + 1)));
    }

    #[test]
    fn the_table_is_the_equation() {
        let one = Seen {
            seen: true,
            exposure: 0.37,
        };
        let mut steps = Steps::default();
        let step = *steps.of(one, 2.0);
        for level in 1..=u8::MAX {
            let exact = next_rate(rate_of(level), one, 2.0);
            let off = i32::from(step[usize::from(level)]) - i32::from(level_of(exact));
            assert!(off.abs() <= 1, "{level}: {off} eighths of an octave");
        }
        for millis in 1..5_000 {
            let exposure = f64::from(millis) / 1e3;
            let _ = steps.of(
                Seen {
                    seen: true,
                    exposure,
                },
                2.0,
            );
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
                kept = rate_of(level_of(next_rate(kept, Seen { seen, exposure }, 1.0)));
            }
            let sums = a / b;
            assert!(
                kept / sums < 2.5 && sums / kept < 2.5,
                "{rate}: {kept} for {sums}"
            );
        }
    }

    #[test]
    fn sooner_seen_is_never_a_lower_class() {
        for before in [0.0, 0.1, 3.0, 900.0] {
            let mut last = f64::INFINITY;
            for rung in 0..12 {
                let exposure = f64::from(1 << rung) / 4096.0;
                let rate = next_rate(
                    before,
                    Seen {
                        seen: true,
                        exposure,
                    },
                    1.0,
                );
                assert!(rate <= last);
                last = rate;
            }
            let unseen = next_rate(
                before,
                Seen {
                    seen: false,
                    exposure: 1.0,
                },
                1.0,
            );
            assert!(unseen < last);
        }
    }
}
