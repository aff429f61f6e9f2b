// SPDX-License-Identifier: MIT OR Apache-2.0
//! One program as it is played: its visits, its clock and its counters.
//!
//! What the visits drawn ahead will look at is read before they are played and thrown away; each looks
//! again when its time comes.

use std::hint::black_box;

use terrace_policy::Engine;
use terrace_workload::Program;

use super::ahead::Ahead;
use super::ahead::Drawn;
use super::ahead::Lookup;
use super::path::Path;
use super::sample;
use super::trap;
use crate::Setup;
use crate::hardware::NODES;
use crate::world::World;
use crate::world::bits;

/// What a program did in a step.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) visits: u64,
    pub(super) hits: u64,
    pub(super) streamed: u64,
    /// Missed lines by node and write.
    pub(super) lines: [u64; NODES * 2 + 2],
    pub(super) backs: [u64; NODES + 1],
    /// In memory mode: lines that the slow memory served, by write.
    pub(super) slow: [u64; 2],
}

/// What a line costs and where it is counted.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) counts: Counts,
    /// Ns of a missed line by node and write: alone, and in a stream.
    pub(super) cost: [[f64; 2]; NODES * 2 + 2],
    /// The program's line 0 among all programs'.
    pub(super) first_line: u32,
}

/// A program.
#[derive(Debug)]
pub(super) struct Player {
    index: usize,
    ahead: Ahead,
    pub(super) think: f64,
    /// Of each phase.
    thinks: Vec<f64>,
    pub(super) threads: f64,
    /// Its own time, ns.
    time: f64,
    /// Lines to be missed until the next sample.
    unsampled: u64,
    pub(super) meter: Meter,
}

impl Player {
    /// Its lines are numbered from `first_line` on.
    pub(super) fn new(
        setup: &Setup,
        world: &World,
        index: usize,
        program: &Program,
        first_line: u32,
    ) -> Self {
        let think = |think_ns: f64| think_ns * setup.costs.think_scale + setup.costs.visit_ns;
        Self {
            index,
            ahead: Ahead::new(program, setup.seed),
            think: 0.0,
            thinks: program.phases.iter().map(|p| think(p.think_ns)).collect(),
            threads: f64::from(program.threads),
            time: 0.0,
            unsampled: world.sampling.as_ref().map_or(u64::MAX, |s| s.period),
            meter: Meter {
                counts: Counts::default(),
                cost: [[0.0; 2]; NODES * 2 + 2],
                first_line,
            },
        }
    }

    pub(super) fn set_phase(&mut self, lookup: &Lookup, phase: usize) {
        self.ahead.set_phase(lookup, phase);
        self.think = self.thinks[phase];
    }

    /// Draws visits ahead, and reads what they will look at.
    fn go_ahead(&mut self, lookup: &Lookup, path: &impl Path, world: &World) {
        let ahead = self.ahead.more(lookup);
        let seen = |drawn: &Drawn| world.state[drawn.unit as usize];
        black_box(ahead.iter().map(seen).fold(0, |all, one| all | one));
        path.read_ahead(ahead, self.meter.first_line);
    }

    /// Plays until the program's clock is at `until` or something stops it. Gives the new limit.
    #[expect(clippy::cast_precision_loss, reason = "times below 2^53 ns")]
    pub(super) fn run(
        &mut self,
        mut path: impl Path,
        lookup: &Lookup,
        world: &mut World,
        engine: &mut Engine,
        mut until: u64,
    ) -> u64 {
        let (threads, think) = (self.threads, self.think);
        let (mut time, mut unsampled) = (self.time, self.unsampled);
        let mut budget = (until as f64 - time) * threads;
        // What was charged by others since.
        let mut spent = std::mem::take(&mut world.debt[self.index]);
        let mut visits = 0;
        while spent < budget {
            let Some(Drawn { unit, visit }) = self.ahead.next() else {
                self.go_ahead(lookup, &path, world);
                continue;
            };
            let mut state = world.state[unit as usize];
            let traps = [bits::TRAP_READ, bits::TRAP_WRITE][usize::from(visit.write)];
            if state & traps != 0 {
                time += spent / threads;
                until = trap(world, engine, unit, visit.write, time, until);
                spent = std::mem::take(&mut world.debt[self.index]);
                budget = (until as f64 - time) * threads;
                state = world.state[unit as usize];
            }
            visits += 1;
            spent += think;
            let node = usize::from(state & bits::NODE);
            let (ns, missed) = path.visit(&mut self.meter, world, visit, node);
            spent += ns;
            if unsampled > missed {
                unsampled -= missed;
            } else {
                let at = time + spent / threads;
                unsampled = sample(world, engine, unit, visit, at);
                spent += std::mem::take(&mut world.debt[self.index]);
            }
        }
        self.meter.counts.visits += visits;
        self.unsampled = unsampled;
        self.time = time + spent / threads;
        until
    }
}
