// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a hint fault of the kernel's NUMA balancing costs. Changes kernel settings, so it is for
//! the lab's guest only, which is thrown away.
//!
//! The scanner marks the region while this thread burns time; then one pass over the region takes
//! the faults, a second one shows what the pass costs without them. The kernel counts the faults.

use std::fs;
use std::time::Duration;
use std::time::Instant;

use rustix::io::Errno;
use terrace_core::NodeId;

use super::PAGES;
use super::ProbeError;
use super::failed;
use super::on_node;

const WAIT: Duration = Duration::from_secs(30);

fn set(path: &str, value: &str) -> Result<(), Errno> {
    fs::write(path, value).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

fn vmstat(key: &str) -> u64 {
    let text = fs::read_to_string("/proc/vmstat").unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    value.unwrap_or(0)
}

/// Nanoseconds of one hint fault on pages of `slow`, handling without migration.
pub(super) fn fault(slow: NodeId) -> Result<f64, ProbeError> {
    measure(slow).map_err(failed("hint_fault"))
}

fn measure(slow: NodeId) -> Result<f64, Errno> {
    let region = on_node(slow)?;
    set(
        "/proc/sys/kernel/numa_balancing_promote_rate_limit_MBps",
        "0",
    )?;
    set(
        "/sys/kernel/debug/sched/numa_balancing/scan_period_min_ms",
        "100",
    )?;
    set("/sys/kernel/debug/sched/numa_balancing/scan_size_mb", "256")?;
    let marked = vmstat("numa_pte_updates ");
    set("/proc/sys/kernel/numa_balancing", "2")?;
    let start = Instant::now();
    while vmstat("numa_pte_updates ") - marked < PAGES as u64 {
        if start.elapsed() > WAIT {
            return Err(Errno::TIMEDOUT);
        }
    }
    let before = vmstat("numa_hint_faults ");
    let first = Instant::now();
    region.touch_all();
    let first = first.elapsed();
    let faults = vmstat("numa_hint_faults ") - before;
    set("/proc/sys/kernel/numa_balancing", "0")?;
    let second = Instant::now();
    region.touch_all();
    let second = second.elapsed();
    if faults < PAGES as u64 / 4 {
        return Err(Errno::NODATA);
    }
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    let faults = faults as f64;
    Ok(first.saturating_sub(second).as_secs_f64() * 1e9 / faults)
}
