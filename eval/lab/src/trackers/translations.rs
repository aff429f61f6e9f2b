// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the emulator forget translations as often as a real processor would, and tells this process's time apart
//! from what that takes.
//!
//! A page whose translation the processor holds is not set accessed again. A real one holds some 2,000, which a
//! workload of 200,000 visits a second uses up in [`PERIOD`]. The emulator's table grows as large as it
//! needs, and whoever clears a bit without a flush, as DAMON does, would see nothing of its pages. So a thread of ours
//! takes each processor for a moment that often: it is of another process than the workload, and
//! the change of address space empties the table.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use terrace_core::Nanos;
use terrace_sys::clock;

use crate::boot::processors;

const PERIOD: Duration = Duration::from_millis(10);

/// Processor time of each thread so far.
static TAKEN: OnceLock<Vec<AtomicU64>> = OnceLock::new();

/// Starts the threads; they end with the process.
pub fn start() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let taken = TAKEN.get_or_init(|| (0..cpus).map(|_| AtomicU64::new(0)).collect());
    for (cpu, taken) in taken.iter().enumerate() {
        std::thread::spawn(move || {
            processors::stay_on(cpu);
            loop {
                std::thread::sleep(PERIOD);
                taken.store(clock::thread_cpu_time().0, Relaxed);
            }
        });
    }
}

/// Processor time of this process without theirs.
pub(super) fn own_time() -> Nanos {
    let taken = TAKEN.get().map_or(&[][..], |taken| taken);
    let taken = taken.iter().map(|taken| taken.load(Relaxed)).sum();
    Nanos(clock::process_cpu_time().0.saturating_sub(taken))
}
