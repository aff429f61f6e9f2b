// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of one program: fill, hold, visit for a time, check.
//!
//! The visits themselves are in `work`, the placement in `fill`. Updates are counted in the words and
//! summed up at the end; only if the sum is wrong are the visits replayed to find the words.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_workload::PAGE_BYTES;
use terrace_workload::Program;
use terrace_workload::content;
use terrace_workload::report::Check;
use terrace_workload::report::Line;
use terrace_workload::report::Ready;
use terrace_workload::report::Second;
use terrace_workload::report::Total;
use terrace_workload::report::WrongWord;
use thiserror::Error;

use crate::arena::Arena;
use crate::fill;
use crate::oracle::Rooms;
use crate::placement;
use crate::placement::PlacementError;
use crate::sockets;
use crate::sockets::Sockets;
use crate::think::Pace;
use crate::work;
use crate::work::Log;
use crate::work::Strange;
use crate::work::Worker;

/// Wrong words that a check lists.
pub(crate) const WRONG_MAX: usize = 8;

/// Why a run could not be made.
#[derive(Debug, Error)]
pub enum RunError {
    /// No memory.
    #[error("Cannot map {bytes} bytes")]
    Map {
        /// How much was asked for.
        bytes: u64,
        /// Why not.
        #[source]
        source: rustix::io::Errno,
    },
    /// Pages could not be placed or found.
    #[error("Cannot place the workload's pages")]
    Placement(#[from] PlacementError),
    /// The slow node could not take what belongs there.
    #[error("{found} of {wanted} pages are on node {node}; it has too little memory free")]
    Elsewhere {
        /// Pages found there.
        found: u64,
        /// Pages that should be.
        wanted: u64,
        /// The node.
        node: NodeId,
    },
}

/// Where the pages start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// As the workload says.
    Workload,
    /// All on the slow node.
    Slow,
    /// In the program's order by the kernel's own choice: the local node until it is full.
    FirstTouch,
    /// Each page on the node that is best for who visits it, the most visited first.
    Oracle,
}

/// How to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Of the visits and of the contents.
    pub seed: u64,
    /// Where the pages start.
    pub place: Place,
    /// The node that is fast.
    pub fast: NodeId,
    /// The node that is slow.
    pub slow: NodeId,
    /// The nodes as each socket sees them, the fastest first; at least one order of at least one node.
    pub orders: Vec<Vec<NodeId>>,
    /// How many pages [`Place::Oracle`] puts on each node: as many as fit where absent.
    pub oracle_pages: Option<Rooms>,
    /// Each thread stays on a socket, in turn, of whatever program; else only those of programs that need it.
    pub bind: bool,
    /// The number of the program's first thread among those of all programs.
    pub first_thread: u32,
    /// How long to run.
    pub time: Duration,
    /// Ask for transparent huge pages instead of refusing them.
    pub huge: bool,
}

impl Options {
    /// The number of the program's first thread, where they are bound.
    pub(crate) fn bound_from(&self, program: &Program) -> Option<u32> {
        sockets::bound_from(program, self.bind, self.first_thread)
    }
}

/// A program with its memory filled, ready to run.
#[derive(Debug)]
pub struct Run<'a> {
    program: &'a Program,
    options: &'a Options,
    arena: Arena,
    sockets: Sockets,
}

impl<'a> Run<'a> {
    /// Maps and fills the memory. Where threads are bound, the calling one stays bound: it is the first.
    ///
    /// # Errors
    ///
    /// Where there is too little memory, or not where it should be.
    pub fn prepare(program: &'a Program, options: &'a Options) -> Result<Self, RunError> {
        let arena = Arena::map(program.pages, options.huge).map_err(|source| RunError::Map {
            bytes: program.bytes(),
            source,
        })?;
        let sockets = match options.bound_from(program) {
            Some(_) => Sockets::read()?,
            None => Sockets::default(),
        };
        let run = Self {
            program,
            options,
            arena,
            sockets,
        };
        let (given, sockets) = (options.orders.len(), run.sockets.count());
        if options.place == Place::Oracle && sockets > given {
            return Err(PlacementError::Orders { given, sockets }.into());
        }
        run.sockets.stay(run.home(0))?;
        fill::fill(&run.arena, program, options, &run.sockets)?;
        run.sockets.stay(run.home(0))?;
        Ok(run)
    }

    /// The memory as it is now, and the shares of the first phase.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell where pages are.
    pub fn ready(&self) -> Result<Ready, RunError> {
        let here = self.by_node(Duration::ZERO)?;
        Ok(Ready {
            workload: self.program.name.clone(),
            bytes: self.program.bytes(),
            active_bytes: here.visited * PAGE_BYTES,
            pages_by_node: here.pages,
            share_by_node: here.shares,
        })
    }

    /// Visits until the time is over or it is told to `stop`, with a line a second, and checks the memory.
    ///
    /// `line` gets every line but the first. A word found wrong ends the run early.
    ///
    /// # Errors
    ///
    /// Where the kernel does not tell where pages are.
    pub fn visit_and_check(
        &self,
        stop: &AtomicBool,
        mut line: impl FnMut(&Line),
    ) -> Result<Check, RunError> {
        let (logs, strange, elapsed) = self.visit(stop, &mut line)?;
        let ops = logs.iter().map(|log| log.ops).sum();
        let here = self.by_node(elapsed)?;
        line(&Line::Total(Total {
            t: elapsed.as_secs_f64(),
            ops,
            ops_per_s: rate(ops, elapsed),
            pages_by_node: here.pages,
            share_by_node: here.shares,
        }));
        let mut check = self.check(&logs);
        let strange = strange.map(|word| self.wrong(word.index, word.found, 0));
        check.wrong.extend(strange);
        line(&Line::Check(check.clone()));
        Ok(check)
    }

