// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's NUMA-balancing scanner in our service: it arms, it does not promote.
//!
//! Mode 2 arms pages outside the top tier, mode 3 all pages. With a promotion rate limit of 0 the
//! kernel counts candidates and moves none (unless a fast node has more than 1 GiB or 1/16 of
//! itself free: it promotes at once then, and we see the page as moved). All settings go back when
//! this is dropped, unless another supervisor needs them still. There is one scanner: of several supervisors the
//! one that wants most sets its pace, and each sees the hint faults of its own processes.
//!
//! A pass is a number of steps, each over a part of a process's memory. A thread, and a program that was
//! spawned and not forked, keeps the time between two steps that it was created with, which is
//! `scan_delay_ms` (`init_numa_balancing` in Linux 6.12), until a hint fault on the top tier makes the
//! kernel reconsider (`task_numa_fault` returns early for others); and mode 2 arms nothing there. How
//! much a step arms is looked at each time. So a pass is asked for twice: as the period that the kernel
//! divides by the number of steps, and as steps so small that a pass of them takes as long. [`ScanSizing`] says how
//! large, here and in the simulator.

use std::path::Path;

use terrace_core::Nanos;
use terrace_policy::ScanScope;
use terrace_policy::ScanSizing;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::SetOutcome;
use terrace_sys::settings::Setting;
use terrace_sys::settings::SettingsError;

/// The kernel's NUMA balancing, switched off while this lives: it would move pages by itself beside a policy
/// that has other evidence. A supervisor beside us that has
/// its evidence from the scanner keeps it on.
#[derive(Debug)]
pub struct Quiet {
    _settings: KernelSettings,
}

impl Quiet {
    /// Switches it off, or keeps it off when another supervisor leaves. Nothing where it is off and we
    /// may not change it.
    ///
    /// # Errors
    ///
    /// Where it is on and cannot be changed.
    pub fn keep() -> Result<Option<Self>, SettingsError> {
        let text = Setting::NumaBalancing.read(Path::new("/"))?;
        let off = text.is_none_or(|mode| mode == "0");
        let acquired = KernelSettings::acquire(Path::new("/"));
        let mut settings = match acquired {
            Err(_) if off => return Ok(None),
            acquired => acquired?,
        };
        match settings.set(Setting::NumaBalancing, 0) {
            Ok(SetOutcome::Foreign { found }) => {
                tracing::warn!("NUMA balancing is {found} by somebody else's doing and stays so");
            }
            Ok(SetOutcome::Shared { found }) => {
                tracing::warn!("NUMA balancing is {found} for another supervisor and stays so");
            }
            Ok(SetOutcome::Done) => {}
            Err(_) if off => return Ok(None),
            Err(error) => return Err(error),
        }
        Ok(Some(Self {
            _settings: settings,
        }))
    }
}

/// The scanner, at our service while this lives; it serves other supervisors beside us, too.
#[derive(Debug)]
pub struct Scanner {
    settings: KernelSettings,
    sizing: ScanSizing,
    /// Set from the first scan on.
    step_ms: u64,
}

impl Scanner {
    /// Nothing is armed nor set yet. A scan will look at
    /// `bytes` in one step at most, in whole MiB, at least one. `running`: the threads are there already. The machine
    /// has `memory` bytes.
    ///
    /// # Errors
    ///
    /// Where they cannot be changed.
    pub fn open(bytes: u64, running: bool, memory: u64) -> Result<Self, SettingsError> {
        let settings = KernelSettings::acquire(Path::new("/"))?;
        let sizing = ScanSizing::new(bytes, memory);
        let step_ms = sizing.delay().0 / 1_000_000;
        let found = settings.get(Setting::ScanDelayMs);
        Ok(Self {
            settings,
            sizing: match found.filter(|_| running) {
                Some(ms) => sizing.with_delay(Nanos::from_millis(ms)),
                None => sizing,
            },
            step_ms,
        })
    }

    /// Stops the kernel's own promotion, and sets the time between the steps of threads to come.
    fn take(&mut self) -> Result<(), SettingsError> {
        for (setting, value) in [
            (Setting::PromoteRateLimitMbps, 0),
            (Setting::ScanDelayMs, self.step_ms),
        ] {
            if let SetOutcome::Foreign { found } = self.settings.set(setting, value)? {
                tracing::warn!(
                    "Setting {setting:?} is {found} by somebody else's doing and stays so"
                );
            }
        }
        Ok(())
    }

    /// Arms pages of that scope, each once a period, in processes of which the largest has so many
    /// bytes.
    ///
    /// # Errors
    ///
    /// Where the settings cannot be changed.
    pub fn apply(
        &mut self,
        scope: ScanScope,
        period: Nanos,
        largest: u64,
    ) -> Result<(), SettingsError> {
        let mode = match scope {
            ScanScope::Slow => ScanMode::Tiering,
            ScanScope::All => ScanMode::Both,
        };
        self.take()?;
        let size_mb = self.sizing.size(largest, period) >> 20;
        self.set(mode, period, u32::try_from(size_mb).unwrap_or(u32::MAX))
    }

    /// Arms nothing any more.
    ///
    /// # Errors
    ///
    /// Where the settings cannot be changed.
    pub fn stop(&mut self) -> Result<(), SettingsError> {
        self.set(ScanMode::Off, Nanos::from_secs(1), 1)
    }

    fn set(&mut self, mode: ScanMode, period: Nanos, size_mb: u32) -> Result<(), SettingsError> {
        let rate = ScanRate {
            mode,
            period_min: period,
            period_max: period,
            size_mb,
        };
        for (setting, found) in self.settings.set_scan_rate(&rate)? {
            tracing::warn!("Setting {setting:?} is {found} by somebody else's doing and stays so");
        }
        Ok(())
    }
}
