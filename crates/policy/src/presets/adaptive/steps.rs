// SPDX-License-Identifier: MIT OR Apache-2.0
//! Observations as tables over all levels: what [`super::estimate`] says, with the few operations that an observation of many
//! thousand pages may take.

use std::collections::BTreeMap;

use super::classes::LEVELS;
use super::classes::Level;
use super::classes::PER_OCTAVE;
use super::classes::level_of;
use super::classes::moved;
use super::classes::rate_of;
use super::estimate::EULER_GAMMA;
use super::estimate::PASSES;
use super::estimate::Seen;
use super::estimate::next_rate;

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

    fn new(between: Between) -> Self {
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
            one.mean_log(rate) + rate.ln()
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
        let means = &mut self.means;
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
            let means = means.entry(between).or_insert_with(|| Means::new(between));
            let by = PER_OCTAVE / std::f64::consts::LN_2 / f64::from(passes + 1);
            let at = |level| 1.0 / rate_of(level);
            let (since, until_s) = (if none { 0.0 } else { at(since) }, at(until));
            let first = Seen {
                since,
                until: until_s,
                ..one
            };
            let first = level_of(next_rate(0.0, first, passes));
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

    #[test]
    fn the_table_is_the_equation() {
        let one = Seen {
            seen: true,
            since: 0.25,
            until: 0.5,
        };
        let mut steps = Steps::default();
        for passes in 1..8 {
            let step = *steps.of(one, passes);
            for level in 0..=u8::MAX {
                let rate = rate_of(level);
                let at = usize::from(level);
                let next = level_of(next_rate(rate, one, passes));
                let off = i32::from(step[at]) - i32::from(next);
                assert!(off.abs() <= 1, "{level}: {off} eighths of an octave");
            }
        }
        for millis in 1..5_000 {
            let until = f64::from(millis) / 1e3;
            let _ = steps.of(Seen { until, ..one }, u32::MAX);
        }
        assert!(steps.known.len() < 120, "{}", steps.known.len());
    }
}
