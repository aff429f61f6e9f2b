// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exact engine: every visit of every program is played.
//!
//! A program's threads are one stream of visits that uses up thread time: with `t` threads, a visit
//! that takes `c` ns moves its clock on by `c / t`. What a visit runs into (armed, blocked or protected
//! pages) is handled at its very time. Programs take turns of [`SLICE_NS`].
//!
//! Between two events nothing is looked up but the page's state and the cost of its node; no hashing,
//! no allocation. With a cache each line goes through it, dirty lines that leave it are counted where
//! their page is.

use terrace_policy::Engine;
use terrace_workload::Visit;
use terrace_workload::Visits;

use crate::Setup;
use crate::cache::Cache;
use crate::cache::Found;
use crate::contention::Contention;
use crate::contention::Load;
use crate::direct::Direct;
use crate::hardware::NODES;
use crate::space::Space;
use crate::truth::is_stream;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::World;
use crate::world::bits;

/// Programs take turns so long.
const SLICE_NS: u64 = 100_000;

/// Base page to unit.
#[derive(Debug)]
enum Lookup {
    /// One region: shift, and add.
    Shift {
        shift: u8,
        first: u32,
    },
    Table(Vec<u32>),
}

impl Lookup {
    fn new(space: &Space, program: usize) -> Self {
        match space.program_regions(program) {
            [only] => Self::Shift {
                shift: only.size.shift() - 12,
                first: only.unit,
            },
            regions => Self::Table(
                regions
                    .iter()
                    .flat_map(|r| {
                        let pages = usize::try_from(r.size.base_pages()).expect("2^18");
                        (r.unit..r.unit + r.count).flat_map(move |u| std::iter::repeat_n(u, pages))
                    })
                    .collect(),
            ),
        }
    }
}

/// What a program did in a step.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    visits: u64,
    hits: u64,
    streamed: u64,
    /// Missed lines by node and write.
    lines: [u64; NODES * 2 + 2],
    backs: [u64; NODES + 1],
    /// In memory mode: lines that the slow memory served, by write.
    slow: [u64; 2],
}

#[derive(Debug)]
struct Player {
    visits: Visits,
    phase: usize,
    lookup: Lookup,
    /// Its line 0 among all programs'.
    first_line: u32,
    think: f64,
    /// Of each phase.
    thinks: Vec<f64>,
    threads: f64,
    /// Its own time, ns.
    time: f64,
    counts: Counts,
    /// Lines to be missed until the next sample.
    unsampled: u64,
    /// Ns of a missed line by node and write: alone, and in a stream.
    cost: [[f64; 2]; NODES * 2 + 2],
}

/// The engine.
#[derive(Debug)]
pub(crate) struct Exact {
    players: Vec<Player>,
    caches: Vec<Option<Cache>>,
    contention: Contention,
    direct: Option<Direct>,
    hit_ns: f64,
    started: u64,
    rates: Vec<f64>,
    /// Which program and base page a line is of, for lines given back.
    lines: Vec<(u32, usize)>,
}

impl Exact {
    pub(crate) fn new(setup: &Setup, world: &World, direct: Option<Direct>) -> Self {
        let mut line = 0;
        let mut lines = Vec::new();
        let players: Vec<Player> = setup
            .workload
            .programs
            .iter()
            .enumerate()
            .map(|(index, program)| {
                lines.push((line, index));
                let player = Player {
                    visits: Visits::new(program, setup.seed),
                    phase: 0,
                    lookup: Lookup::new(&world.space, index),
                    first_line: line,
                    think: 0.0,
                    thinks: program
                        .phases
                        .iter()
                        .map(|phase| {
                            phase.think_ns * setup.costs.think_scale + setup.costs.visit_ns
                        })
                        .collect(),
                    threads: f64::from(program.threads),
                    time: 0.0,
                    counts: Counts::default(),
                    unsampled: world.sampling.as_ref().map_or(u64::MAX, |s| s.period),
                    cost: [[0.0; 2]; NODES * 2 + 2],
                };
                line = line.wrapping_add(program.pages.wrapping_mul(64));
                player
            })
            .collect();
        let caches = (0..world.hardware.views.len())
            .map(|_| world.hardware.cache.map(Cache::new))
            .collect();
        Self {
            rates: vec![0.0; players.len()],
            players,
            caches,
            contention: Contention::new(&world.hardware, setup.costs.queue_share),
            direct,
            hit_ns: setup.costs.cache_hit_ns,
            started: 0,
            lines,
        }
    }

