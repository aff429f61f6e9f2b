// SPDX-License-Identifier: MIT OR Apache-2.0
//! MTM's parameters, by the paper's names; `docs/papers/mtm.md` has the reasons, one by one.

use terrace_core::Nanos;

use crate::FirstPlacement;
use crate::settings;
use crate::settings::SettingError;
use crate::settings::Settings;

/// Scans of a page in an interval are counted in three bits.
const SCANS_MAX: u8 = 7;

/// When scans of a page follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spacing {
    /// So that about as much is found accessed as the fastest tier holds, half of it at most.
    Adaptive,
    /// Always after that time.
    Fixed(Nanos),
}

/// How pages are copied (7). The mover's; the policy does not look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copying {
    /// Beside the program; at the first write it waits for the rest.
    Adaptive,
    /// While the page is inaccessible.
    Sync,
}

/// Everything that can be set.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// The profiling interval, `t_mi` (9: 10 s).
    pub interval: Nanos,
    /// What profiling may take, as a share of the time (5.3: 5 %).
    pub profiling_overhead: f64,
    /// Scans of a sampled page in an interval (5.3: 3).
    pub num_scans: u8,
    /// Regions whose hotness differs by less are merged (5.1: a third of `num_scans`).
    pub tau_m: f64,
    /// A region is split whose samples differ by more (5.1: two thirds of `num_scans`).
    pub tau_s: f64,
    /// Weight of the last interval (6.1: 0.5).
    pub alpha: f64,
    /// Bytes promoted in an interval at most, `N` (6.1: 200 MB).
    pub promote_bytes: u64,
    /// Accesses for one sample (8: 200). The tracker's; the policy does not look at it.
    pub sample_period: u64,
    /// From one scan of a page to the next; the paper does not say.
    pub scan_spacing: Spacing,
    /// Whether regions are merged and split (9.3, figure 7).
    pub adaptive_regions: bool,
    /// Whether samples go where hotness varies most; else to random regions (9.3, figure 7).
    pub adaptive_sampling: bool,
    /// Whether the overhead is controlled; else every region keeps a sample (9.3, figure 7).
    pub overhead_control: bool,
    /// Whether performance counters guide the scans of the slowest tier (5.5).
    pub pebs: bool,
    /// Whether a region of the slowest tier is always sampled by its captured page alone (5.2), and not only at first.
    pub captured_alone: bool,
    /// How pages are copied (7).
    pub migration: Copying,
    /// Threads that copy a page (7.2: several; Nimble's 4). The mover's; the policy does not look at it.
    pub copy_threads: u32,
    /// Where pages are first (table 4).
    pub first_placement: FirstPlacement,
    /// Migrations under way at most.
    pub inflight_pages: usize,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    ("interval", "The profiling interval, t_mi (9)."),
    (
        "profiling_overhead",
        "What profiling may take, as a share of the time (5.3).",
    ),
    ("num_scans", "Scans of a sampled page in an interval (5.3)."),
    (
        "tau_m",
        "Regions whose hotness differs by less are merged (5.1).",
    ),
    (
        "tau_s",
        "A region whose samples differ by more is split (5.1).",
    ),
    ("alpha", "Weight of the last interval (6.1)."),
    (
        "promote_bytes",
        "Bytes promoted in an interval at most, N (6.1).",
    ),
    ("sample_period", "Accesses for one sample (8)."),
    (
        "scan_spacing",
        "From one scan of a page to the next; adaptive: so that as much is found accessed as the fastest tier holds.",
    ),
    (
        "adaptive_regions",
        "Whether regions are merged and split (9.3).",
    ),
    (
        "adaptive_sampling",
        "Whether samples go where hotness varies most (9.3).",
    ),
    ("overhead_control", "Whether the overhead is bound (9.3)."),
    (
        "pebs",
        "Whether samples of accesses guide the scans of the slowest tier (5.5).",
    ),
    (
        "captured_alone",
        "Whether a region of the slowest tier is always sampled by its captured page alone (5.2).",
    ),
    (
        "migration",
        "How pages are copied: adaptive or sync; the mover's (7).",
    ),
    (
        "copy_threads",
        "Threads that copy a page, under terrace run 8 at most (7.2).",
    ),
    (
        "first_placement",
        "Where pages are first: as-is, first-touch, fast-first or slow-local (9.1).",
    ),
    ("inflight_pages", "Migrations under way at most."),
];

