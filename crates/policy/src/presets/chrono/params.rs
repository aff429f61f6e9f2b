// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chrono's parameters: those of the paper's Table 2 by its names, its other numbers, then what user space needs besides.

use terrace_core::Nanos;

use crate::Capabilities;
use crate::settings;
use crate::settings::SettingError;
use crate::settings::Settings;

/// Where a page's captured idle time is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Hint faults: fault time less scan time (3.1.1).
    Faults,
    /// The ladder of accessed bits: when a page's bit is first seen, less when it was cleared.
    AccessedBits,
}

/// Where the idle times of the heat maps are from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// The ladder of accessed bits.
    AccessedBits,
    /// Hint faults, of victims that the scanner arms as it goes round.
    Faults,
    /// Hint faults, of victims that are armed by themselves (3.2.2).
    ChosenFaults,
}

/// What sets the CIT threshold and the promotion rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningKind {
    /// The threshold follows the rate limit that was set (3.2.1).
    SemiAuto,
    /// Both follow the heat maps of the tiers (3.2.2).
    Dcsc,
}

/// Everything that can be set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Params {
    /// Bytes marked at a time (Table 2: scan step, 256 MB).
    pub scan_step: u64,
    /// A pass of the Ticking-scan over the address space (Table 2: 60 s).
    pub scan_period: Nanos,
    /// Share of pages that DCSC probes (Table 2: P-victim, 0.003 %); [`super::dcsc`] has the least.
    pub p_victim: f64,
    /// Levels of captured idle time (Table 2: B-bucket, 28).
    pub buckets: usize,
    /// Adaption step of the threshold (Table 2: delta-step, 0.5).
    pub delta_step: f64,
    /// CIT threshold, at first (Table 2: 1,000 ms).
    pub cit_threshold: Nanos,
    /// Promotion rate limit, at first, bytes a second (Table 2: 100 MBps).
    pub rate_limit: u64,
    /// Rounds below the threshold before a page is promoted (3.1.2: two).
    pub rounds: u8,
    /// What sets threshold and limit (3.2).
    pub tuning: TuningKind,
    /// Thrashing above which the limit is halved, a share of promotions (3.3.2: 20 %).
    pub thrash_threshold: f64,
    /// Where captured idle times are from.
    pub cit: Source,
    /// Where those of the heat maps are from.
    pub probe: Probe,
    /// The shortest pass over the accessed bits, and how often statistics are looked at (3.2.2: "per-second scans").
    pub statistic_period: Nanos,
    /// Bytes a second that such a pass covers at most: the scanner's own pace, 256 MiB every 100 ms.
    pub accessed_rate: u64,
    /// Bytes that the promotion queue may take.
    pub queue_bytes: usize,
    /// Migrations under way at most.
    pub inflight_pages: usize,
    /// How often promotion and demotion run.
    pub tick: Nanos,
    /// Not to be set: chosen pages can be armed here.
    pub arms: bool,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    ("scan_step", "Bytes marked at a time (Table 2)."),
    (
        "scan_period",
        "A pass of the Ticking-scan over the address space (Table 2).",
    ),
    ("p_victim", "Share of pages that DCSC probes (Table 2)."),
    ("buckets", "Levels of captured idle time (Table 2)."),
    (
        "delta_step",
        "Adaption step of the CIT threshold (Table 2).",
    ),
    ("cit_threshold", "CIT threshold, at first (Table 2)."),
    (
        "rate_limit",
        "Bytes promoted a second at most, at first (Table 2).",
    ),
    (
        "rounds",
        "Rounds below the threshold before a page is promoted (3.1.2).",
    ),
    (
        "tuning",
        "What sets threshold and rate limit: dcsc, or semi-auto for the threshold alone (3.2).",
    ),
    (
        "thrash_threshold",
        "Share of promotions that may be of pages just demoted before the limit is halved (3.3.2).",
    ),
    (
        "cit",
        "Where captured idle times are from: accessed bits or hint faults (3.1.1).",
    ),
    (
        "probe",
        "Where the idle times of the heat maps are from: accessed bits, hint faults, or those of victims that are armed by themselves (3.2.2).",
    ),
    (
        "statistic_period",
        "Shortest pass over the accessed bits, and how often statistics are looked at (3.2.2).",
    ),
    (
        "accessed_rate",
        "Bytes a second that a pass over the accessed bits covers at most, as the scanner's.",
    ),
    ("queue_bytes", "Bytes that the promotion queue may take."),
    ("inflight_pages", "Migrations under way at most."),
    ("tick", "How often promotion and demotion run."),
];

/// The lab has about so much less memory than the machine that it stands for (`lab_capacity` in `machines/`).
const LAB_MEMORY: f64 = 256.0;

/// In the lab a pass over memory at the same share of the processor takes as much less as memory is smaller and as much
/// more as the machine is slower. A rate is as much lower as that alone, so that as much is promoted in a pass. The
/// threshold, which tunes itself, stays: with a process or two in place of fifty a page is accessed some times a
/// second there as in the paper (5.1.1: 1.14).
pub(super) fn dilated(by: f64) -> Vec<(&'static str, String)> {
    let d = Params::default();
    let period = settings::dilated(d.scan_period, by / LAB_MEMORY);
    vec![
        ("scan_period", period),
        ("rate_limit", settings::slowed(d.rate_limit, by)),
    ]
}

