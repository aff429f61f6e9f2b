// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of a hint fault, from the kernel's own scanner.
//!
//! The scanner marks the region while this thread burns time; then one pass over the region takes
//! the faults, a second one shows what the pass costs without them. The kernel counts the faults.
//! The settings it needs are changed through [`KernelSettings`], which puts them back.

use std::fs;
use std::path::Path;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::Setting;

use super::PAGES;
use super::Why;
use super::on_node;

const WAIT: Duration = Duration::from_secs(30);

fn vmstat(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Nanoseconds of one hint fault on pages of `slow`, handling without migration.
pub(super) fn fault(slow: NodeId) -> Result<f64, Why> {
    let region = on_node(slow, PAGES)?;
    let settings = KernelSettings::acquire(Path::new("/"));
    let mut settings = settings.map_err(|error| Why::Refused(error.to_string()))?;
    let refused = |error: terrace_sys::settings::SettingsError| Why::Refused(error.to_string());
    // Somebody else's value stays; the faults then may come with a migration.
    let _ = settings
        .set(Setting::PromoteRateLimitMbps, 0)
        .map_err(refused)?;
    let marked = vmstat("numa_pte_updates ");
    let period = Nanos::from_millis(100);
    let mut rate = ScanRate {
        mode: ScanMode::Tiering,
        period_min: period,
        period_max: Nanos::from_secs(1),
        size_mb: 256,
    };
    settings.set_scan_rate(&rate).map_err(refused)?;
    let start = Instant::now();
    while vmstat("numa_pte_updates ") - marked < PAGES as u64 {
        if start.elapsed() > WAIT {
            let text = "the scanner marked nothing: are there two tiers?";
            return Err(Why::Refused(text.to_owned()));
        }
    }
    let before = vmstat("numa_hint_faults ");
    let first = Instant::now();
    region.touch_all();
    let first = first.elapsed();
    let faults = vmstat("numa_hint_faults ") - before;
    rate.mode = ScanMode::Off;
    settings.set_scan_rate(&rate).map_err(refused)?;
    let second = Instant::now();
    region.touch_all();
    let second = second.elapsed();
    if faults < PAGES as u64 / 4 {
        let text = format!("of {PAGES} pages only {faults} had a hint fault");
        return Err(Why::Refused(text));
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let faults = faults as f64;
    Ok(first.saturating_sub(second).as_secs_f64() * 1e9 / faults)
}
