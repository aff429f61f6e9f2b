// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages of this process's own choice, and both trackers on a process: what the examples that know the truth begin with.

use std::error::Error;
use std::path::Path;

use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::settings::KernelSettings;
use terrace_sys::settings::ScanMode;
use terrace_sys::settings::ScanRate;
use terrace_sys::settings::Setting;
use terrace_sys::zones;
use terrace_track::AccessedBits;
use terrace_track::AccessedBitsConfig;
use terrace_track::HintFaultTracker;
use terrace_track::HintFaultTrackerConfig;
use terrace_track::Tracker;

pub(crate) const CHUNK: usize = 2 << 20;

/// So many chunks of base pages, none of which is there yet; never given back.
pub(crate) fn chunks(number: usize) -> Result<*mut u8, Box<dyn Error>> {
    let len = (number + 1) * CHUNK;
    let flags = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address of the kernel's choice, and advice on it.
    let at = unsafe {
        let at = rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, flags, MapFlags::PRIVATE)?;
        rustix::mm::madvise(at, len, Advice::LinuxNoHugepage)?;
        at.byte_add(at.addr().next_multiple_of(CHUNK) - at.addr())
    };
    Ok(at.cast())
}

/// Has the kernel's scanner take all nodes in once in that time, and move nothing.
pub(crate) fn scan(period: Nanos) -> Result<KernelSettings, Box<dyn Error>> {
    let mut settings = KernelSettings::acquire(Path::new("/"))?;
    let _ = settings.set(Setting::PromoteRateLimitMbps, 0)?;
    settings.set_scan_rate(&ScanRate {
        mode: ScanMode::Both,
        period_min: period,
        period_max: period,
        size_mb: 256,
    })?;
    Ok(settings)
}

/// Both trackers on a process; accessed bits are read in passes of that length.
pub(crate) fn track(
    pid: Pid,
    pass: Nanos,
) -> Result<(AccessedBits, HintFaultTracker), Box<dyn Error>> {
    let mut bits = AccessedBits::open(AccessedBitsConfig {
        zones: zones::read(Path::new("/")),
        ..AccessedBitsConfig::default()
    })?;
    let mut faults = HintFaultTracker::open(HintFaultTrackerConfig::default())?;
    bits.add(pid, false)?;
    faults.add(pid, false)?;
    bits.ask(Nanos::from_millis(1), pass, 1);
    Ok((bits, faults))
}
