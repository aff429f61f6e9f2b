// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several programs at once: a process for each, one report for all.
//!
//! Each process is this same program with `--program N --hold`; their lines come through pipes and
//! are added up here. Processes have address spaces, page tables and NUMA scanning of their own, which
//! is what a workload of several programs is about; threads would not do. They fill their memory at
//! the same time, so the fast node is shared out as the kernel does it. They end with this process
//! (`PR_SET_PDEATHSIG`), and are killed where one of them fails.

use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::sync::mpsc::Receiver;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use terrace_workload::Workload;
use terrace_workload::report::Check;
use terrace_workload::report::Line;
use terrace_workload::report::Ready;
use terrace_workload::report::Second;
use terrace_workload::report::Total;
use thiserror::Error;

use crate::run::WRONG_MAX;
use crate::run::rate;

/// What an access takes on average, ns, where only the proportion between programs matters: between
/// fast and slow memory.
const ACCESS_NS: f64 = 150.0;
/// How long a wait for a line is, before whether to stop is looked at.
const MOMENT: Duration = Duration::from_millis(100);

/// Why programs could not run together.
#[derive(Debug, Error)]
pub enum GroupError {
    /// A process could not be started.
    #[error("Cannot start program {index} of the workload")]
    Start {
        /// Which one.
        index: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A process did not take the word to go.
    #[error("Program {index} of the workload does not listen")]
    Go {
        /// Which one.
        index: usize,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A process ended without a word on its memory; what it says is above.
    #[error("Program {index} of the workload ended before its memory was checked")]
    Ended {
        /// Which one.
        index: usize,
    },
}

/// What comes from a process: a line, or its end.
type Word = (usize, Option<Line>);

/// Processes with their memory filled, waiting for the word to go.
#[derive(Debug)]
pub struct Group {
    children: Vec<(Child, ChildStdin)>,
    words: Receiver<Word>,
    /// Which have checked their memory: their end is no failure.
    checked: Vec<bool>,
    ready: Ready,
}

impl Group {
    /// Starts a process for each program by `command`, and waits until all have their memory.
    ///
    /// # Errors
    ///
    /// Where one cannot be started or ends.
    pub fn prepare(
        workload: &Workload,
        command: impl Fn(usize) -> Command,
    ) -> Result<Self, GroupError> {
        let (sender, words) = mpsc::channel();
        let mut group = Self {
            children: Vec::new(),
            words,
            checked: vec![false; workload.programs.len()],
            ready: Ready {
                workload: workload.name.clone(),
                bytes: 0,
                active_bytes: 0,
                pages_by_node: Vec::new(),
                share_by_node: Vec::new(),
            },
        };
        for index in 0..workload.programs.len() {
            group.start(command(index), index, sender.clone())?;
        }
        let (mut waiting, weights) = (group.children.len(), weights(workload));
        while waiting > 0 {
            match group.hear()? {
                Some((index, Line::Ready(ready))) => {
                    group.add_ready(index, &ready, &weights);
                    waiting -= 1;
                }
                Some((index, _)) => return Err(GroupError::Ended { index }),
                None => {}
            }
        }
        Ok(group)
    }

    /// All memory together; the shares are weighted by how often each program accesses memory.
    #[must_use]
    pub fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Gives the word to go and adds up what the processes say. When told to `stop`, tells them.
    ///
    /// # Errors
    ///
    /// Where one ends without having checked its memory.
    pub fn visit_and_check(
        &mut self,
        stop: &AtomicBool,
        mut line: impl FnMut(&Line),
    ) -> Result<Check, GroupError> {
        for (index, (_, stdin)) in self.children.iter_mut().enumerate() {
            stdin
                .write_all(b"go\n")
                .map_err(|source| GroupError::Go { index, source })?;
        }
        let mut sum = Sum::new(self.children.len());
        let mut told = false;
        while sum.checks < self.children.len() {
            if stop.load(Relaxed) && !std::mem::replace(&mut told, true) {
                self.end();
            }
            let merged = self.hear()?.and_then(|(index, word)| sum.add(index, word));
            if let Some(merged) = merged {
                line(&merged);
            }
        }
        line(&Line::Check(sum.check.clone()));
        Ok(sum.check)
    }

    fn start(
        &mut self,
        mut command: Command,
        index: usize,
        sender: Sender<Word>,
    ) -> Result<(), GroupError> {
        let start = |source| GroupError::Start { index, source };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(start)?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (stdin, stdout) = pipes.expect("both were asked for");
        self.children.push((child, stdin));
        thread::spawn(move || {
            for text in BufReader::new(stdout).lines().map_while(Result::ok) {
                match serde_json::from_str(&text) {
                    Ok(line) => drop(sender.send((index, Some(line)))),
                    Err(_) => eprintln!("{text}"),
                }
            }
            // Whoever still listens learns of the end; nobody may, after the check.
            drop(sender.send((index, None)));
        });
        Ok(())
    }

    /// The next line, or none where none came for a moment.
    fn hear(&mut self) -> Result<Option<(usize, Line)>, GroupError> {
        let ended = match self.words.recv_timeout(MOMENT) {
            Ok((index, Some(line))) => {
                self.checked[index] |= matches!(line, Line::Check(_));
                return Ok(Some((index, line)));
            }
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Ok((index, None)) => index,
            Err(RecvTimeoutError::Disconnected) => 0,
        };
        if !self.checked[ended] {
            return Err(GroupError::Ended { index: ended });
        }
        Ok(None)
    }

    /// Tells all to end the visits. One that has ended by itself needs no telling.
    fn end(&self) {
        for (child, _) in &self.children {
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    fn add_ready(&mut self, index: usize, ready: &Ready, weights: &[f64]) {
        self.ready.bytes += ready.bytes;
        self.ready.active_bytes += ready.active_bytes;
        add_pages(&mut self.ready.pages_by_node, &ready.pages_by_node);
        add_shares(
            &mut self.ready.share_by_node,
            &ready.share_by_node,
            weights[index],
        );
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for (child, _) in &mut self.children {
            // One that has ended is only waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What the processes have said so far.
#[derive(Debug)]
struct Sum {
    /// Last progress of each.
    last: Vec<Second>,
    /// Seconds reported for all.
    reported: f64,
    totals: Vec<Total>,
    checks: usize,
    check: Check,
}

impl Sum {
    fn new(count: usize) -> Self {
        Self {
            last: vec![Second { t: 0.0, ops: 0 }; count],
            reported: 0.0,
            totals: Vec::new(),
            checks: 0,
            check: Check {
                words: 0,
                updates_made: 0,
                updates_found: 0,
                wrong: Vec::new(),
            },
        }
    }

    /// A line for all, when all have said it.
    fn add(&mut self, index: usize, line: Line) -> Option<Line> {
        match line {
            Line::Ready(_) => None,
            Line::Second(second) => {
                self.last[index] = second;
                let slowest = self.last.iter().map(|s| s.t).fold(f64::INFINITY, f64::min);
                if slowest.floor() <= self.reported {
                    return None;
                }
                self.reported = slowest.floor();
                Some(Line::Second(Second {
                    t: self.last.iter().map(|s| s.t).fold(0.0, f64::max),
                    ops: self.last.iter().map(|s| s.ops).sum(),
                }))
            }
            Line::Total(total) => {
                self.totals.push(total);
                (self.totals.len() == self.last.len()).then(|| Line::Total(self.total()))
            }
            Line::Check(check) => {
                self.checks += 1;
                self.check.words += check.words;
                self.check.updates_made += check.updates_made;
                self.check.updates_found += check.updates_found;
                self.check.wrong.extend(check.wrong);
                self.check.wrong.truncate(WRONG_MAX);
                None
            }
        }
    }

    fn total(&self) -> Total {
        let t = self.totals.iter().map(|total| total.t).fold(0.0, f64::max);
        let ops = self.totals.iter().map(|total| total.ops).sum();
        let mut all = Total {
            t,
            ops,
            ops_per_s: rate(ops, Duration::from_secs_f64(t)),
            pages_by_node: Vec::new(),
            share_by_node: Vec::new(),
        };
        let visits: f64 = self.totals.iter().map(|total| total.ops_per_s).sum();
        for total in &self.totals {
            let weight = total.ops_per_s / visits.max(1e-9);
            add_pages(&mut all.pages_by_node, &total.pages_by_node);
            add_shares(&mut all.share_by_node, &total.share_by_node, weight);
        }
        all
    }
}

/// How often each program visits memory, as shares of all, by its threads and its think time.
#[must_use]
pub fn weights(workload: &Workload) -> Vec<f64> {
    let rates: Vec<f64> = workload
        .programs
        .iter()
        .map(|program| {
            let phase = &program.phases[0];
            f64::from(program.threads) / (phase.think_ns + ACCESS_NS * phase.mean_lines())
        })
        .collect();
    let sum: f64 = rates.iter().sum();
    rates.into_iter().map(|rate| rate / sum).collect()
}

/// The number of a program's first thread among all.
#[must_use]
pub fn first_thread(workload: &Workload, index: usize) -> u32 {
    let before = workload.programs.iter().take(index);
    before.map(|program| program.threads).sum()
}

/// The seed of a program: the first has that of the workload.
#[must_use]
pub fn seed_of(seed: u64, index: usize) -> u64 {
    seed.wrapping_add(index as u64)
}

fn add_pages(sum: &mut Vec<u64>, more: &[u64]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more;
    }
}

fn add_shares(sum: &mut Vec<f64>, more: &[f64], weight: f64) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0.0);
    }
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(t: f64, ops: u64) -> Line {
        Line::Second(Second { t, ops })
    }

    #[test]
    fn a_second_is_reported_when_all_have_passed_it() {
        let mut sum = Sum::new(2);
        assert_eq!(sum.add(0, second(1.01, 10)), None);
        assert_eq!(sum.add(1, second(1.02, 5)), Some(second(1.02, 15)));
        // One misses its second line; the other's third comes first.
        assert_eq!(sum.add(0, second(2.01, 20)), None);
        assert_eq!(sum.add(0, second(3.01, 30)), None);
        assert_eq!(sum.add(1, second(3.05, 15)), Some(second(3.05, 45)));
    }

    #[test]
    fn checks_add_up_and_damage_in_one_is_damage_in_all() {
        let mut sum = Sum::new(2);
        let good = Check {
            words: 10,
            updates_made: 4,
            updates_found: 4,
            wrong: Vec::new(),
        };
        sum.add(0, Line::Check(good.clone()));
        assert!(sum.check.passed());
        sum.add(
            1,
            Line::Check(Check {
                updates_found: 3,
                ..good
            }),
        );
        assert_eq!((sum.checks, sum.check.words), (2, 20));
        assert!(!sum.check.passed());
    }
}