impl Default for Params {
    fn default() -> Self {
        Self {
            scan_step: 256 << 20,
            scan_period: Nanos::from_secs(60),
            p_victim: 0.000_03,
            buckets: 28,
            delta_step: 0.5,
            cit_threshold: Nanos::from_millis(1_000),
            rate_limit: 100_000_000,
            rounds: 2,
            tuning: TuningKind::Dcsc,
            thrash_threshold: 0.2,
            cit: Source::AccessedBits,
            probe: Probe::AccessedBits,
            statistic_period: Nanos::from_secs(1),
            accessed_rate: 2560 << 20,
            queue_bytes: 32 << 20,
            inflight_pages: 512,
            tick: Nanos::from_millis(50),
            arms: false,
        }
    }
}

impl Params {
    /// As written; what is not given has its default. Chosen pages are armed where that is given.
    ///
    /// # Errors
    ///
    /// Where a value cannot be.
    pub fn read(settings: &mut Settings, given: Capabilities) -> Result<Self, SettingError> {
        let d = Self::default();
        let least = Nanos::from_millis(10);
        let chosen = given.contains(Capabilities::CHOSEN_FAULTS);
        Ok(Self {
            scan_step: settings.number("scan_step", d.scan_step, 1 << 20..=1 << 40)?,
            scan_period: settings.time("scan_period", d.scan_period)?.max(least),
            p_victim: share(settings, "p_victim", d.p_victim)?,
            buckets: settings.number("buckets", d.buckets, 2..=28)?,
            delta_step: share(settings, "delta_step", d.delta_step)?,
            cit_threshold: settings.time("cit_threshold", d.cit_threshold)?,
            rate_limit: settings.rate("rate_limit", d.rate_limit)?,
            rounds: settings.number("rounds", d.rounds, 1..=3)?,
            tuning: settings.value("tuning", (d.tuning, "dcsc"), "dcsc or semi-auto", |text| {
                match text {
                    "dcsc" => Some(TuningKind::Dcsc),
                    "semi-auto" => Some(TuningKind::SemiAuto),
                    _ => None,
                }
            })?,
            thrash_threshold: share(settings, "thrash_threshold", d.thrash_threshold)?,
            cit: cit(settings, d.cit)?,
            probe: probe(settings, d.probe, chosen)?,
            statistic_period: settings
                .time("statistic_period", d.statistic_period)?
                .max(least),
            accessed_rate: settings.number("accessed_rate", d.accessed_rate, 1..=u64::MAX)?,
            queue_bytes: settings.number("queue_bytes", d.queue_bytes, 0..=1 << 40)?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
            tick: settings.time("tick", d.tick)?,
            arms: chosen,
        })
    }

    /// Whether demoted pages are armed at once (3.3.2).
    pub(super) fn arms_demoted(&self) -> bool {
        self.arms && self.cit == Source::Faults
    }
}

fn share(settings: &mut Settings, name: &'static str, default: f64) -> Result<f64, SettingError> {
    let default = (default, &*default.to_string());
    settings.value(name, default, "a share above 0, at most 1", |text| {
        let share = text.parse().ok();
        share.filter(|share: &f64| *share > 0.0 && *share <= 1.0)
    })
}

fn cit(settings: &mut Settings, default: Source) -> Result<Source, SettingError> {
    let (default, wanted) = ((default, "accessed-bits"), "faults or accessed-bits");
    settings.value("cit", default, wanted, |text| match text {
        "faults" => Some(Source::Faults),
        "accessed-bits" => Some(Source::AccessedBits),
        _ => None,
    })
}

fn probe(settings: &mut Settings, default: Probe, chosen: bool) -> Result<Probe, SettingError> {
    let wanted = "accessed-bits, faults, or with --mover agent on Linux 7.3 or later chosen-faults";
    let default = (default, "accessed-bits");
    settings.value("probe", default, wanted, |text| match text {
        "accessed-bits" => Some(Probe::AccessedBits),
        "faults" => Some(Probe::Faults),
        "chosen-faults" => chosen.then_some(Probe::ChosenFaults),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::PRESET;
    use super::*;

    #[test]
    fn defaults_are_those_of_table_2_and_what_is_shown_of_them() {
        let read = |given| {
            let mut settings = Settings::new(PRESET.name, given);
            Params::read(&mut settings, Capabilities::empty()).expect("values")
        };
        let of = read(BTreeMap::new());
        assert_eq!(of.scan_step, 256 << 20);
        assert_eq!(of.scan_period, Nanos::from_secs(60));
        assert_eq!(of.p_victim.to_string(), "0.00003", "0.003 %");
        assert_eq!(of.buckets, 28);
        assert_eq!(of.delta_step.to_string(), "0.5");
        assert_eq!(of.cit_threshold, Nanos::from_millis(1_000));
        assert_eq!(of.rate_limit, 100_000_000);
        // Not in the table: two rounds (3.1.2), both by the heat maps (3.2.2), 20 % (3.3.2).
        assert_eq!((of.rounds, of.tuning), (2, TuningKind::Dcsc));
        assert_eq!(of.thrash_threshold.to_string(), "0.2");
        let listed = PRESET.parameters().into_iter();
        let shown = listed.map(|one| (one.parameter.name.to_owned(), one.parameter.default));
        assert_eq!(read(shown.collect()), of);
    }
}
