// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time that Terrace itself costs: the supervisor, and the agent's threads inside the
//! programs (their names start with `terrace`).

use std::fs;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::process::Stat;

const AGENT_THREADS: &str = "terrace";

/// Of this process, all threads.
#[must_use]
pub fn own() -> Nanos {
    Stat::read(Pid(std::process::id())).map_or(Nanos::ZERO, |stat| stat.cpu_time())
}

/// Of the agent's threads in a program.
#[must_use]
pub fn agent(pid: Pid) -> Nanos {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Nanos::ZERO;
    };
    let spent: u64 = tasks
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|line| Stat::parse(&line))
        .filter(|stat| stat.comm.starts_with(AGENT_THREADS))
        .map(|stat| stat.cpu_time().0)
        .sum();
    Nanos(spent)
}

/// Name of a process, empty where it is gone.
#[must_use]
pub fn name(pid: Pid) -> String {
    Stat::read(pid).map(|stat| stat.comm).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_threads_with_our_name_count_as_the_agents() {
        // Works until the clock shows it, at most for a minute on a machine that has no time.
        let burn = |enough: fn(Nanos) -> bool| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            while !enough(own()) && std::time::Instant::now() < until {
                std::hint::black_box(0);
            }
            agent(Pid(std::process::id()))
        };
        let spawn = |name: &str, enough| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread
                .spawn(move || burn(enough))
                .expect("a thread")
                .join()
                .expect("no panic")
        };
        assert_eq!(
            spawn("other", |own| own >= Nanos::from_millis(100)),
            Nanos::ZERO
        );
        assert!(
            spawn("terrace-copy", |own| own >= Nanos::from_millis(300)) >= Nanos::from_millis(50)
        );
    }
}
