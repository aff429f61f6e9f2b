// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact engine: every visit of every program is played.
//!
//! A program's threads are one stream of visits that uses up thread time: with `t` threads, a visit
//! that takes `c` ns moves its clock on by `c / t`. What a visit runs into (armed, blocked or protected
//! pages) is handled at its very time. Programs take turns of [`SLICE_NS`].
//!
//! Between two events nothing is looked up but the page's state and the cost of its node; no hashing,
//! no allocation. With a cache each line goes through it, dirty lines that leave it are counted where
//! their page is. [`player`] plays one program, [`ahead`] draws its visits, [`path`] has a
//! visit's way to memory.

mod ahead;
mod path;
mod player;

use ahead::Lookup;
use path::Cached;
use path::MemoryMode;
use path::Owners;
use path::Straight;
use player::Player;
use terrace_policy::Engine;
use terrace_workload::Visit;

use crate::Setup;
use crate::cache::Cache;
use crate::contention::Contention;
use crate::contention::Load;
use crate::memory_mode::Direct;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::World;
use crate::world::bits;

/// Programs take turns so long.
const SLICE_NS: u64 = 100_000;

/// The engine.
#[derive(Debug)]
pub(crate) struct Exact {
    players: Vec<Player>,
    /// By program: its first line among all programs'.
    first_lines: Vec<u32>,
    /// By program.
    lookups: Vec<Lookup>,
    /// By socket.
    caches: Vec<Option<Cache>>,
    contention: Contention,
    direct: Option<Direct>,
    hit_ns: f64,
    started: u64,
    rates: Vec<f64>,
}

impl Exact {
    pub(crate) fn new(setup: &Setup, world: &World, direct: Option<Direct>) -> Self {
        let mut line = 0_u32;
        let mut first_lines = Vec::new();
        let mut players = Vec::new();
        for (index, program) in setup.workload.programs.iter().enumerate() {
            players.push(Player::new(setup, world, index, program, line));
            first_lines.push(line);
            line = line.wrapping_add(program.pages.wrapping_mul(64));
        }
        let programs = 0..players.len();
        let caches = (0..world.hardware.views.len())
            .map(|_| world.hardware.cache.map(Cache::new))
            .collect();
        Self {
            rates: vec![0.0; players.len()],
            players,
            first_lines,
            lookups: programs.map(|p| Lookup::new(&world.space, p)).collect(),
            caches,
            contention: Contention::new(&world.hardware, setup.costs.queue_share),
            direct,
            hit_ns: setup.costs.cache_hit_ns,
            started: 0,
        }
    }

    /// Plays one program until its clock is at `until` or something stops it. Gives the new limit.
    fn play(&mut self, index: usize, world: &mut World, engine: &mut Engine, until: u64) -> u64 {
        let (player, lookup) = (&mut self.players[index], &self.lookups[index]);
        let (cache, hit_ns) = (self.caches[world.sockets[index]].as_mut(), self.hit_ns);
        match (cache, &mut self.direct) {
            (None, None) => player.run(Straight, lookup, world, engine, until),
            (Some(cache), None) => {
                let owners = Owners {
                    first_lines: &self.first_lines,
                    lookups: &self.lookups,
                };
                let path = Cached {
                    cache,
                    hit_ns,
                    owners,
                };
                player.run(path, lookup, world, engine, until)
            }
            (cache, Some(direct)) => {
                let path = MemoryMode {
                    direct,
                    cache,
                    hit_ns,
                };
                player.run(path, lookup, world, engine, until)
            }
        }
    }
}

/// The counter of misses has run over; gives how far off the next sample is.
#[cold]
#[inline(never)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is not negative"
)]
fn sample(world: &mut World, engine: &mut Engine, unit: u32, visit: Visit, time: f64) -> u64 {
    world.sampled(engine, unit, visit.page, visit.write, time as u64);
    world.sampling.as_ref().map_or(u64::MAX, |s| s.period)
}

