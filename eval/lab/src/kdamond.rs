// SPDX-License-Identifier: MIT OR Apache-2.0
//! DAMON's threads by their files: `/sys/kernel/mm/damon/admin/kdamonds`, read and written in the guest.
//!
//! Contract: `Documentation/admin-guide/mm/damon/usage.rst` (sysfs, Linux 5.18).

use std::fs;
use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use terrace_core::Nanos;

/// Of all its threads.
pub(crate) const ADMIN: &str = "/sys/kernel/mm/damon/admin/kdamonds";

/// Samples in an aggregation: DAMON's default.
pub const SAMPLES: u64 = 20;

/// The longest update of what is monitored, us: it does not change while it is.
pub(crate) const UPDATE_US: u64 = 3_600_000_000;

/// Into a file that is there.
pub(crate) fn put(path: &Path, value: &str) -> io::Result<()> {
    File::options()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

/// As [`put`]; says which value and where.
pub(crate) fn write<T: ToString + ?Sized>(path: impl AsRef<Path>, value: &T) -> anyhow::Result<()> {
    let (path, value) = (path.as_ref(), value.to_string());
    put(path, &value).with_context(|| format!("Cannot write {value} to {}", path.display()))
}

/// What a file has.
pub(crate) fn number(path: &Path) -> anyhow::Result<u64> {
    let text =
        fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))?;
    let number = text.trim().parse();
    number.with_context(|| format!("{} has {text}, which is no number", path.display()))
}

/// Processor time so far of the thread whose directory that is.
pub(crate) fn busy(thread: &Path) -> anyhow::Result<Duration> {
    let pid = number(&thread.join("pid"))?;
    let path = format!("/proc/{pid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("Cannot read {path}"))?;
    let first = text.split(' ').next().and_then(|first| first.parse().ok());
    Ok(first.map_or(Duration::ZERO, |ns| Duration::from(Nanos(ns))))
}
