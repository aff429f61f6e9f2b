// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: puts the machine together, lets time pass from event to event, collects the outcome.
//!
//! What happens by itself: steps of [`STEP_NS`] (throughput and queueing), the policy's deadlines, the
//! scanner's chunks, the movers' stages, samples of the nodes' memory, changes of phase. What the
//! programs do in between is the clock's business.

use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_policy::fit::PASS_AS_SAMPLES;
use terrace_workload::Program;

use crate::EngineKind;
use crate::Outcome;
use crate::Setup;
use crate::SimError;
use crate::exact::Exact;
use crate::hardware::Hardware;
use crate::hardware::node_id;
use crate::memory::Memory;
use crate::memory_mode::Layout;
use crate::outcome::NodeAccesses;
use crate::outcome::Point;
use crate::outcome::ProgramOutcome;
use crate::placement;
use crate::quality::Watch;
use crate::rate::Rate;
use crate::sampling::Sampling;
use crate::space::Space;
use crate::system;
use crate::system::Placement;
use crate::system::System;
use crate::world::Clock;
use crate::world::World;

/// A step of the rate engine; the exact one makes ten of it.
pub(crate) const STEP_NS: u64 = 10_000_000;
const EXACT_STEP_NS: u64 = 1_000_000;
/// As the supervisor samples while pages move.
const MEMORY_NS: u64 = 200_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// Pages up to which the placement is judged: it takes the shares of all once more.
const WATCHED_MAX: u32 = 1 << 24;

struct Run<'a> {
    setup: &'a Setup,
    world: World,
    engine: Engine,
    clock: Box<dyn Clock>,
    placement: Placement,
    step: u64,
    step_due: u64,
    memory_due: u64,
    second_due: u64,
    window_due: u64,
    phase_due: u64,
    phases: Vec<usize>,
    phase_changed_s: Option<f64>,
    written: Written,
    series: Vec<Point>,
    before: Before,
    metadata: u64,
    /// Judges the placement; not in memory mode, nor for huge memories.
    watch: Option<Watch>,
}

/// Lines that programs wrote, in cache or memory: by the share of the writes in each phase's visits.
#[derive(Debug, Clone, Default)]
struct Written {
    lines: f64,
    /// Of each program: lines that a visit writes on average, and its visits when this was reckoned.
    programs: Vec<(f64, f64)>,
}

impl Written {
    /// Adds what was written since the last time; from now on visits are those of these phases.
    fn reckon(&mut self, setup: &Setup, visits: &[f64], phases: &[usize]) {
        for ((each, before), visits) in self.programs.iter().zip(visits) {
            self.lines += each * (visits - before);
        }
        let a_visit = |(program, phase): (&Program, &usize)| {
            let parts = program.phases[*phase].parts.iter();
            let lines = parts.map(|part| {
                let share = f64::from(part.write_percent) / 100.0;
                part.weight * share * f64::from(part.lines)
            });
            lines.sum()
        };
        let programs = setup.workload.programs.iter().zip(phases).map(a_visit);
        self.programs = programs.zip(visits.iter().copied()).collect();
    }
}

/// Counters at the last point of the series.
#[derive(Debug, Clone, Copy, Default)]
struct Before {
    t: f64,
    visits: f64,
    fast: f64,
    all: f64,
    promoted: u64,
    demoted: u64,
    stall: f64,
    threads: f64,
}

/// Runs a set-up. `progress` is told the simulated seconds so far, now and then.
///
/// # Errors
///
/// Where the set-up cannot be simulated; nothing was run then.
pub fn run(setup: &Setup, progress: &mut dyn FnMut(f64)) -> Result<Outcome, SimError> {
    run_with(setup, &mut |policy| policy, progress)
}