/// N is a rate, as much lower as the machine is slower. The interval stays: `t_mi` is how long the profiler has, and its
/// scans are no slower there than programs are.
pub(super) fn dilated(by: f64) -> Vec<(&'static str, String)> {
    let bytes = Params::default().promote_bytes;
    vec![("promote_bytes", settings::slowed(bytes, by))]
}

impl Default for Params {
    fn default() -> Self {
        Self {
            interval: Nanos::from_secs(10),
            profiling_overhead: 0.05,
            num_scans: 3,
            tau_m: 1.0,
            tau_s: 2.0,
            alpha: 0.5,
            promote_bytes: 200_000_000,
            sample_period: 200,
            scan_spacing: Spacing::Adaptive,
            adaptive_regions: true,
            adaptive_sampling: true,
            overhead_control: true,
            pebs: true,
            captured_alone: false,
            migration: Copying::Adaptive,
            copy_threads: 4,
            first_placement: FirstPlacement::AsIs,
            inflight_pages: 4_096,
        }
    }
}

impl Params {
    /// As written; what is not given has its default.
    ///
    /// # Errors
    ///
    /// Where a value cannot be.
    pub fn read(settings: &mut Settings) -> Result<Self, SettingError> {
        let d = Self::default();
        let share = |text: &str| within(text, 0.0, 1.0);
        let interval = settings
            .time("interval", d.interval)?
            .max(Nanos::from_millis(100));
        let profiling_overhead = settings.value(
            "profiling_overhead",
            (d.profiling_overhead, "0.05"),
            "a share above 0, at most 1",
            |text| share(text).filter(|share| *share > 0.0),
        )?;
        let num_scans = settings.number("num_scans", d.num_scans, 1..=SCANS_MAX)?;
        let scans = f64::from(num_scans);
        let wanted = "a number from 0 to num_scans";
        let difference = |text: &str| within(text, 0.0, scans);
        Ok(Self {
            interval,
            profiling_overhead,
            num_scans,
            tau_m: settings.value(
                "tau_m",
                (scans / 3.0, "1/3 of num_scans"),
                wanted,
                difference,
            )?,
            tau_s: settings.value(
                "tau_s",
                (scans * 2.0 / 3.0, "2/3 of num_scans"),
                wanted,
                difference,
            )?,
            alpha: settings.value("alpha", (d.alpha, "0.5"), "a share from 0 to 1", share)?,
            promote_bytes: settings.number("promote_bytes", d.promote_bytes, 0..=u64::MAX)?,
            sample_period: settings.number("sample_period", d.sample_period, 1..=1 << 40)?,
            scan_spacing: settings.value(
                "scan_spacing",
                (d.scan_spacing, "adaptive"),
                "adaptive, or a time such as 10ms",
                Spacing::named,
            )?,
            adaptive_regions: settings.switch("adaptive_regions", d.adaptive_regions)?,
            adaptive_sampling: settings.switch("adaptive_sampling", d.adaptive_sampling)?,
            overhead_control: settings.switch("overhead_control", d.overhead_control)?,
            pebs: settings.switch("pebs", d.pebs)?,
            captured_alone: settings.switch("captured_alone", d.captured_alone)?,
            migration: settings.value(
                "migration",
                (d.migration, "adaptive"),
                "adaptive or sync",
                Copying::named,
            )?,
            copy_threads: settings.number("copy_threads", d.copy_threads, 1..=64)?,
            first_placement: settings.value(
                "first_placement",
                (d.first_placement, "as-is"),
                FirstPlacement::NAMES,
                |text| text.parse().ok(),
            )?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
        })
    }
}

impl Spacing {
    fn named(text: &str) -> Option<Self> {
        match text {
            "adaptive" => Some(Self::Adaptive),
            time => terrace_core::parse_duration(time).ok().map(Self::Fixed),
        }
    }
}

impl Copying {
    fn named(text: &str) -> Option<Self> {
        match text {
            "adaptive" => Some(Self::Adaptive),
            "sync" => Some(Self::Sync),
            _ => None,
        }
    }
}

fn within(text: &str, least: f64, most: f64) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (least..=most).contains(&number).then_some(number)
}