    /// Plays one program until its clock is at `until` or something stops it. Gives the new limit.
    fn play(&mut self, index: usize, world: &mut World, engine: &mut Engine, until: u64) -> u64 {
        let simple = self.direct.is_none() && self.caches[world.sockets[index]].is_none();
        let player = &self.players[index];
        match (&player.lookup, simple) {
            (&Lookup::Shift { shift, first }, true) => {
                self.run::<true>(index, world, engine, until, |page| first + (page >> shift))
            }
            (&Lookup::Shift { shift, first }, false) => {
                self.run::<false>(index, world, engine, until, |page| first + (page >> shift))
            }
            (Lookup::Table(_), _) => {
                let lookup = &mut self.players[index].lookup;
                let taken = std::mem::replace(lookup, Lookup::Shift { shift: 0, first: 0 });
                let Lookup::Table(table) = &taken else {
                    unreachable!("matched above")
                };
                let limit = if simple {
                    self.run::<true>(index, world, engine, until, |p| table[p as usize])
                } else {
                    self.run::<false>(index, world, engine, until, |p| table[p as usize])
                };
                self.players[index].lookup = taken;
                limit
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "times below 2^53 ns")]
    #[inline]
    fn run<const SIMPLE: bool>(
        &mut self,
        index: usize,
        world: &mut World,
        engine: &mut Engine,
        until: u64,
        unit_of: impl Fn(u32) -> u32,
    ) -> u64 {
        let mut until = until;
        let (threads, think) = (self.players[index].threads, self.players[index].think);
        let mut time = self.players[index].time;
        let phase = self.players[index].phase;
        let mut budget = (until as f64 - time) * threads;
        // What was charged by others since.
        let mut spent = std::mem::take(&mut world.debt[index]);
        while spent < budget {
            let player = &mut self.players[index];
            let visit = player.visits.visit(phase);
            let unit = unit_of(visit.page);
            let mut state = world.state[unit as usize];
            let traps = [bits::TRAP_READ, bits::TRAP_WRITE][usize::from(visit.write)];
            if state & traps != 0 {
                time += spent / threads;
                until = trap(world, engine, unit, visit.write, time, until);
                spent = std::mem::take(&mut world.debt[index]);
                budget = (until as f64 - time) * threads;
                state = world.state[unit as usize];
            }
            let node = usize::from(state & bits::NODE);
            player.counts.visits += 1;
            spent += think;
            let missed = if SIMPLE {
                spent += simple_visit(player, visit, node);
                u64::from(visit.lines)
            } else {
                let (ns, missed) = self.full_visit(index, world, visit, node);
                spent += ns;
                missed
            };
            let player = &mut self.players[index];
            if player.unsampled > missed {
                player.unsampled -= missed;
            } else {
                let at = time + spent / threads;
                player.unsampled = sample(world, engine, unit, visit, at);
                spent += std::mem::take(&mut world.debt[index]);
            }
        }
        self.players[index].time = time + spent / threads;
        until
    }

    /// A visit through the cache, in memory mode, or both: ns, and missed lines.
    fn full_visit(&mut self, index: usize, world: &World, visit: Visit, node: usize) -> (f64, u64) {
        let socket = world.sockets[index];
        let player = &mut self.players[index];
        let write = usize::from(visit.write);
        let page_line = player.first_line.wrapping_add(visit.page << 6);
        let stream = is_stream(visit.step);
        let (mut line, mut ns, mut behind) = (visit.first_line, 0.0, false);
        let mut missed = 0;
        for _ in 0..visit.lines {
            let number = page_line + u32::from(line);
            line = (line + visit.step) & 63;
            let found = match &mut self.caches[socket] {
                Some(cache) => cache.access(number, visit.write),
                None => Found::Miss(None),
            };
            match found {
                Found::Hit => {
                    player.counts.hits += 1;
                    ns += self.hit_ns;
                }
                Found::Miss(back) => {
                    missed += 1;
                    let in_stream = usize::from(stream && behind);
                    player.counts.streamed += in_stream as u64;
                    // Without a cache a written line is given back at once.
                    let at_once = visit.write && self.caches[socket].is_none();
                    if let Some(direct) = &mut self.direct {
                        let asked = (number, write, at_once);
                        ns += in_memory_mode(player, direct, asked, node, in_stream, back);
                        behind = true;
                        continue;
                    }
                    player.counts.lines[node * 2 + write] += 1;
                    ns += player.cost[node * 2 + write][in_stream];
                    if let Some(back) = back {
                        let node = node_of_line(&self.lines, world, back);
                        player.counts.backs[node.min(NODES)] += 1;
                    }
                    if at_once {
                        player.counts.backs[node.min(NODES)] += 1;
                    }
                }
            }
            behind = true;
        }
        (ns, missed)
    }
}

/// Memory mode: a missed line, and one that the cache gave back with it; gives the ns.
fn in_memory_mode(
    player: &mut Player,
    direct: &mut Direct,
    (line, write, at_once): (u32, usize, bool),
    node: usize,
    in_stream: usize,
    back: Option<u32>,
) -> f64 {
    let fast = direct.fast;
    let asked = direct.access(line, at_once);
    let counts = &mut player.counts;
    counts.lines[fast * 2 + write] += 1;
    counts.backs[fast] += u64::from(at_once);
    counts.backs[node.min(NODES)] += u64::from(asked.wrote_back);
    let mut ns = player.cost[fast * 2 + write][in_stream];
    if !asked.hit {
        counts.slow[write] += 1;
        counts.lines[node * 2 + write] += 1;
        // It is put into its place.
        counts.backs[fast] += 1;
        ns += player.cost[node * 2 + write][in_stream];
    }
    if let Some(back) = back {
        // The displaced line's node is taken for this one's: there is seldom another.
        let wrote_back = direct.access(back, true).wrote_back;
        counts.backs[fast] += 1;
        counts.backs[node.min(NODES)] += u64::from(wrote_back);
    }
    ns
}

/// Where the page of a line is.
fn node_of_line(lines: &[(u32, usize)], world: &World, line: u32) -> usize {
    let at = lines
        .partition_point(|(first, _)| *first <= line)
        .saturating_sub(1);
    let (first, program) = lines[at];
    world
        .space
        .at(program, (line - first) >> 6)
        .map_or(NODES, |unit| world.node(unit))
}

#[inline]
fn simple_visit(player: &mut Player, visit: Visit, node: usize) -> f64 {
    let at = node * 2 + usize::from(visit.write);
    let [single, streamed] = player.cost[at];
    let more = u64::from(visit.lines) - 1;
    player.counts.lines[at] += more + 1;
    if more == 0 {
        return single;
    }
    #[expect(clippy::cast_precision_loss, reason = "at most 63")]
    if is_stream(visit.step) {
        player.counts.streamed += more;
        single + streamed * more as f64
    } else {
        single * (more + 1) as f64
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
    if write && world.has(unit, bits::COPYING) && world.protected.is_some() {
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
            let counts = std::mem::take(&mut player.counts);
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
        for player in loads.iter().zip(&mut self.players) {
            let (load, player) = player;
            for node in 0..world.hardware.nodes {
                for write in [false, true] {
                    player.cost[node * 2 + usize::from(write)] =
                        self.contention
                            .line_ns(&world.hardware, load.socket, node, write);
                }
            }
        }
    }

    fn phases(&mut self, _world: &mut World, phases: &[usize]) {
        for (player, phase) in self.players.iter_mut().zip(phases) {
            player.phase = *phase;
            player.think = player.thinks[*phase];
        }
    }

    fn rates(&self) -> Vec<f64> {
        self.rates.clone()
    }

    fn bytes(&self) -> u64 {
        0
    }
}