/// A visit ran into something; handles it and gives the time up to which to play on.
#[cold]
#[inline(never)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a time that is not negative"
)]
fn trap(
    world: &mut World,
    engine: &mut Engine,
    unit: u32,
    write: bool,
    time: f64,
    until: u64,
) -> u64 {
    let at = time as u64;
    world.now = world.now.max(at);
    let program = world.program(unit);
    world.clear(unit, bits::CLEARED);
    if world.has(unit, bits::BLOCKED) {
        let end = world.blocked_until(unit);
        let wait = end.saturating_sub(at);
        #[expect(clippy::cast_precision_loss, reason = "a short time")]
        world.charge(program, Charge::Stall, wait as f64);
    }
    if world.has(unit, bits::ARMED) {
        world.hint_fault(engine, unit, write, at);
    }
    if write && world.has(unit, bits::COPYING) && world.movement.protected.is_some() {
        world.write_waits(program, at);
    } else if write && world.has(unit, bits::COPYING) {
        world.clear(unit, bits::COPYING);
        world.set(unit, bits::DIRTIED);
        world.write_protect_fault(program);
    }
    // While its commit is under way the write waits for that, and then meets the page elsewhere.
    if write && world.has(unit, bits::SHADOW) && !world.has(unit, bits::BLOCKED) {
        world.shadow_written(engine, unit, at);
    }
    until.min(world.movers_next().max(at))
}

impl Clock for Exact {
    fn next(&self, _world: &World) -> u64 {
        u64::MAX
    }

    fn advance(&mut self, world: &mut World, engine: &mut Engine, until: u64) -> u64 {
        let mut until = until;
        if self.players.len() > 1 {
            until = until.min(world.now + SLICE_NS);
        }
        for index in 0..self.players.len() {
            until = self.play(index, world, engine, until);
        }
        world.now = world.now.max(until);
        world.now
    }

    fn sync(&mut self, _world: &mut World) {}

    fn written(&mut self, world: &mut World, unit: u32, _window: f64) -> bool {
        world.has(unit, bits::DIRTIED)
    }

    fn protected(&mut self, _world: &mut World, _units: &[u32], _window: f64) {}

    fn blocked(&mut self, world: &mut World, unit: u32, window: f64) {
        world.note_blocked(unit, window);
    }

    fn test_and_clear(&mut self, world: &mut World, unit: u32) -> bool {
        let accessed = !world.has(unit, bits::CLEARED);
        world.set(unit, bits::CLEARED);
        accessed
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a step")]
    fn step(&mut self, world: &mut World) {
        let span = (world.now - self.started) as f64;
        let copies = world.copying.take(world.now);
        let share = world.processor_share(span);
        let mut loads = Vec::with_capacity(self.players.len());
        for (index, player) in self.players.iter_mut().enumerate() {
            let counts = std::mem::take(&mut player.meter.counts);
            let visits = (counts.visits as f64).max(1.0);
            let threads = world.threads[index] * share[world.sockets[index]];
            world.totals.threads += threads * span;
            player.threads = threads;
            let mut load = Load::idle(world.sockets[index]);
            load.threads = threads;
            load.fixed_ns = player.think + counts.hits as f64 * self.hit_ns / visits;
            let missed: u64 = counts.lines.iter().sum();
            load.streamed = counts.streamed as f64 / (missed as f64).max(1.0);
            let total = &mut world.totals.accesses[index];
            let written_back_at_once =
                self.caches[world.sockets[index]].is_none() && self.direct.is_none();
            for (node, total) in total.iter_mut().enumerate() {
                let reads = counts.lines[node * 2] as f64;
                let writes = counts.lines[node * 2 + 1] as f64;
                let backs = if written_back_at_once {
                    writes
                } else {
                    counts.backs[node] as f64
                };
                load.reads[node] = reads / visits;
                load.writes[node] = writes / visits;
                load.writebacks[node] = backs / visits;
                total.reads += reads;
                total.writes += writes;
                total.backs += backs;
            }
            if let Some(direct) = &self.direct {
                // Served by the slow node means not by the fast one, though both were asked.
                total[direct.fast].reads -= counts.slow[0] as f64;
                total[direct.fast].writes -= counts.slow[1] as f64;
            }
            world.totals.visits[index] += counts.visits as f64;
            if span > 0.0 {
                self.rates[index] = counts.visits as f64 / span;
            }
            loads.push(load);
        }
        self.started = world.now;
        let _ = self.contention.solve(&world.hardware, &loads, &copies);
        world.busy = self.contention.busy;
        world.waits.clone_from(&self.contention.waits);
        for player in loads.iter().zip(&mut self.players) {
            let (load, player) = player;
            for node in 0..world.hardware.nodes {
                for write in [false, true] {
                    player.meter.cost[node * 2 + usize::from(write)] =
                        self.contention
                            .line_ns(&world.hardware, load.socket, node, write);
                }
            }
        }
    }

    fn phases(&mut self, _world: &mut World, phases: &[usize]) {
        let players = self.players.iter_mut().zip(&self.lookups);
        for ((player, lookup), phase) in players.zip(phases) {
            player.set_phase(lookup, *phase);
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.rates.clone()
    }

    fn bytes(&self) -> u64 {
        0
    }
}
