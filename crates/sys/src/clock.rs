// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one clock: `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads too, so that times from the
//! kernel and from here can be subtracted.

use rustix::time::ClockId;
use rustix::time::clock_gettime;
use terrace_core::Nanos;

/// The time.
#[must_use]
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Processor time of this process, all threads.
#[must_use]
pub fn process_cpu_time() -> Nanos {
    read(ClockId::ProcessCPUTime)
}

/// Processor time of the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Nanos {
    let t = clock_gettime(clock);
    let seconds = u64::try_from(t.tv_sec).expect("these clocks start at 0");
    let nanos = u64::try_from(t.tv_nsec).expect("the kernel keeps nanoseconds in 0..1e9");
    Nanos(seconds * 1_000_000_000 + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_advances() {
        let before = now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(now().since(before) >= Nanos::from_millis(2));
    }

    #[test]
    fn sleeping_costs_no_processor_time() {
        let before = thread_cpu_time();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(thread_cpu_time().since(before) < Nanos::from_millis(100));
        assert!(process_cpu_time() >= thread_cpu_time());
    }
}