    /// The socket that a thread stays on.
    fn home(&self, thread: u32) -> Option<usize> {
        let first = self.options.bound_from(self.program)?;
        Some((first + thread) as usize)
    }

    /// All threads until the time is over; this one is the first of them.
    fn visit(
        &self,
        stop: &AtomicBool,
        line: &mut impl FnMut(&Line),
    ) -> Result<(Vec<Log>, Option<Strange>, Duration), PlacementError> {
        let pace = Pace::measure();
        let words = self.arena.words();
        let worker = |n| Worker::new(self.program, words, self.options.seed, n, pace);
        let others: Vec<Worker<'_>> = (1..self.program.threads).map(worker).collect();
        let progress: Vec<AtomicU64> = others.iter().map(|_| AtomicU64::new(0)).collect();
        let mut own = worker(0);
        let begin = Instant::now();
        thread::scope(|scope| {
            let handles: Vec<_> = (1..)
                .zip(others.into_iter().zip(&progress))
                .map(|(n, (other, progress))| {
                    let (sockets, home) = (&self.sockets, self.home(n));
                    scope.spawn(move || {
                        let bound = sockets.stay(home);
                        let bound = bound.inspect_err(|_| stop.store(true, Relaxed));
                        bound.map(|()| other.until(stop, begin, progress))
                    })
                })
                .collect();
            let (elapsed, mut strange) = self.lead(&mut own, begin, stop, &progress, line);
            stop.store(true, Relaxed);
            let mut logs = vec![own.log()];
            for handle in handles {
                let joined = handle.join().expect("a worker has nothing to panic on");
                let (log, word) = joined?;
                logs.push(log);
                strange = strange.or(word);
            }
            Ok((logs, strange, elapsed))
        })
    }

    /// The first thread's visits, with a line a second, until the time is over or a word is strange.
    fn lead(
        &self,
        own: &mut Worker<'_>,
        begin: Instant,
        stop: &AtomicBool,
        others: &[AtomicU64],
        line: &mut impl FnMut(&Line),
    ) -> (Duration, Option<Strange>) {
        let mut next = Duration::from_secs(1);
        loop {
            if let Err(word) = own.batch(begin) {
                return (begin.elapsed(), Some(word));
            }
            let now = begin.elapsed();
            if now >= next {
                let others: u64 = others.iter().map(|ops| ops.load(Relaxed)).sum();
                line(&Line::Second(Second {
                    t: now.as_secs_f64(),
                    ops: own.ops() + others,
                }));
                next = Duration::from_secs(now.as_secs() + 1);
            }
            if now >= self.options.time || stop.load(Relaxed) {
                return (now, None);
            }
        }
    }

    /// Reads all of memory.
    fn check(&self, logs: &[Log]) -> Check {
        let mut check = Check {
            words: 0,
            updates_made: logs.iter().map(|log| log.updates).sum(),
            updates_found: 0,
            wrong: Vec::new(),
        };
        for (index, word) in (0u64..).zip(self.arena.words()) {
            check.words += 1;
            let found = word.load(Relaxed);
            match content::updates(self.options.seed, index, found) {
                Some(updates) => check.updates_found += u64::from(updates),
                None if check.wrong.len() < WRONG_MAX => {
                    check.wrong.push(self.wrong(index, found, 0));
                }
                None => {}
            }
        }
        if check.wrong.is_empty() && check.updates_found != check.updates_made {
            check.wrong = self.replay(logs);
        }
        check
    }

    /// Goes through the same visits again to find words with too few or too many updates.
    fn replay(&self, logs: &[Log]) -> Vec<WrongWord> {
        let words = self.arena.words();
        let expected = work::replay(self.program, self.options.seed, words.len(), logs);
        (0u64..)
            .zip(words)
            .zip(expected)
            .filter_map(|((index, word), expected)| {
                let found = word.load(Relaxed);
                let good = content::updates(self.options.seed, index, found) == Some(expected);
                (!good).then(|| self.wrong(index, found, expected))
            })
            .take(WRONG_MAX)
            .collect()
    }

    fn wrong(&self, index: u64, found: u64, updates: u32) -> WrongWord {
        WrongWord {
            address: self.arena.address(index),
            expected: content::word(self.options.seed, index, updates),
            found,
        }
    }

    /// Where pages are, and the shares of the phase that runs then.
    fn by_node(&self, elapsed: Duration) -> Result<ByNode, RunError> {
        let (phase, _) = self.program.phase_at(Nanos::from(elapsed));
        let all = self.program.phases[phase].shares(self.program, self.options.seed);
        let mut here = ByNode::default();
        for (page, node) in (0..).zip(placement::nodes_of(&self.arena)?) {
            let share = all.of(page);
            here.visited += u64::from(share > 0.0);
            let Some(NodeId(node)) = node else { continue };
            let node = usize::from(node);
            if here.pages.len() <= node {
                here.pages.resize(node + 1, 0);
                here.shares.resize(node + 1, 0.0);
            }
            here.pages[node] += 1;
            here.shares[node] += f64::from(share);
        }
        Ok(here)
    }
}

/// Pages on each node.
#[derive(Debug, Default)]
struct ByNode {
    pages: Vec<u64>,
    /// Share of the visits that go there.
    shares: Vec<f64>,
    /// Pages on any node that are visited at all.
    visited: u64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a rate to print, exact to 2^53 operations"
)]
pub(crate) fn rate(ops: u64, elapsed: Duration) -> f64 {
    ops as f64 / elapsed.as_secs_f64().max(1e-9)
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
