// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's NUMA-balancing scanner in our service: it arms, it does not promote.
//!
//! Mode 2 arms pages outside the top tier, mode 3 all pages. With a promotion rate limit of 0 the
//! kernel counts candidates and moves none (unless a fast node has more than 1 GiB or 1/16 of
//! itself free: it promotes at once then, and we see the page as moved). All settings go back when
//! this is dropped.

use std::path::Path;

use terrace_core::Nanos;
use terrace_policy::ScanScope;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::SetOutcome;
use terrace_sys::settings::Setting;
use terrace_sys::settings::SettingsError;

/// Marks so much in one go; the kernel spreads the goes over the period.
const SCAN_SIZE_MB: u32 = 256;

/// The scanner, ours while this lives.
#[derive(Debug)]
pub struct Scanner {
    settings: KernelSettings,
}

impl Scanner {
    /// Takes the settings and stops the kernel's own promotion. Nothing is armed yet.
    ///
    /// # Errors
    ///
    /// Where another supervisor has them, or they cannot be changed.
    pub fn open() -> Result<Self, SettingsError> {
        let mut settings = KernelSettings::acquire(Path::new("/"))?;
        for restored in settings.restored_at_start() {
            tracing::info!("Put back {restored:?}, which a crashed supervisor had left");
        }
        for (setting, value) in [
            (Setting::PromoteRateLimitMbps, 0),
            (Setting::ScanDelayMs, 100),
        ] {
            if let SetOutcome::Foreign { found } = settings.set(setting, value)? {
                tracing::warn!(
                    "Setting {setting:?} is {found} by somebody else's doing and stays so"
                );
            }
        }
        Ok(Self { settings })
    }

    /// Arms pages of that scope, each once a period.
    ///
    /// # Errors
    ///
    /// Where the settings cannot be changed.
    pub fn apply(&mut self, scope: ScanScope, period: Nanos) -> Result<(), SettingsError> {
        let mode = match scope {
            ScanScope::Slow => ScanMode::Tiering,
            ScanScope::All => ScanMode::Both,
        };
        self.set(mode, period)
    }

    /// Arms nothing any more.
    ///
    /// # Errors
    ///
    /// Where the settings cannot be changed.
    pub fn stop(&mut self) -> Result<(), SettingsError> {
        self.set(ScanMode::Off, Nanos::from_secs(1))
    }

    fn set(&mut self, mode: ScanMode, period: Nanos) -> Result<(), SettingsError> {
        let rate = ScanRate {
            mode,
            period_min: period,
            period_max: period,
            size_mb: SCAN_SIZE_MB,
        };
        for (setting, found) in self.settings.set_scan_rate(&rate)? {
            tracing::warn!("Setting {setting:?} is {found} by somebody else's doing and stays so");
        }
        Ok(())
    }
}