/// As [`run`], with something around the system's policy: `wrap` gets it and gives what shall run in
/// its place. That is how a tracker is judged: a policy that looks at every event, passes it on and
/// compares what it has seen with the workload's true shares.
///
/// # Errors
///
/// As [`run`].
pub fn run_with(
    setup: &Setup,
    wrap: &mut dyn FnMut(Box<dyn Policy>) -> Box<dyn Policy>,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, SimError> {
    let mut run = Run::new(setup, wrap)?;
    let end = crate::world::round(setup.seconds * 1e9);
    run.start();
    while run.world.now < end {
        if run.advance(end) {
            progress(Nanos(run.world.now).as_secs_f64());
        }
    }
    Ok(run.outcome())
}

fn memory_of(setup: &Setup, hardware: &Hardware) -> Memory {
    let sizes = hardware.totals.iter().enumerate().map(|(node, total)| {
        let reserved = setup.reserved.get(&node).copied().unwrap_or(0);
        (*total, total - reserved)
    });
    Memory::new(&sizes.collect::<Vec<_>>(), setup.min_free)
}

/// What a run is put together from.
struct Parts {
    hardware: Hardware,
    space: Space,
    memory: Memory,
    system: System,
}

/// Whether a set-up can be simulated. Quick, also for terabytes.
///
/// # Errors
///
/// What [`run`] would say.
pub fn check(setup: &Setup) -> Result<(), SimError> {
    prepare(setup).map(|_| ())
}

/// Finds every mistake of a set-up before anything is allocated.
fn prepare(setup: &Setup) -> Result<Parts, SimError> {
    if !(0.01..=1e6).contains(&setup.seconds) {
        return Err(SimError::Seconds(setup.seconds));
    }
    let hardware = Hardware::new(setup)?;
    let space = crate::space::map(setup)?;
    let memory = memory_of(setup, &hardware);
    let system = system::make(setup, &hardware, &space)?;
    let programs = setup.workload.programs.iter();
    let base_pages: u64 = programs.map(|p| u64::from(p.pages)).sum();
    if setup.engine == EngineKind::Exact && base_pages >= 1 << 25 {
        let text = "The exact engine takes less than 128 GiB of memory; take the rate engine";
        return Err(SimError::Limit(text.to_owned()));
    }
    placement::room(setup, &hardware, &memory, system.placement)?;
    Ok(Parts {
        hardware,
        space,
        memory,
        system,
    })
}

impl<'a> Run<'a> {
    fn new(
        setup: &'a Setup,
        wrap: &mut dyn FnMut(Box<dyn Policy>) -> Box<dyn Policy>,
    ) -> Result<Self, SimError> {
        let Parts {
            hardware,
            space,
            memory,
            system,
        } = prepare(setup)?;
        let System {
            policy,
            tiers,
            movement,
            placement,
            first_placement,
            tracked,
            sample_period,
        } = system;
        let mut world = World::new(setup, hardware, space, memory, tiers, movement);
        world.tracked = tracked;
        world.sampling = sample_period.map(Sampling::new);
        let layout = placement::allocate(setup, &mut world, placement, first_placement);
        let clock: Box<dyn Clock> = match setup.engine {
            EngineKind::Exact => Box::new(Exact::new(setup, &world, layout.map(Layout::played))),
            EngineKind::Rate => Box::new(Rate::new(setup, &world, layout)),
        };
        let step = match setup.engine {
            EngineKind::Exact => EXACT_STEP_NS,
            EngineKind::Rate => STEP_NS,
        };
        let judged = placement != Placement::Cache && world.space.units() <= WATCHED_MAX;
        let watch = judged.then(|| Watch::new(setup, &world));
        Ok(Self {
            setup,
            watch,
            world,
            engine: Engine::new(wrap(policy)),
            clock,
            placement,
            step,
            step_due: step,
            memory_due: 0,
            second_due: SECOND_NS,
            window_due: u64::MAX,
            phase_due: 0,
            phases: Vec::new(),
            phase_changed_s: None,
            written: Written::default(),
            series: Vec::new(),
            before: Before::default(),
            metadata: 0,
        })
    }

    fn start(&mut self) {
        self.change_phases();
        self.clock.step(&mut self.world);
        if self.setup.engine == EngineKind::Rate {
            self.world.notes = Some(Vec::new());
        }
        self.sample_memory();
        self.tell_programs();
        if self.world.tracked.stands_in {
            let (now, pass) = (self.world.now, PASS_AS_SAMPLES.0);
            self.world.start_scan(now, ScanScope::All, pass);
        }
        self.world.pump(&mut self.engine);
        self.world.answer(&mut self.engine, self.clock.as_mut());
    }

    /// What a policy knows of the programs before they run.
    fn tell_programs(&mut self) {
        let now = Nanos(self.world.now);
        for (index, program) in self.setup.workload.programs.iter().enumerate() {
            let pid = crate::space::pid(index);
            let cpu_node = self.world.cpu_node(index);
            self.engine.observe(now, &Event::Runs { pid, cpu_node });
            if let Some(&share) = self.setup.shares.get(&program.name) {
                self.engine.observe(now, &Event::Share { pid, share });
            }
            let range = self.world.space.program_range(index);
            self.engine.observe(now, &Event::Mapped { pid, range });
        }
    }

    /// What reads take under the present load, as the supervisor measures it.
    fn tell_latencies(&mut self) {
        let now = Nanos(self.world.now);
        for event in self.world.reads() {
            self.engine.observe(now, &event);
        }
    }

    /// The next event. Whether a second has passed.
    fn advance(&mut self, end: u64) -> bool {
        let deadline = self.engine.policy().next_deadline().0;
        let due = end
            .min(self.step_due)
            .min(self.memory_due)
            .min(self.phase_due)
            .min(self.window_due)
            .min(deadline)
            .min(self.world.movers_next())
            .min(self.world.scan_next())
            .min(self.world.reading_next())
            .min(self.clock.next(&self.world))
            .max(self.world.now);
        let reached = self.clock.advance(&mut self.world, &mut self.engine, due);
        self.clock.sync(&mut self.world);
        let now = reached;
        if self.world.movers_next() <= now {
            self.world.movers_step(self.clock.as_mut());
            self.world.protected_step(self.clock.as_mut());
            self.world.threaded_step(self.clock.as_mut());
        }
        if self.world.scan_next() <= now {
            self.world.scan_step(&mut self.engine);
        }
        if self.world.reading_next() <= now {
            self.world
                .reading_step(&mut self.engine, self.clock.as_mut());
        }
        self.clock.sync(&mut self.world);
        if now >= self.memory_due {
            self.sample_memory();
        }
        if !self.world.ends.is_empty() {
            self.world.tell_ends(&mut self.engine);
            self.world.pump(&mut self.engine);
        } else if now >= self.engine.policy().next_deadline().0 {
            self.world.pump(&mut self.engine);
        }
        self.world.answer(&mut self.engine, self.clock.as_mut());
        self.clock.sync(&mut self.world);
        if now >= self.phase_due || now >= self.window_due {
            self.change_phases();
        }
        if now >= self.step_due {
            self.world.pay_spread(self.step);
            self.clock.step(&mut self.world);
            self.step_due += self.step;
        }
        if now >= self.second_due || now >= end {
            self.point();
            self.tell_latencies();
            self.second_due += SECOND_NS;
            return true;
        }
        false
    }

    fn sample_memory(&mut self) {
        self.memory_due = self.world.now + MEMORY_NS;
        for node in 0..self.world.hardware.nodes {
            let memory = self.world.memory.sample(node);
            self.engine
                .memory(Nanos(self.world.now), node_id(node), memory);
        }
    }

    /// Sets the programs' phases by the time, and the oracle's placement with them.
    fn change_phases(&mut self) {
        let now = Nanos(self.world.now);
        let mut due = u64::MAX;
        let mut phases = Vec::with_capacity(self.world.space.programs());
        for program in &self.setup.workload.programs {
            let (phase, end) = program.phase_at(now);
            due = due.min(end.map_or(u64::MAX, |end| end.0));
            phases.push(phase);
        }
        self.phase_due = due;
        let changed = phases != self.phases;
        if changed && !self.phases.is_empty() {
            self.phase_changed_s = Some(now.as_secs_f64());
        }
        self.phases = phases;
        if changed {
            let visits = &self.world.totals.visits;
            self.written.reckon(self.setup, visits, &self.phases);
            self.clock.phases(&mut self.world, &self.phases);
        }
        if self.placement == Placement::Best {
            let window = crate::world::round(self.setup.window_s.max(0.01) * 1e9);
            self.window_due = self.world.now + window;
            // Once for a single program whose phase lasts; several change each other's rates.
            let rates = self.clock.rates();
            if changed || rates.len() > 1 {
                self.world.notes.get_or_insert_default();
                placement::place_best(self.setup, &mut self.world, &self.phases, &rates);
                if self.setup.engine == EngineKind::Exact {
                    self.world.notes = None;
                }
                self.clock.sync(&mut self.world);
                if self.setup.engine == EngineKind::Rate {
                    self.clock.step(&mut self.world);
                }
            }
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "base pages of a program")]
    fn point(&mut self) {
        let totals = &self.world.totals;
        let stats = self.engine.stats();
        let (mut fast, mut all) = (0.0, 0.0);
        for accesses in &totals.accesses {
            for (node, count) in accesses.iter().enumerate() {
                let lines = count.reads + count.writes;
                all += lines;
                fast += if self.world.top[node] { lines } else { 0.0 };
            }
        }
        let now = Before {
            t: Nanos(self.world.now).as_secs_f64(),
            visits: totals.visits.iter().sum(),
            fast,
            all,
            promoted: stats.promoted_pages,
            demoted: stats.demoted_pages,
            stall: totals.stall,
            threads: totals.threads,
        };
        let before = std::mem::replace(&mut self.before, now);
        let span = now.t - before.t;
        if span <= 1e-9 {
            return;
        }
        let ratio = |part: f64, of: f64| if of > 0.0 { part / of } else { 0.0 };
        let moved = now.promoted + now.demoted - before.promoted - before.demoted;
        let pages = self.world.state.len() as f64;
        self.series.push(Point {
            t: now.t,
            ops_per_s: (now.visits - before.visits) / span,
            fast_access_ratio: ratio(now.fast - before.fast, now.all - before.all),
            promoted_pages: now.promoted - before.promoted,
            demoted_pages: now.demoted - before.demoted,
            shadow_bytes: self.world.shadow_bytes(),
            stall_share: ratio(now.stall - before.stall, now.threads - before.threads),
            migrating: moved as f64 / span > pages / 10_000.0,
        });
        if let Some(watch) = &mut self.watch
            && watch.due(now.t)
        {
            watch.look(self.setup, &self.world, &self.phases, &self.clock.rates());
        }
        let counters = self.engine.policy().counters();
        let metadata = counters
            .iter()
            .find(|(figure, _)| figure.name == "metadata_bytes");
        self.metadata = self.metadata.max(metadata.map_or(0, |(_, bytes)| *bytes));
    }

    fn outcome(mut self) -> Outcome {
        let visits = &self.world.totals.visits;
        self.written.reckon(self.setup, visits, &self.phases);
        let (setup, world) = (self.setup, &self.world);
        let totals = &world.totals;
        let promoted = self.engine.stats().promoted_pages;
        let watch = self.watch.as_ref();
        let quality = watch.and_then(|watch| watch.finish(setup, world, &self.phases, promoted));
        let stats = self.engine.stats_mut();
        stats.write_protect_faults = totals.write_protect_faults;
        stats.writes_waited = crate::world::round(totals.writes_waited);
        stats.set_writes(Some(crate::world::round(self.written.lines)));
        stats.samples_lost = world.sampling.as_ref().map_or(0, |sampling| sampling.lost);
        let seconds = Nanos(world.now).as_secs_f64();
        let nodes = (0..world.hardware.nodes).map(|node| {
            let sum = |f: fn(&crate::world::NodeCount) -> f64| {
                crate::world::round(totals.accesses.iter().map(|a| f(&a[node])).sum())
            };
            NodeAccesses {
                node,
                tier: world.tiers.tier_of(node_id(node)).unwrap_or_default().0,
                reads: sum(|c| c.reads),
                writes: sum(|c| c.writes),
                written_bytes: sum(|c| c.backs) * 64,
                migration_written_bytes: totals.migrated[node],
            }
        });
        let counters = self.engine.policy().counters();
        Outcome {
            machine: setup.machine.name.clone(),
            workload: setup.workload.name.clone(),
            system: setup.system.clone(),
            engine: setup.engine,
            seed: setup.seed,
            seconds,
            base_pages: setup.workload.bytes() >> 12,
            programs: programs(setup, world),
            nodes: nodes.collect(),
            series: std::mem::take(&mut self.series),
            stats: self.engine.stats(),
            policy_counters: counters
                .into_iter()
                .map(|(figure, value)| (figure.name.to_owned(), value))
                .collect(),
            allocations_failed: totals.allocations_failed,
            thread_ns: totals.threads,
            profiling_ns: totals.profiling,
            migration_ns: totals.migration,
            stall_ns: totals.stall,
            worker_ns: totals.workers,
            scan_ns: totals.scans,
            supervisor_ns: totals.supervisor,
            writes_waited: totals.writes_waited,
            written_lines: self.written.lines,
            phase_changed_s: self.phase_changed_s,
            shadow_bytes_max: totals.shadow_max,
            shadow_bytes_end: world.shadow_bytes(),
            metadata_bytes: self.metadata,
            simulator_bytes: self.clock.bytes()
                + (world.state.len() * 2 + world.armed_at.len() * 8 + world.shadow_on.len()) as u64,
            oracle_ops_per_s: None,
            quality,
        }
    }
}

/// Of a program's accesses, the share that the fast tier served.
/// What each program came to.
fn programs(setup: &Setup, world: &World) -> Vec<ProgramOutcome> {
    let seconds = Nanos(world.now).as_secs_f64();
    let visits = &world.totals.visits;
    let one = |(index, program): (usize, &terrace_workload::Program)| ProgramOutcome {
        name: program.name.clone(),
        visits: visits[index],
        ops_per_s: visits[index] / seconds,
        fast_access_ratio: fast_share(world, index),
        fast_bytes: fast_bytes(world, index),
        bytes: world.space.program_bytes(index),
    };
    let all = setup.workload.programs.iter().enumerate();
    all.map(one).collect()
}

/// Bytes of a program in the fast tier.
fn fast_bytes(world: &World, program: usize) -> u64 {
    let is_fast = |unit: &u32| world.top.get(world.node(*unit)) == Some(&true);
    let fast = world.space.program_units(program).filter(is_fast);
    fast.map(|unit| world.space.bytes(unit)).sum()
}

fn fast_share(world: &World, program: usize) -> f64 {
    let accesses = &world.totals.accesses[program];
    let lines = |c: &crate::world::NodeCount| c.reads + c.writes;
    let all: f64 = accesses.iter().map(lines).sum();
    let fast = accesses.iter().zip(world.top).filter(|(_, top)| *top);
    fast.map(|(c, _)| lines(c)).sum::<f64>() / all.max(1.0)
}
