// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps the emulator's own address translation alike under all systems.
//!
//! The emulator has a table of translations for each processor and sizes it when the guest flushes it: it
//! doubles where it was well used since the last flush, and shrinks where it was not. A run in which
//! nobody flushes (`none`, `oracle`) keeps the small table it had at the start, in which pages displace
//! each other, and a visit takes 0.1 us longer than in one in which the kernel or Terrace moved pages: on
//! `machines/cxl-2tier.toml` 424,000 visits of `gups` a second under `oracle`, and 445,000 after
//! another process had run on the same processor now and then. Hardware has nothing like it.
//!
//! So one thread a processor wakes up once a second, under every system: it belongs to another process
//! than the workload, hence the processor changes address spaces and back. It takes some 20 us; filling
//! the table again costs the workload about a hundredth.
//!
//! A system that reads accessed bits and leaves translations as they are (DAMON) has it beat more often, and pays for it: its workload
//! fills the table again as often.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use crate::boot::processors;

/// Long enough for a workload to use its pages again, short enough to grow the table in ten seconds.
const PERIOD: Duration = Duration::from_secs(1);
/// What it is now, us.
static PERIOD_US: AtomicU64 = AtomicU64::new(PERIOD.as_secs() * 1_000_000);

/// From the next beat on it comes so often, and never less often than by default.
pub(super) fn beat_every(period: Duration) {
    let us = u64::try_from(period.min(PERIOD).as_micros()).unwrap_or(u64::MAX);
    PERIOD_US.store(us, Ordering::Relaxed);
}

/// Starts the threads; they end with the process.
pub(super) fn start() {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for cpu in 0..cpus {
        thread::spawn(move || {
            processors::stay_on(cpu);
            loop {
                thread::sleep(Duration::from_micros(PERIOD_US.load(Ordering::Relaxed)));
            }
        });
    }
}
