// SPDX-License-Identifier: MIT OR Apache-2.0
//! The scanner's settings as one value, to be changed while it runs.

use terrace_core::Nanos;

use super::Setting;

/// Which pages the scanner marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum ScanMode {
    /// None, or next to none where pages hold access times ([`wishes`](super::wishes)). Pages that are marked stay so until they are touched.
    #[default]
    Off,
    /// All, and the kernel moves pages to the node that uses them.
    Normal,
    /// Those outside of the top tier.
    Tiering,
    /// All; outside of the top tier with the kernel's promotion, inside with its balancing.
    Both,
}

impl ScanMode {
    /// The value of `kernel.numa_balancing`.
    #[must_use]
    pub const fn value(self) -> u8 {
        match self {
            Self::Off => 0,
            Self::Normal => 1,
            Self::Tiering => 2,
            Self::Both => 3,
        }
    }
}

/// How fast and how much the kernel scans each process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanRate {
    /// Which pages.
    pub mode: ScanMode,
    /// Shortest time between two scans; whole milliseconds.
    pub period_min: Nanos,
    /// Longest time between two scans; whole milliseconds.
    pub period_max: Nanos,
    /// How much one scan marks.
    pub size_mb: u32,
}

impl ScanRate {
    /// The settings that make it, the mode last. Where the scanner is off, the rest does not
    /// matter and is left as it is.
    pub(super) fn settings(&self) -> Vec<(Setting, u64)> {
        let mode = (Setting::NumaBalancing, u64::from(self.mode.value()));
        if self.mode == ScanMode::Off {
            return vec![mode];
        }
        vec![
            (Setting::ScanPeriodMinMs, whole_ms(self.period_min)),
            (
                Setting::ScanPeriodMaxMs,
                whole_ms(self.period_max.max(self.period_min)),
            ),
            (Setting::ScanSizeMb, u64::from(self.size_mb.max(1))),
            mode,
        ]
    }
}

/// At least 1: the kernel divides by it.
fn whole_ms(time: Nanos) -> u64 {
    (time.0 / 1_000_000).max(1)
}
