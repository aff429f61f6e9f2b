// SPDX-License-Identifier: MIT OR Apache-2.0
//! AutoTiering's parameters: the paper's first, then what user space needs besides.

use std::str::FromStr;

use terrace_core::Nanos;

use crate::FirstPlacement;
use crate::settings;
use crate::settings::SettingError;
use crate::settings::Settings;

/// Which of the paper's schemes (figure 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Conservative: to free memory only, of the next best node where the best is full (4.1).
    Cpm,
    /// The same, and exchange of pages that could not be migrated (4.1, 5c).
    Cpmx,
    /// Opportunistic: the least accessed page makes room for one that is accessed more (4.2).
    Opm,
    /// The same, demotion and promotion fused into an exchange where they can be (4.2).
    Opmx,
    /// Opportunistic, with reserved pages and demotion in the background (4.3).
    OpmBd,
}

impl Mode {
    /// Whether pages are demoted to make room.
    #[must_use]
    pub const fn demotes(self) -> bool {
        matches!(self, Self::Opm | Self::Opmx | Self::OpmBd)
    }

    /// Whether pages are exchanged.
    #[must_use]
    pub const fn exchanges(self) -> bool {
        matches!(self, Self::Cpmx | Self::Opmx)
    }
}

impl FromStr for Mode {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "cpm" => Self::Cpm,
            "cpmx" => Self::Cpmx,
            "opm" => Self::Opm,
            "opmx" => Self::Opmx,
            "opm-bd" => Self::OpmBd,
            _ => return Err(()),
        })
    }
}

/// Everything that can be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// The scheme.
    pub mode: Mode,
    /// The shortest scan round, in which pages are armed and histories shift once (`numa_balancing_scan_period_min_ms`).
    pub scan_period_min: Nanos,
    /// The longest (`numa_balancing_scan_period_max_ms`).
    pub scan_period_max: Nanos,
    /// Bytes a second that a round covers at most, so that it takes longer over more memory: the scanner's own
    /// pace, 256 MiB (`numa_balancing_scan_size_mb`) every 100 ms.
    pub scan_rate: u64,
    /// Fast pages of 4 KiB in reserve on each node (4.3: 16).
    pub reserved_pages: u32,
    /// Below so many the background demotion wakes (4.3: 4).
    pub reserved_low: u32,
    /// Fast pages of 2 MiB in reserve on each node (4.3: 4).
    pub reserved_huge: u32,
    /// Below so many the background demotion wakes (the published kernel: 3).
    pub reserved_huge_low: u32,
    /// Pages that an exchange looks at for a partner (the published kernel: 16).
    pub exchange_scan: usize,
    /// Where new memory goes (3.1: the access tier first).
    pub first_placement: FirstPlacement,
    /// Migrations under way at most: demands come in bursts, and one that finds no place is lost until the next round.
    pub inflight_pages: usize,
}

/// What each does.
pub(super) const HELP: &[(&str, &str)] = &[
    (
        "mode",
        "The scheme: conservative or opportunistic, with exchange or background demotion (4.1 to 4.3).",
    ),
    (
        "scan_period_min",
        "Shortest scan round: pages are armed, and their histories shift, once in it.",
    ),
    (
        "scan_period_max",
        "Longest scan round, where nothing is left to do.",
    ),
    ("scan_rate", "Bytes a second that a round covers at most."),
    (
        "reserved_pages",
        "Fast pages of 4 KiB in reserve on each node; opm-bd (4.3).",
    ),
    (
        "reserved_low",
        "Below so many of 4 KiB the background demotion wakes (4.3).",
    ),
    (
        "reserved_huge",
        "Fast pages of 2 MiB in reserve on each node; opm-bd (4.3).",
    ),
    (
        "reserved_huge_low",
        "Below so many of 2 MiB the background demotion wakes.",
    ),
    (
        "exchange_scan",
        "Pages that an exchange looks at for a partner (4.1).",
    ),
    (
        "first_placement",
        "Where new memory goes: to any fast node before a slow one, or as the kernel has it (3.1).",
    ),
    ("inflight_pages", "Migrations under way at most."),
];

/// Where all times are so many times as long, the scanner covers as much less in a second.
pub(super) fn dilated(by: f64) -> Vec<(&'static str, String)> {
    let rate = Params::default().scan_rate;
    vec![("scan_rate", settings::slowed(rate, by))]
}

impl Default for Params {
    fn default() -> Self {
        Self {
            mode: Mode::OpmBd,
            scan_period_min: Nanos::from_secs(1),
            scan_period_max: Nanos::from_secs(60),
            scan_rate: 2560 << 20,
            reserved_pages: 16,
            reserved_low: 4,
            reserved_huge: 4,
            reserved_huge_low: 3,
            exchange_scan: 16,
            first_placement: FirstPlacement::FastFirst,
            inflight_pages: 32_768,
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
        let modes = "cpm, cpmx, opm, opmx or opm-bd";
        let mode = |text: &str| text.parse().ok();
        let least = Nanos::from_millis(10);
        let mode = settings.value("mode", (d.mode, "opm-bd"), modes, mode)?;
        let scan_period_min = settings
            .time("scan_period_min", d.scan_period_min)?
            .max(least);
        let scan_period_max = settings.time("scan_period_max", d.scan_period_max)?;
        let scan_rate = settings.number("scan_rate", d.scan_rate, 1..=u64::MAX)?;
        let reserved_pages = settings.number("reserved_pages", d.reserved_pages, 1..=1 << 20)?;
        let wanted = "a whole number from 1 to reserved_pages";
        let default = (d.reserved_low.min(reserved_pages), "4");
        let low = |text: &str| mark(text, reserved_pages);
        let reserved_low = settings.value("reserved_low", default, wanted, low)?;
        let reserved_huge = settings.number("reserved_huge", d.reserved_huge, 1..=1 << 20)?;
        let wanted = "a whole number from 1 to reserved_huge";
        let default = (d.reserved_huge_low.min(reserved_huge), "3");
        let low = |text: &str| mark(text, reserved_huge);
        let reserved_huge_low = settings.value("reserved_huge_low", default, wanted, low)?;
        Ok(Self {
            mode,
            scan_period_min,
            scan_period_max: scan_period_max.max(scan_period_min),
            scan_rate,
            reserved_pages,
            reserved_low,
            reserved_huge,
            reserved_huge_low,
            exchange_scan: settings.number("exchange_scan", d.exchange_scan, 1..=1 << 20)?,
            first_placement: settings.value(
                "first_placement",
                (d.first_placement, "fast-first"),
                FirstPlacement::NAMES,
                |text| text.parse().ok(),
            )?,
            inflight_pages: settings.number("inflight_pages", d.inflight_pages, 1..=1 << 20)?,
        })
    }
}

/// Where the reserve is so large: the number of pages below which demotion wakes. A larger one would keep it awake.
fn mark(text: &str, reserve: u32) -> Option<u32> {
    let number = text.parse().ok()?;
    (1..=reserve).contains(&number).then_some(number)
}
