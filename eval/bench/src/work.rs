// SPDX-License-Identifier: MIT OR Apache-2.0
//! The visits of one thread: the hot loop.
//!
//! Nothing in it allocates or writes a line; the clock is read once a batch, which is also when a
//! phase may end. Every word read is compared with what it may hold, so that a page in the wrong place
//! stops the run at once. The log of a thread (how many visits, which phases from which visit on) is
//! what replaying needs.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::time::Instant;

use terrace_core::Nanos;
use terrace_workload::Program;
use terrace_workload::Visit;
use terrace_workload::Visits;
use terrace_workload::content;

use crate::think;
use crate::think::Pace;

/// Visits between two looks at the clock: 1 to 10 ms in the emulated machine.
const BATCH: u64 = 512;

/// What a thread has done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Log {
    /// Visits.
    pub(crate) ops: u64,
    /// Words updated.
    pub(crate) updates: u64,
    /// Phases and the first visit of each, in order.
    pub(crate) phases: Vec<(u64, usize)>,
}

/// A word that holds what no update can have made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Strange {
    /// Which word.
    pub(crate) index: u64,
    /// What it holds.
    pub(crate) found: u64,
}

/// One thread of a program.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    program: &'a Program,
    words: &'a [AtomicU64],
    seed: u64,
    visits: Visits,
    /// Rounds to spin for each visit, by phase.
    think: Vec<u64>,
    /// Other threads update the same words.
    shared: bool,
    phase: usize,
    phase_ends: Option<Nanos>,
    log: Log,
}

impl<'a> Worker<'a> {
    pub(crate) fn new(
        program: &'a Program,
        words: &'a [AtomicU64],
        seed: u64,
        thread: u32,
        pace: Pace,
    ) -> Self {
        let (phase, phase_ends) = program.phase_at(Nanos::ZERO);
        Self {
            program,
            words,
            seed,
            visits: Visits::for_thread(program, seed, thread),
            think: program
                .phases
                .iter()
                .map(|p| pace.rounds(p.think_ns))
                .collect(),
            shared: program.threads > 1,
            phase,
            phase_ends,
            log: Log {
                phases: vec![(0, phase)],
                ..Log::default()
            },
        }
    }

    /// Batches until told to stop, or until a word is strange, which tells the others to stop.
    pub(crate) fn until(
        mut self,
        stop: &AtomicBool,
        begin: Instant,
        progress: &AtomicU64,
    ) -> (Log, Option<Strange>) {
        while !stop.load(Relaxed) {
            if let Err(strange) = self.batch(begin) {
                stop.store(true, Relaxed);
                return (self.log, Some(strange));
            }
            progress.store(self.log.ops, Relaxed);
        }
        (self.log, None)
    }

    /// One batch, in the phase that runs at its beginning.
    pub(crate) fn batch(&mut self, begin: Instant) -> Result<(), Strange> {
        self.look_at_the_clock(begin.elapsed());
        let rounds = self.think[self.phase];
        for _ in 0..BATCH {
            let visit = self.visits.visit(self.phase);
            self.make(visit)?;
            self.log.ops += 1;
            if rounds > 0 {
                think::spin(rounds);
            }
        }
        Ok(())
    }

    pub(crate) fn log(self) -> Log {
        self.log
    }

    pub(crate) fn ops(&self) -> u64 {
        self.log.ops
    }

    fn look_at_the_clock(&mut self, elapsed: Duration) {
        let Some(end) = self.phase_ends else { return };
        let now = Nanos::from(elapsed);
        if now >= end {
            let (phase, ends) = self.program.phase_at(now);
            (self.phase, self.phase_ends) = (phase, ends);
            self.log.phases.push((self.log.ops, phase));
        }
    }

    #[inline]
    fn make(&mut self, visit: Visit) -> Result<(), Strange> {
        for index in visit.words() {
            let word = &self.words[usize_of(index)];
            let found = word.load(Relaxed);
            if content::updates(self.seed, index, found).is_none() {
                return Err(Strange { index, found });
            }
            if visit.write {
                if self.shared {
                    word.fetch_add(1, Relaxed);
                } else {
                    word.store(found + 1, Relaxed);
                }
                self.log.updates += 1;
            }
        }
        Ok(())
    }
}

/// How often each word was updated, by making the same visits again without memory.
pub(crate) fn replay(program: &Program, seed: u64, words: usize, logs: &[Log]) -> Vec<u32> {
    let mut updates = vec![0u32; words];
    for (thread, log) in (0..).zip(logs) {
        let mut visits = Visits::for_thread(program, seed, thread);
        let ends = log.phases.iter().skip(1).map(|&(first, _)| first);
        let ends = ends.chain([log.ops]);
        for (&(first, phase), end) in log.phases.iter().zip(ends) {
            for _ in first..end {
                let visit = visits.visit(phase);
                for index in visit.words().filter(|_| visit.write) {
                    updates[usize_of(index)] += 1;
                }
            }
        }
    }
    updates
}

#[inline]
pub(crate) fn usize_of(index: u64) -> usize {
    usize::try_from(index).expect("64-bit machines only; the arena was mapped")
}
