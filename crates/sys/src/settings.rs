// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kernel settings that Terrace changes, and putting them back.
//!
//! Contract: `Documentation/admin-guide/sysctl/kernel.rst` (numa_balancing, Linux 5.18 for mode 2),
//! `kernel/sched/debug.c` (the scanner's periods in debugfs, Linux 5.13; debugfs must be mounted
//! and the kernel not locked down), `Documentation/ABI/testing/sysfs-kernel-mm-numa`. All want root.
//!
//! Whoever changes something holds a [`KernelSettings`], of which there may be several at once. It writes down
//! what was there before it changes anything ([`record`]), and puts it back when it is dropped, unless another one
//! needs it still. After a crash the record is
//! there: the next [`KernelSettings::acquire`], or [`restore_stale`], puts things back. A
//! value that somebody else changed meanwhile is left alone and reported.
//!
//! All paths start at a root directory, `/` but in tests. [`scan`] has the scanner's settings as
//! one value.

mod guard;
mod record;
mod scan;
mod times;
mod wishes;

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

pub use guard::KernelSettings;
pub use guard::SetOutcome;
pub use guard::Stale;
pub use guard::restore_stale;
pub use guard::stale;
pub use record::RecordError;
pub use scan::ScanMode;
pub use scan::ScanRate;
use thiserror::Error;

/// A setting of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// Which pages the scanner marks: 0 none, 1 all, and the kernel moves them to who uses them,
    /// 2 those outside of the top tier, 3 both.
    NumaBalancing,
    /// How much the kernel itself may promote in mode 2.
    PromoteRateLimitMbps,
    /// Time until a new process is scanned.
    ScanDelayMs,
    /// Shortest time between two scans of a process.
    ScanPeriodMinMs,
    /// Longest time between two scans of a process.
    ScanPeriodMaxMs,
    /// How much one scan marks.
    ScanSizeMb,
    /// Idle time up to which the kernel itself promotes in mode 2.
    HotThresholdMs,
    /// Whether reclaim demotes instead of swapping.
    DemotionEnabled,
}

impl Setting {
    /// All of them, in the order in which they are best changed: the scanner goes on last.
    pub const ALL: [Self; 8] = [
        Self::PromoteRateLimitMbps,
        Self::ScanDelayMs,
        Self::ScanPeriodMinMs,
        Self::ScanPeriodMaxMs,
        Self::ScanSizeMb,
        Self::HotThresholdMs,
        Self::DemotionEnabled,
        Self::NumaBalancing,
    ];

    /// Its name, the same as its file's.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NumaBalancing => "numa_balancing",
            Self::PromoteRateLimitMbps => "numa_balancing_promote_rate_limit_MBps",
            Self::ScanDelayMs => "scan_delay_ms",
            Self::ScanPeriodMinMs => "scan_period_min_ms",
            Self::ScanPeriodMaxMs => "scan_period_max_ms",
            Self::ScanSizeMb => "scan_size_mb",
            Self::HotThresholdMs => "hot_threshold_ms",
            Self::DemotionEnabled => "demotion_enabled",
        }
    }

    /// The setting of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Its file.
    #[must_use]
    pub fn path(self, root: &Path) -> PathBuf {
        let directory = match self {
            Self::NumaBalancing | Self::PromoteRateLimitMbps => "proc/sys/kernel",
            Self::DemotionEnabled => "sys/kernel/mm/numa",
            _ => "sys/kernel/debug/sched/numa_balancing",
        };
        root.join(directory).join(self.name())
    }

    /// What the kernel has; `None` where it has no such setting.
    ///
    /// # Errors
    ///
    /// Where it cannot be read.
    pub fn read(self, root: &Path) -> Result<Option<String>, SettingsError> {
        let path = self.path(root);
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(self.canonical(text.trim()))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SettingsError::Read { path, source }),
        }
    }

    fn write(self, root: &Path, value: &str) -> Result<(), SettingsError> {
        let path = self.path(root);
        // Not fs::write, which would make a file that is not there.
        let written = fs::OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()));
        written.map_err(|source| SettingsError::Write {
            path,
            value: value.to_owned(),
            source,
        })
    }

    /// The one way in which a value is written down here; the kernel reads several.
    fn canonical(self, value: &str) -> String {
        match (self, value) {
            (Self::DemotionEnabled, "true" | "Y" | "y" | "1") => "1".to_owned(),
            (Self::DemotionEnabled, "false" | "N" | "n" | "0") => "0".to_owned(),
            (_, other) => other.to_owned(),
        }
    }
}

/// Why settings cannot be changed or put back.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The kernel does not have it.
    #[error(
        "The kernel has no {}; debugfs not mounted, or a kernel without NUMA balancing?",
        path.display()
    )]
    Absent {
        /// Its file.
        path: PathBuf,
    },
    /// It cannot be read.
    #[error("Cannot read {}; are you root, and is the kernel not locked down?", path.display())]
    Read {
        /// Its file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be written.
    #[error("Cannot write '{value}' to {}; are you root?", path.display())]
    Write {
        /// Its file.
        path: PathBuf,
        /// What was to be written.
        value: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What was there cannot be written down, so nothing is changed.
    #[error(transparent)]
    Record(#[from] RecordError),
}
