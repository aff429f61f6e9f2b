// SPDX-License-Identifier: MIT OR Apache-2.0
//! How well a tracker knows the hot set, at a given overhead (MTM section 3, Chrono 2.4).
//!
//! [`profile`] lets one tracker look at a workload whose true rates are known, and judges it every
//! second. Pages do not move here: what is judged is the tracker alone. All trackers have the same
//! budget, a share of one processor's time ([`Options::overhead`]: MTM 5.3 counts that way); what a look
//! costs is in [`crate::Costs`], and the programs lose as much time.
//!
//! **The hot set** is the most visited [`Options::hot_share`] of the memory, and of these only pages
//! that are visited more than the average page: where a workload's hot set is smaller, its real size
//! counts; where all pages are alike there is none. **What a tracker takes for hot** is as much memory
//! as is hot, by its own estimates, the highest first; pages that it cannot tell apart count by the share
//! of them that fits, pages of which it knows nothing not at all.
//!
//! * [`ground`]: true rates; [`judge`]: recall and precision.
//! * Trackers: [`hint_faults`], [`pmu`], [`accessed_bits`], [`damon`], [`thermostat`].

mod accessed_bits;
mod damon;
mod draw;
mod ground;
mod hint_faults;
mod judge;
mod pmu;
mod thermostat;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::Setup;
use crate::SimError;
use draw::Draw;
use ground::Ground;

/// The trackers there are.
pub const TRACKERS: &[&str] = &[
    "hint-faults",
    "hint-faults-mru",
    "pmu",
    "accessed-bits",
    "damon",
    "thermostat",
    "ideal",
    "random",
];

/// What the tracker may take and what is asked of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Share of one processor's time.
    pub overhead: f64,
    /// The hot set is at most this share of the memory. MTM's figure 1 has a fifth.
    pub hot_share: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            overhead: 0.05,
            hot_share: 0.2,
        }
    }
}

/// One second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Second {
    /// Its end, s.
    pub t: f64,
    /// Hot memory that the tracker takes for hot, of all hot.
    pub recall: f64,
    /// Hot memory among what the tracker takes for hot; 0 while it takes nothing for it.
    pub precision: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// What the tracker spent, share of one processor.
    pub overhead: f64,
}

/// How a tracker did.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// The tracker.
    pub tracker: String,
    /// The hot set's share of the memory, in the last phase.
    pub hot_share: f64,
    /// A point a second; without those seconds in which nothing was hot.
    pub series: Vec<Second>,
}

impl Profile {
    /// Mean over the last third of the run.
    #[must_use]
    pub fn settled(&self) -> Second {
        mean(&self.series[self.series.len() * 2 / 3..])
    }

    /// Mean over the whole run.
    #[must_use]
    pub fn mean(&self) -> Second {
        mean(&self.series)
    }

