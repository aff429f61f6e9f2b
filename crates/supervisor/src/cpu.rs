// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processor time that Terrace itself costs: the supervisor, and the agent's threads inside the
//! programs, known by their names.

use std::collections::BTreeMap;
use std::fs;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::process::Stat;

/// As `crates/agent/src/entry.rs` names them.
const AGENT_THREADS: [&str; 2] = ["terrace-fault", "terrace-copy"];
/// A program's threads are looked at that often.
const INTERVAL: Nanos = Nanos::from_secs(1);
/// So many at most. The agent's are among the first, as it starts before the program does.
const TASKS_MAX: usize = 128;

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
        .take(TASKS_MAX)
        .filter_map(|task| fs::read_to_string(task.path().join("stat")).ok())
        .filter_map(|line| Stat::parse(&line))
        .filter(|stat| AGENT_THREADS.contains(&stat.comm.as_str()))
        .map(|stat| stat.cpu_time().0)
        .sum();
    Nanos(spent)
}

/// What all agents have cost, those that have ended as well: up to [`INTERVAL`] before their end.
#[derive(Debug, Default)]
pub struct Agents {
    due: Nanos,
    last: BTreeMap<Pid, Nanos>,
    ended: Nanos,
}

impl Agents {
    /// Looks at the agents in these processes where it is time.
    pub fn look(&mut self, now: Nanos, pids: impl Iterator<Item = Pid>) {
        if now >= self.due {
            self.due = now + INTERVAL;
            let before = std::mem::take(&mut self.last);
            for pid in pids {
                if let Some(spent) = before.get(&pid) {
                    self.last.insert(pid, *spent);
                }
                self.note(pid, agent(pid));
            }
            let gone = before
                .iter()
                .filter(|(pid, _)| !self.last.contains_key(pid));
            self.ended = gone.fold(self.ended, |sum, (_, spent)| sum + *spent);
        }
    }

    fn note(&mut self, pid: Pid, spent: Nanos) {
        let last = self.last.entry(pid).or_default();
        if spent < *last {
            // The process or its program ended; this is another agent's time.
            self.ended = self.ended + *last;
        }
        *last = spent;
    }

    /// Their time together.
    #[must_use]
    pub fn total(&self) -> Nanos {
        self.last
            .values()
            .fold(self.ended, |sum, spent| sum + *spent)
    }
}

/// Name of a process, empty where it is gone.
#[must_use]
pub fn name(pid: Pid) -> String {
    Stat::read(pid).map(|stat| stat.comm).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use terrace_sys::clock::thread_cpu_time;

    use super::*;

    #[test]
    fn the_time_of_agents_that_have_ended_counts() {
        let mut agents = Agents::default();
        for (pid, millis) in [(1, 50), (2, 30), (1, 70), (2, 0), (2, 10)] {
            agents.note(Pid(pid), Nanos::from_millis(millis));
        }
        assert_eq!(agents.total(), Nanos::from_millis(110));
        // A process that is not there adds nothing and takes nothing away.
        agents.look(Nanos::from_secs(1), std::iter::once(Pid(u32::MAX >> 1)));
        assert_eq!(agents.total(), Nanos::from_millis(110));
    }

    #[test]
    fn only_threads_with_our_name_count_as_the_agents() {
        // Works until the clock shows it, at most for a minute on a machine that has no time.
        let burn = |enough: fn(Nanos) -> bool| {
            let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
            // Other tests' threads burn the process's time as well.
            while !enough(thread_cpu_time()) && std::time::Instant::now() < until {
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
