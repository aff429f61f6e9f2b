// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's DAMON as a system: its schemes move regions of physical memory between the tiers.
//!
//! Contract: `Documentation/admin-guide/mm/damon/usage.rst` (sysfs; `migrate_hot` and `migrate_cold` since Linux 6.11) and
//! the tiering set-up that its author publishes (`mem_tier.sh` of the tool damo): one kernel thread watches the fast node
//! and moves what is cold down while less than 0.5 % is free, another watches the slow node and moves what is hot up while less than 99.7 % of
//! the fast one is used, at most 200 MB/s each.
//!
//! Two ways of it:
//! * [`Mode::At`], on any kernel with these actions: fixed intervals, the goals fed from outside ([`goal`]);
//! * [`Mode::Auto`], the published set-up as it is: the kernel tunes its intervals and knows the node's memory itself
//!   (since Linux 6.16).
//!
//! What the kernel lacks is found by trying, and is a refusal: the run is skipped.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;
use terrace_chart::Look;
use terrace_policy::preset::Colour;

use super::record::RunRecord;
use super::record::System;

mod control;
mod goal;
mod monitoring;
mod scheme;
mod sysfs;

pub(super) use control::Control;
pub(super) use sysfs::Refused;

/// How DAMON is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Whichever of [`RATES`] is the fastest.
    Best,
    /// At one rate.
    At(Rate),
    /// By itself, as published.
    Auto,
}

/// A sampling interval. An aggregation is twenty of them, as by DAMON's default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate {
    /// Milliseconds.
    pub sample_ms: u64,
}

/// What is tried: the kernel's default of 5 ms, the same in the time of a machine that is dilated by 20, and one between.
pub const RATES: [Rate; 3] = [
    Rate { sample_ms: 5 },
    Rate { sample_ms: 20 },
    Rate { sample_ms: 100 },
];
const NAMES: [&str; 3] = ["damon-5ms", "damon-20ms", "damon-100ms"];
/// The names of the other modes.
pub const BEST: &str = "damon";
pub const AUTO: &str = "damon-auto";

impl Rate {
    /// Its sampling interval.
    #[must_use]
    pub const fn interval(self) -> Duration {
        Duration::from_millis(self.sample_ms)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.sample_ms)
    }
}

impl Mode {
    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => BEST,
            Self::Auto => AUTO,
            Self::At(rate) => {
                let index = RATES.iter().position(|one| *one == rate);
                index.map_or(BEST, |index| NAMES[index])
            }
        }
    }
}

/// How the modes' lines are drawn.
pub(super) fn looks() -> Vec<Look> {
    let colours = [
        (BEST, "#7d7a00", "#d6d24a"),
        (AUTO, "#00695c", "#4db6ac"),
        (NAMES[0], "#a8a43a", "#b5b17a"),
        (NAMES[1], "#8d8a55", "#98955f"),
        (NAMES[2], "#5f5d20", "#f0eda0"),
    ];
    let look = |(name, light, dark)| terrace_experiment::look(name, Colour { light, dark });
    colours.map(look).into()
}

/// No mode has that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoMode;

impl FromStr for Mode {
    type Err = NoMode;

    fn from_str(name: &str) -> Result<Self, NoMode> {
        let rates = RATES.into_iter().map(Self::At);
        let mut all = rates.chain([Self::Best, Self::Auto]);
        all.find(|mode| mode.name() == name).ok_or(NoMode)
    }
}

/// One of the rates that were tried for [`Mode::Best`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Tried {
    /// The rate.
    pub sample_ms: Rate,
    /// As in the record of a run; absent where it failed.
    pub ops_per_s: Option<f64>,
    /// The same.
    pub fast_access_ratio: Option<f64>,
    /// Whether it is the one that the record has: the fastest of the first round.
    pub taken: bool,
}

/// The record of [`Mode::Best`] from one at each rate: the fastest's; one that failed counts before all that did not.
///
/// `None` of nothing.
pub(super) fn fastest(runs: &[(Rate, RunRecord)]) -> Option<RunRecord> {
    let speed = |run: &RunRecord| run.ops_per_s.unwrap_or(0.0);
    let by_speed = runs
        .iter()
        .max_by(|(_, a), (_, b)| speed(a).total_cmp(&speed(b)));
    let failed = runs.iter().find(|(_, run)| run.failed.is_some());
    let (taken, record) = failed.or(by_speed)?;
    let tried = runs
        .iter()
        .filter(|(_, run)| run.skipped.is_none())
        .map(|(rate, run)| Tried {
            sample_ms: *rate,
            ops_per_s: run.ops_per_s,
            fast_access_ratio: run.fast_access_ratio,
            taken: rate == taken,
        });
    Some(RunRecord {
        system: System::Damon(Mode::Best),
        tried: tried.collect(),
        ..record.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sample_ms: u64, ops_per_s: f64) -> (Rate, RunRecord) {
        let rate = Rate { sample_ms };
        let record = RunRecord {
            ops_per_s: Some(ops_per_s),
            failed: None,
            ..RunRecord::failed("gups", System::Damon(Mode::At(rate)), String::new())
        };
        (rate, record)
    }

    #[test]
    fn the_fastest_rate_is_taken_and_all_are_told() {
        let record = fastest(&[at(5, 10.0), at(20, 30.0), at(100, 20.0)]).expect("three");
        assert_eq!(
            (record.system, record.ops_per_s),
            (System::Damon(Mode::Best), Some(30.0))
        );
        let tried: Vec<_> = record
            .tried
            .iter()
            .map(|tried| (tried.sample_ms.sample_ms, tried.taken))
            .collect();
        assert_eq!(tried, [(5, false), (20, true), (100, false)]);
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn a_rate_at_which_memory_was_wrong_is_not_hidden() {
        let mut bad = at(5, 10.0);
        bad.1.failed = Some("Memory is wrong".to_owned());
        let record = fastest(&[bad, at(20, 30.0)]).expect("two");
        assert_eq!(record.failed.as_deref(), Some("Memory is wrong"));
    }

    #[test]
    fn every_mode_has_a_name_of_its_own() {
        let modes = [Mode::Best, Mode::Auto];
        let all = modes.into_iter().chain(RATES.into_iter().map(Mode::At));
        for mode in all {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        assert_eq!("damon-7ms".parse::<Mode>(), Err(NoMode));
    }
}
