// SPDX-License-Identifier: MIT OR Apache-2.0
//! The one clock: `CLOCK_MONOTONIC`, which `bpf_ktime_get_ns` reads too, so that times from the
//! kernel and from here can be subtracted.

use rustix::time::ClockId;
use rustix::time::clock_gettime;
use terrace_core::Nanos;
use terrace_core::Pid;

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

/// Processor time of another process, all its threads that are and were. Nothing where it is gone.
#[must_use]
pub fn cpu_time_of(pid: Pid) -> Option<Nanos> {
    // include/linux/posix-timers.h, make_process_cpuclock: ~pid << 3, and CPUCLOCK_SCHED for what the scheduler counts.
    const CPUCLOCK_SCHED: libc::clockid_t = 2;
    let pid = libc::pid_t::try_from(pid.0).ok()?;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is of a local that outlives the call.
    let done = unsafe { libc::clock_gettime(!pid << 3 | CPUCLOCK_SCHED, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let nanos = u64::try_from(time.tv_nsec).ok()?;
    (done == 0).then_some(Nanos(seconds * 1_000_000_000 + nanos))
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

    #[test]
    fn another_process_is_timed_while_it_runs() {
        let spawn = |command: &str| {
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", command]).spawn().expect("a shell")
        };
        let time = |child: &std::process::Child| cpu_time_of(Pid(child.id()));
        let (mut busy, mut idle) = (spawn("while :; do :; done"), spawn("exec sleep 60"));
        let until = now() + Nanos::from_secs(20);
        while time(&busy).expect("it runs") < Nanos::from_millis(100) && now() < until {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let (ran, slept) = (time(&busy), time(&idle));
        for child in [&mut busy, &mut idle] {
            child.kill().expect("a child of ours");
            child.wait().expect("a child of ours");
        }
        assert!(ran >= Some(Nanos::from_millis(100)), "{ran:?}");
        assert!(slept < Some(Nanos::from_millis(100)), "{slept:?}");
        assert_eq!(time(&busy), None, "it is gone");
    }
}
