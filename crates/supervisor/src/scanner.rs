// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's NUMA-balancing scanner in our service: it arms, it does not promote.
//!
//! Mode 2 arms pages outside the top tier, mode 3 all pages. With a promotion rate limit of 0 the
//! kernel counts candidates and moves none (unless a fast node has more than 1 GiB or 1/16 of
//! itself free: it promotes at once then, and we see the page as moved). All settings go back when
//! this is dropped.
//!
//! A pass is a number of goes, each over a part of a process's memory. A thread, and a program that was
//! spawned and not forked, keeps the time between two goes that it was created with, which is
//! `scan_delay_ms` (`init_numa_balancing` in Linux 6.12), until a hint fault on the top tier makes the
//! kernel reconsider (`task_numa_fault` returns early for others); and mode 2 arms nothing there. How
//! much a go arms is looked at each time. So a pass is asked for twice: as the period that the kernel
//! divides by the number of goes, and as goes so small that a pass of them takes as long. (The kernel
//! arms 2 MiB in a go at least, which is why goes are not closer than they need be: [`between_goes`].)
//! Where the policy asks for passes as short as it ever does, it is in a hurry: a go is as large as it
//! may be, and the kernel's own limit (3 % of a thread's time) holds.

use std::path::Path;

use terrace_core::Nanos;
use terrace_policy::ScanScope;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::SetOutcome;
use terrace_sys::settings::Setting;
use terrace_sys::settings::SettingsError;

/// Goes are not closer, the kernel's own lower bound for goes of 256 MiB, and not farther apart, the
/// kernel's own `scan_delay_ms`.
const GO: (u64, u64) = (100, 1000);

/// The scanner, ours while this lives.
#[derive(Debug)]
pub struct Scanner {
    settings: KernelSettings,
    size_mb: u64,
    /// Between two goes of a thread that keeps what it was created with.
    go: Nanos,
    /// The shortest period asked for so far.
    shortest: Nanos,
}

impl Scanner {
    /// Takes the settings and stops the kernel's own promotion. Nothing is armed yet. A scan will look at
    /// `bytes` in one go at most, in whole MiB, at least one. `running`: the threads are there already. The machine
    /// has `memory` bytes.
    ///
    /// # Errors
    ///
    /// Where another supervisor has them, or they cannot be changed.
    pub fn open(bytes: u64, running: bool, memory: u64) -> Result<Self, SettingsError> {
        let mut settings = KernelSettings::acquire(Path::new("/"))?;
        for restored in settings.restored_at_start() {
            tracing::info!("Put back {restored:?}, which a crashed supervisor had left");
        }
        let size_mb = (bytes >> 20).max(1);
        let go_ms = between_goes(size_mb, memory >> 20);
        let found = settings.get(Setting::ScanDelayMs);
        for (setting, value) in [
            (Setting::PromoteRateLimitMbps, 0),
            (Setting::ScanDelayMs, go_ms),
        ] {
            if let SetOutcome::Foreign { found } = settings.set(setting, value)? {
                tracing::warn!(
                    "Setting {setting:?} is {found} by somebody else's doing and stays so"
                );
            }
        }
        Ok(Self {
            settings,
            size_mb,
            go: Nanos::from_millis(found.filter(|_| running).unwrap_or(go_ms)),
            shortest: Nanos(u64::MAX),
        })
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
        self.shortest = self.shortest.min(period);
        let in_a_hurry = period == self.shortest;
        let bytes = if in_a_hurry { u64::MAX } else { largest };
        let size_mb = part(self.size_mb, bytes, self.go, period);
        self.set(mode, period, size_mb)
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

/// Milliseconds between two goes of threads that are created from now on: with goes of so many MiB all of
/// the machine's memory would take five seconds. Each go costs a flush of the processor's translations, and a pass of
/// a minute over a small process cannot be fewer than one for each 2 MiB.
fn between_goes(size_mb: u64, memory_mb: u64) -> u64 {
    (5000 * size_mb / memory_mb.max(1)).clamp(GO.0, GO.1)
}

/// MiB that a go arms of a process of so many bytes: at least one, and `most` of them at most.
fn part(most: u64, bytes: u64, go: Nanos, period: Nanos) -> u32 {
    let part = u128::from(bytes >> 20) * u128::from(go.0) / u128::from(period.0.max(1));
    let part = part.clamp(1, u128::from(most));
    u32::try_from(part).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_has_as_many_goes_as_fit_into_it() {
        let (second, minute) = (Nanos::from_secs(1), Nanos::from_secs(60));
        let go = Nanos::from_millis(100);
        assert_eq!(part(256, 200 << 20, go, second), 20);
        assert_eq!(part(256, 200 << 20, go, Nanos::from_secs(4)), 5);
        assert_eq!(part(256, 16 << 30, go, minute), 27);
        // Neither less than the kernel can count, nor more than was asked for.
        assert_eq!(part(256, 20 << 20, go, minute), 1);
        assert_eq!(part(256, 1 << 40, go, second), 256);
        assert_eq!(part(256, 0, go, Nanos::ZERO), 1);
    }

    #[test]
    fn small_machines_are_scanned_less_often() {
        assert_eq!(between_goes(256, 1242), GO.1);
        assert_eq!(between_goes(256, 4 << 10), 312);
        assert_eq!(between_goes(256, 64 << 10), GO.0);
        assert_eq!(between_goes(256, 0), GO.1);
    }
}