    /// Seconds until the recall first was 90 % of what it is in the last third.
    #[must_use]
    pub fn seconds_to_90pct(&self) -> Option<f64> {
        let mark = self.settled().recall * 0.9;
        let reached = self.series.iter().find(|second| second.recall >= mark);
        reached.filter(|_| mark > 0.0).map(|second| second.t)
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
fn mean(series: &[Second]) -> Second {
    let count = series.len().max(1) as f64;
    let of = |value: fn(&Second) -> f64| series.iter().map(value).sum::<f64>() / count;
    Second {
        t: series.last().map_or(0.0, |second| second.t),
        recall: of(|s| s.recall),
        precision: of(|s| s.precision),
        f1: of(|s| s.f1),
        overhead: of(|s| s.overhead),
    }
}

/// What looks at accesses. Times are ns.
trait Tracker {
    /// How long from one step to the next; at most a second.
    fn interval(&self) -> f64;
    /// Goes on by an interval that ends at `now`; gives what that cost.
    fn step(&mut self, ground: &Ground, now: f64, draw: &mut Draw) -> f64;
    /// How hot it takes each unit for; 0: nothing known, or not hot at all.
    fn estimate(&self, ground: &Ground, now: f64, out: &mut [f32]);
}

/// Trackers keep a few words a page, and a pass over all of them a second is looked at.
const UNITS_MAX: u32 = 1 << 25;

/// Lets a tracker look at a set-up's workload; its system is not used. `progress` is told the simulated
/// seconds.
///
/// # Errors
///
/// Where there is no such tracker, or the set-up cannot be simulated.
pub fn profile(
    setup: &Setup,
    tracker: &str,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Profile, SimError> {
    check(setup, tracker, options)?;
    let mut ground = Ground::new(setup, options)?;
    let mut draw = Draw::new(setup.seed);
    let costs = &setup.costs;
    let mut tracked: Box<dyn Tracker> = match tracker {
        "hint-faults" => Box::new(hint_faults::HintFaults::new(&ground, costs, options, false)),
        "hint-faults-mru" => Box::new(hint_faults::HintFaults::new(&ground, costs, options, true)),
        "pmu" => Box::new(pmu::Pmu::new(&ground, costs, options)),
        "accessed-bits" => Box::new(accessed_bits::AccessedBits::new(&ground, costs, options)),
        "damon" => Box::new(damon::Damon::new(&ground, costs, options)),
        "thermostat" => Box::new(thermostat::Thermostat::new(&ground, costs, options)),
        "ideal" => Box::new(judge::Ideal),
        _ => Box::new(judge::Random::new(&ground, &mut draw)),
    };
    let end = setup.seconds * 1e9;
    let mut estimates = vec![0.0; ground.units()];
    let mut series = Vec::new();
    let (mut now, mut cost) = (0.0, 0.0);
    let (mut second, mut since) = (1e9, 0.0);
    while now < end {
        now = (now + tracked.interval()).min(end);
        ground.advance(now);
        cost += tracked.step(&ground, now, &mut draw);
        if now + 1.0 < second && now + 1.0 < end {
            continue;
        }
        tracked.estimate(&ground, now, &mut estimates);
        if let Some((recall, precision)) = judge::judge(&ground, &estimates) {
            series.push(Second {
                t: now / 1e9,
                recall,
                precision,
                f1: judge::harmonic(recall, precision),
                overhead: cost / (now - since),
            });
        }
        (cost, since) = (0.0, now);
        second += 1e9;
        progress(now / 1e9);
    }
    if series.is_empty() {
        let text =
            "All pages are visited alike: there is no hot set to find; take another workload";
        return Err(SimError::Limit(text.to_owned()));
    }
    Ok(Profile {
        tracker: tracker.to_owned(),
        hot_share: ground.hot_share(),
        series,
    })
}

/// Whether that can be profiled. Quick.
///
/// # Errors
///
/// What [`profile`] would say, but for a workload without a hot set.
pub fn check(setup: &Setup, tracker: &str, options: &Options) -> Result<(), SimError> {
    let refuse = |text: String| Err(SimError::Limit(text));
    if !TRACKERS.contains(&tracker) {
        let all = TRACKERS.join(", ");
        return refuse(format!("Unknown tracker '{tracker}'; there are: {all}"));
    }
    if !(0.0001..=1.0).contains(&options.overhead) {
        let text = "An overhead cannot be";
        return refuse(format!("{text} {}; give 0.01 % to 100 %", options.overhead));
    }
    if !(0.0001..=0.9).contains(&options.hot_share) {
        let text = "A hot set cannot be";
        return refuse(format!(
            "{text} {} of the memory; give 0.01 % to 90 %",
            options.hot_share
        ));
    }
    let none = Ground::baseline(setup);
    crate::check(&none)?;
    let units = crate::space::Space::map(&none)?.units();
    if units > UNITS_MAX {
        return refuse(format!(
            "{units} pages are too many to profile; take --page-size 2m, or less memory"
        ));
    }
    Ok(())
}
