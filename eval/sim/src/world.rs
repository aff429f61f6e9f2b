// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated machine under the engine: page states, memory, shadows, what is charged to whom.
//!
//! [`World`] carries out the policy's actions as `LinuxMachine` does on Linux: orders are queued and
//! their ends come back as events. Movers are in [`crate::mover`], the hint-fault scanner in
//! [`crate::scanner`], the processors in [`crate::beside`]. How programs run is not here: a [`Clock`] knows.

use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Reason;
use terrace_policy::Refusal;
use terrace_policy::ScanScope;
use terrace_policy::Served;
use terrace_policy::Verdict;

use crate::Costs;
use crate::Setup;
use crate::accessed::Reader;
use crate::cpu_share::CpuShare;
use crate::hardware::Hardware;
use crate::hardware::NODES;
use crate::memory::Memory;
use crate::mover::Workers;
use crate::protected_copy::Copying;
use crate::protected_copy::ProtectedCopy;
use crate::sampling::Sampling;
use crate::scanner::Pace;
use crate::scanner::Scanner;
use crate::space;
use crate::space::Space;
use crate::threaded_copy::Copier;
use crate::threaded_copy::ThreadedCopy;

/// Bits of a page's state: the node it is on, and what happens to it.
pub(crate) mod bits {
    /// The node's number; all ones if the page has no memory.
    pub(crate) const NODE: u16 = 0xf;
    /// The next access is a hint fault.
    pub(crate) const ARMED: u16 = 1 << 4;
    /// Protected against writes while a transaction copies it.
    pub(crate) const COPYING: u16 = 1 << 5;
    /// Inaccessible.
    pub(crate) const BLOCKED: u16 = 1 << 6;
    /// Its old frame is kept and it is protected against writes.
    pub(crate) const SHADOW: u16 = 1 << 7;
    /// An order for it is with a mover.
    pub(crate) const ORDERED: u16 = 1 << 8;
    /// Its accessed bit was cleared and it was not accessed since.
    pub(crate) const CLEARED: u16 = 1 << 9;
    /// Written while a transaction copied it.
    pub(crate) const DIRTIED: u16 = 1 << 10;
    /// The rate engine has an event for its hint fault.
    pub(crate) const FAULT_DUE: u16 = 1 << 11;
    /// The rate engine has an event for the write that drops its shadow.
    pub(crate) const WRITE_DUE: u16 = 1 << 12;
    /// The rate engine: its accessed bit is known to be set, by its hint fault or before it was armed.
    pub(crate) const ACCESSED: u16 = 1 << 13;
    /// What a read runs into.
    pub(crate) const TRAP_READ: u16 = ARMED | BLOCKED | CLEARED;
    /// What a write runs into.
    pub(crate) const TRAP_WRITE: u16 = TRAP_READ | COPYING | SHADOW;
}

/// What the rate engine must take in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Note {
    /// A page is on another node now.
    Moved { unit: u32, from: usize, to: usize },
    /// A page was armed by a pass, or found armed still.
    Armed { unit: u32, fresh: bool },
    /// A page was armed by itself, between passes.
    ArmedAlone { unit: u32 },
    /// A page has a shadow.
    Shadowed { unit: u32 },
}

/// How the programs run: exact or by rates.
pub(crate) trait Clock {
    /// When something happens of itself.
    fn next(&self, world: &World) -> u64;
    /// Runs the programs to `until`, or less far if something happened that others must know of
    /// first. Gives the time reached.
    fn advance(&mut self, world: &mut World, engine: &mut Engine, until: u64) -> u64;
    /// Takes in what the world noted.
    fn sync(&mut self, world: &mut World);
    /// Whether the page was written in the last `window` ns, during which it was being copied.
    fn written(&mut self, world: &mut World, unit: u32, window: f64) -> bool;
    /// Writes to these pages of one program wait for the next `window` ns.
    fn protected(&mut self, world: &mut World, units: &[u32], window: f64);
    /// The page is inaccessible for the next `window` ns.
    fn blocked(&mut self, world: &mut World, unit: u32, window: f64);
    /// Whether the page was accessed since its accessed bit was cleared; clears it.
    fn test_and_clear(&mut self, world: &mut World, unit: u32) -> bool;
    /// The end of a step: counts, and how fast the programs run in the next one.
    fn step(&mut self, world: &mut World);
    /// The programs' phases have changed.
    fn phases(&mut self, world: &mut World, phases: &[usize]);
    /// Visits a ns of each program in the last step.
    fn rates(&self) -> Vec<f64>;
    /// Bytes of its tables.
    fn bytes(&self) -> u64;
}

/// What programs' time is charged for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Charge {
    Profiling,
    Migration,
    Stall,
}

/// Who starts a TLB shootdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// A thread of the program.
    Program,
    /// An agent's thread or the kernel's.
    Worker,
}

/// Counters of one node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeCount {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    pub(crate) backs: f64,
}

/// Counters of the run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// `[program]`
    pub(crate) visits: Vec<f64>,
    /// `[program][node]`
    pub(crate) accesses: Vec<[NodeCount; NODES]>,
    pub(crate) migrated: [u64; NODES],
    pub(crate) profiling: f64,
    pub(crate) migration: f64,
    pub(crate) stall: f64,
    pub(crate) workers: f64,
    /// Processor time of scans of named pages, ns.
    pub(crate) scans: f64,
    /// Processor time of the supervisor, ns.
    pub(crate) supervisor: f64,
    pub(crate) allocations_failed: u64,
    pub(crate) write_protect_faults: u64,
    /// Writes that waited for the copy of their page.
    pub(crate) writes_waited: f64,
    /// Thread time of the programs.
    pub(crate) threads: f64,
    pub(crate) shadow_max: u64,
}

/// An order's end, to be told to the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    pub(crate) at: u64,
    pub(crate) page: PageRef,
    pub(crate) migration: Migration,
    /// Where the page was; nowhere if there is no such page.
    pub(crate) from: Option<usize>,
    pub(crate) verdict: Verdict,
    pub(crate) mechanism: Mechanism,
    /// From the order on, ns.
    pub(crate) took: u64,
    pub(crate) inaccessible: Option<f64>,
    /// Processor time of the mover, where it is told ([`Event::Moved`]).
    pub(crate) busy: Option<f64>,
}

/// What tells of accesses beside samples; what is not there is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tracked {
    /// Hint faults.
    pub(crate) faults: bool,
    /// Each of them is told as a sample.
    pub(crate) stands_in: bool,
    /// Accessed bits.
    pub(crate) bits: bool,
}

/// How a system moves pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Movement {
    /// By transactions and with shadows, else by the kernel's ordinary migration.
    pub(crate) transactions: bool,
    /// With those: the kernel moves a page that is to keep a shadow, and the shadow is copied afterwards; all others go
    /// by its ordinary migration (`terrace run` without options).
    pub(crate) commit_copies: bool,
    /// Promotions that are ordered in a hint fault are carried out in it.
    pub(crate) synchronous: bool,
    /// MTM's or Nimble's way instead of either: by several threads, beside the program until it writes.
    pub(crate) threaded: Option<ThreadedCopy>,
    /// HeMem's way instead of either: writers wait for the copy.
    pub(crate) protected: Option<Copying>,
    /// A supervisor beside the programs decides, and takes processor time for it.
    pub(crate) supervised: bool,
    /// Demotions that are ordered in a hint fault, too.
    pub(crate) demotes_in_fault: bool,
    /// Two pages can change places.
    pub(crate) exchange: bool,
    /// A demoted page is armed where it arrives.
    pub(crate) arms_demoted: bool,
    /// How the kernel's scanner goes about its passes.
    pub(crate) pace: Pace,
}

impl Movement {
    /// How an order of several pages is carried out: the policy's own way, or the kernel's, with as many threads as copy a page.
    pub(crate) fn ranges(&self) -> Copying {
        let threads = self.threaded.map_or(1, |copy| copy.threads);
        self.protected.unwrap_or(Copying {
            threads,
            ..Copying::BY_KERNEL
        })
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) costs: Costs,
    pub(crate) hardware: Hardware,
    pub(crate) space: Space,
    pub(crate) tiers: Tiers,
    pub(crate) top: [bool; NODES],
    pub(crate) memory: Memory,
    pub(crate) movement: Movement,
    /// By unit.
    pub(crate) state: Vec<u16>,
    /// By unit: when it was armed, in 16 us. Empty until something is.
    pub(crate) armed_at: Vec<u32>,
    /// By unit: the node of its shadow. Empty until there is one.
    pub(crate) shadow_on: Vec<u8>,
    /// By program: units with shadows, the oldest first; some are gone since.
    pub(crate) shadows: Vec<VecDeque<u32>>,
    pub(crate) workers: Workers,
    pub(crate) protected: Option<ProtectedCopy>,
    pub(crate) copier: Option<Copier>,
    pub(crate) tracked: Tracked,
    pub(crate) sampling: Option<Sampling>,
    /// The reader of accessed bits, where they are read.
    pub(crate) reader: Option<Reader>,
    pub(crate) scanners: Vec<Scanner>,
    pub(crate) scope: Option<ScanScope>,
    /// By program: thread time to be paid, ns.
    pub(crate) debt: Vec<f64>,
    /// By program.
    pub(crate) threads: Vec<f64>,
    /// By program: its socket.
    pub(crate) sockets: Vec<usize>,
    pub(crate) totals: Totals,
    pub(crate) notes: Option<Vec<Note>>,
    pub(crate) ends: VecDeque<End>,
    /// The policy asked for an inventory.
    pub(crate) inventory: bool,
    /// The policy asked what of these processes is slow.
    find_slow: Vec<Pid>,
    /// The policy asked for these probes.
    pub(crate) probes: VecDeque<(usize, u32)>,
    /// And these looks: node, or whatever node; first unit, how many.
    pub(crate) looks: VecDeque<(Option<usize>, u32, u32)>,
    /// By program: pages that were looked at whatever their node, of the looks that are being answered.
    pub(crate) scanned: Vec<u64>,
    /// Clock hands over the nodes' pages.
    pub(crate) hands: [u32; NODES],
    /// The program whose hint fault is being handled.
    pub(crate) in_fault: Option<usize>,
    /// Its access is to fault again.
    fault_again: bool,
    /// Inaccessible pages and until when; for the exact engine.
    pub(crate) blocked: Vec<(u32, u64)>,
    pub(crate) cpu_share: CpuShare,
    /// Utilisation of the nodes by programs and, as an integral over the step, by copies.
    pub(crate) busy: [f64; NODES],
    /// What a line waits there, by socket and node, ns.
    pub(crate) waits: Vec<[f64; NODES]>,
    pub(crate) copying: CopyLoad,
}

/// Utilisation of the nodes by copies under way, and its integral over time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CopyLoad {
    active: [f64; NODES],
    sum: [f64; NODES],
    since: u64,
    start: u64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times of a step, far below 2^53 ns"
)]
impl CopyLoad {
    fn settle(&mut self, now: u64) {
        let span = now.saturating_sub(self.since) as f64;
        for node in 0..NODES {
            self.sum[node] += self.active[node] * span;
        }
        self.since = self.since.max(now);
    }

    /// More (or less) copying from now on.
    pub(crate) fn change(&mut self, now: u64, node: usize, by: f64) {
        self.settle(now);
        self.active[node] = (self.active[node] + by).max(0.0);
    }

    /// A copy of that length at once.
    pub(crate) fn lump(&mut self, node: usize, utilisation: f64, ns: f64) {
        self.sum[node] += utilisation * ns;
    }

    /// Mean utilisation since the last call.
    pub(crate) fn take(&mut self, now: u64) -> [f64; NODES] {
        self.settle(now);
        let span = now.saturating_sub(self.start).max(1) as f64;
        let mean = self.sum.map(|sum| sum / span);
        self.sum = [0.0; NODES];
        self.start = now;
        mean
    }
}

impl World {
    /// With no page allocated yet.
    pub(crate) fn new(
        setup: &Setup,
        hardware: Hardware,
        space: Space,
        memory: Memory,
        tiers: Tiers,
        movement: Movement,
    ) -> Self {
        let programs = setup.workload.programs.len();
        let sockets = if setup.spread { hardware.cpus.len() } else { 1 };
        let mut top = [false; NODES];
        for node in tiers.nodes() {
            top[usize::from(node.id.0)] = tiers.is_top(node.id);
        }
        let threads = setup.workload.programs.iter();
        Self {
            now: 0,
            costs: setup.costs.clone(),
            tiers,
            top,
            memory,
            movement,
            state: vec![bits::NODE; space.units() as usize],
            armed_at: Vec::new(),
            shadow_on: Vec::new(),
            shadows: vec![VecDeque::new(); programs],
            workers: Workers::new(programs, movement.commit_copies),
            copier: movement.threaded.map(Copier::new),
            protected: Some(ProtectedCopy::new(movement.ranges())),
            tracked: Tracked::default(),
            sampling: None,
            reader: None,
            scanners: vec![Scanner::OFF; programs],
            scope: None,
            debt: vec![0.0; programs],
            threads: threads.map(|p| f64::from(p.threads)).collect(),
            sockets: (0..programs).map(|program| program % sockets).collect(),
            totals: Totals {
                visits: vec![0.0; programs],
                accesses: vec![[NodeCount::default(); NODES]; programs],
                ..Totals::default()
            },
            notes: None,
            ends: VecDeque::new(),
            inventory: false,
            find_slow: Vec::new(),
            probes: VecDeque::new(),
            looks: VecDeque::new(),
            scanned: Vec::new(),
            hands: [0; NODES],
            in_fault: None,
            fault_again: false,
            blocked: Vec::new(),
            cpu_share: CpuShare::default(),
            busy: [0.0; NODES],
            waits: Vec::new(),
            copying: CopyLoad::default(),
            hardware,
            space,
        }
    }

    #[inline]
    pub(crate) fn node(&self, unit: u32) -> usize {
        usize::from(self.state[unit as usize] & bits::NODE)
    }

    #[inline]
    pub(crate) fn has(&self, unit: u32, bit: u16) -> bool {
        self.state[unit as usize] & bit != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, unit: u32, bit: u16) {
        self.state[unit as usize] |= bit;
    }

    #[inline]
    pub(crate) fn clear(&mut self, unit: u32, bit: u16) {
        self.state[unit as usize] &= !bit;
    }

    pub(crate) fn note(&mut self, note: Note) {
        if let Some(notes) = &mut self.notes {
            notes.push(note);
        }
    }

    /// Charges thread time to a program.
    pub(crate) fn charge(&mut self, program: usize, what: Charge, ns: f64) {
        self.debt[program] += ns;
        match what {
            Charge::Profiling => self.totals.profiling += ns,
            Charge::Migration => self.totals.migration += ns,
            Charge::Stall => self.totals.stall += ns,
        }
    }

    /// The program of a unit.
    #[inline]
    pub(crate) fn program(&self, unit: u32) -> usize {
        self.space.region(unit).program
    }

    /// The node whose processors a program runs on.
    pub(crate) fn cpu_node(&self, program: usize) -> Option<terrace_core::NodeId> {
        self.hardware.homes[self.sockets[program]].map(crate::hardware::node_id)
    }

    /// What reads take now, from the processors of each socket with programs.
    pub(crate) fn reads(&self) -> Vec<Event> {
        let sockets: BTreeSet<usize> = self.sockets.iter().copied().collect();
        let of = |socket: usize| {
            let from = self.hardware.homes[socket].map(crate::hardware::node_id)?;
            let reads = self.hardware.loaded(socket, self.waits.get(socket)?);
            Some(reads.map(move |(node, read)| Event::Latency { from, node, read }))
        };
        sockets.into_iter().filter_map(of).flatten().collect()
    }

    /// Other processors that a shootdown of a program's page interrupts: all that run the program,
    /// but for the initiator's, whether that is a thread of the program or a worker.
    fn others(&self, program: usize, by: By) -> f64 {
        let cpus = f64::from(self.hardware.cpus[self.sockets[program]]);
        let running = self.threads[program].min(cpus);
        match by {
            By::Program => (running - 1.0).max(0.0),
            By::Worker => running.min(cpus - 1.0),
        }
    }

    /// What the initiator of a shootdown waits; nothing where no other processor has the page.
    pub(crate) fn shootdown_ns(&self, program: usize, by: By) -> f64 {
        let others = self.others(program, by);
        if others > 0.0 {
            self.costs.shootdown_base_ns + self.costs.shootdown_per_cpu_ns * others
        } else {
            0.0
        }
    }

    /// The interrupted processors' part of so many shootdowns.
    pub(crate) fn charge_shootdowns(&mut self, program: usize, by: By, what: Charge, count: f64) {
        let ns = self.costs.shootdown_per_cpu_ns * self.others(program, by);
        self.charge(program, what, ns * count);
    }

    /// Puts a page on another node, memory already taken and given.
    pub(crate) fn place(&mut self, unit: u32, to: usize) {
        let from = self.node(unit);
        let state = &mut self.state[unit as usize];
        *state = *state & !(bits::NODE | bits::ARMED) | u16::try_from(to).expect("below NODES");
        self.note(Note::Moved { unit, from, to });
    }

    /// Arms a page by itself.
    pub(crate) fn arm(&mut self, unit: u32) {
        if self.armed_at.is_empty() {
            self.armed_at = vec![0; self.state.len()];
        }
        self.set(unit, bits::ARMED);
        self.armed_at[unit as usize] = u32::try_from(self.now >> 14).unwrap_or(u32::MAX);
        self.note(Note::ArmedAlone { unit });
    }

    /// Remembers until when a page is inaccessible.
    pub(crate) fn note_blocked(&mut self, unit: u32, window: f64) {
        let now = self.now;
        self.blocked.retain(|(_, until)| *until > now);
        self.blocked.push((unit, now + round(window)));
    }

    /// Until when it is.
    pub(crate) fn blocked_until(&self, unit: u32) -> u64 {
        let of = self.blocked.iter().rev().find(|(u, _)| *u == unit);
        of.map_or(self.now, |(_, until)| *until)
    }

    /// A hint fault, at a time, and more of the same access where the policy asks for them.
    pub(crate) fn hint_fault(&mut self, engine: &mut Engine, unit: u32, write: bool, at: u64) {
        self.now = self.now.max(at);
        self.clear(unit, bits::ARMED);
        self.fault_once(engine, unit, write, at);
        while std::mem::take(&mut self.fault_again) {
            self.fault_once(engine, unit, write, at);
        }
    }

    /// Charges a hint fault, tells the engine, lets the policy act.
    fn fault_once(&mut self, engine: &mut Engine, unit: u32, write: bool, at: u64) {
        let program = self.program(unit);
        let watched = if self.movement.supervised {
            self.costs.watched_fault_ns
        } else {
            0.0
        };
        let fault = self.costs.hint_fault_ns + watched;
        self.charge(program, Charge::Profiling, fault);
        self.supervise(self.costs.supervisor_fault_ns);
        let armed = u64::from(self.armed_at[unit as usize]) << 14;
        let node = crate::hardware::node_id(self.node(unit));
        let event = if self.tracked.stands_in {
            let first = self.space.base_pages(unit).0;
            let page = space::base_page(program, first);
            Event::Sampled {
                page,
                node,
                write,
                accesses: 1,
            }
        } else {
            Event::HintFault {
                page: self.space.page(unit),
                node,
                write,
                idle: Some(Nanos(at.saturating_sub(armed))),
                cpu_node: self.cpu_node(program),
            }
        };
        engine.observe(Nanos(self.now), &event);
        if self.movement.synchronous || Nanos(self.now) >= engine.policy().next_deadline() {
            self.in_fault = Some(program);
            self.pump(engine);
            self.in_fault = None;
        }
    }

    /// Lets the policy act, and tells it what ended at once.
    pub(crate) fn pump(&mut self, engine: &mut Engine) {
        let mut rounds = 0;
        loop {
            engine.pump(Nanos(self.now), self);
            rounds += 1;
            if self.ends.is_empty() || rounds > 64 {
                return;
            }
            self.tell_ends(engine);
        }
    }

    /// Tells the engine of orders that have ended.
    pub(crate) fn tell_ends(&mut self, engine: &mut Engine) {
        while let Some(end) = self.ends.pop_front() {
            let now = Nanos(self.now.max(end.at));
            if let Some(ns) = end.busy {
                let pages = u32::try_from(end.page.size.base_pages()).unwrap_or(u32::MAX);
                let (size, busy) = (end.page.size, Nanos(round(ns)));
                engine.observe(now, &Event::Moved { pages, size, busy });
            }
            let from = end.from.map(crate::hardware::node_id);
            let event = Event::Ended {
                page: end.page,
                migration: end.migration,
                from,
                verdict: end.verdict,
                mechanism: end.mechanism,
                took: Nanos(end.took),
                inaccessible: Nanos(round(end.inaccessible.unwrap_or(0.0))),
            };
            engine.observe(now, &event);
        }
    }

    /// A write ran into a protected page.
    pub(crate) fn write_protect_fault(&mut self, program: usize) {
        self.protected_write(program, self.costs.write_protect_fault_ns);
    }

    fn protected_write(&mut self, program: usize, ns: f64) {
        self.totals.write_protect_faults += 1;
        self.charge(program, Charge::Migration, ns);
    }

    /// The program wrote to a page with a shadow.
    pub(crate) fn shadow_written(&mut self, engine: &mut Engine, unit: u32, at: u64) {
        self.now = self.now.max(at);
        let program = self.program(unit);
        self.protected_write(program, self.costs.shadow_write_ns);
        self.drop_shadow(unit);
        let page = self.space.page(unit);
        engine.observe(Nanos(self.now), &Event::ShadowLost { page });
    }

    /// Gives a shadow's memory back. Does nothing where there is none.
    pub(crate) fn drop_shadow(&mut self, unit: u32) {
        if self.has(unit, bits::SHADOW) {
            self.clear(unit, bits::SHADOW);
            let node = usize::from(self.shadow_on[unit as usize]);
            let bytes = self.space.bytes(unit);
            self.memory.nodes[node].shadows -= bytes;
            self.memory.give(node, bytes);
        }
    }

    /// Keeps a promoted page's old frame.
    pub(crate) fn keep_shadow(&mut self, unit: u32, on: usize) {
        if self.shadow_on.is_empty() {
            self.shadow_on = vec![0; self.state.len()];
        }
        self.set(unit, bits::SHADOW);
        self.shadow_on[unit as usize] = u8::try_from(on).expect("below NODES");
        self.memory.nodes[on].shadows += self.space.bytes(unit);
        let program = self.program(unit);
        self.shadows[program].push_back(unit);
        let all = self.shadow_bytes();
        self.totals.shadow_max = self.totals.shadow_max.max(all);
        self.note(Note::Shadowed { unit });
    }

    pub(crate) fn shadow_bytes(&self) -> u64 {
        self.memory.nodes.iter().map(|node| node.shadows).sum()
    }

    /// Drops the oldest shadows of a program until `bytes` are given back; gives how many.
    fn reclaim(&mut self, program: usize, bytes: u64) -> u64 {
        let (mut left, mut count) = (bytes, 0);
        while left > 0
            && let Some(unit) = self.shadows[program].pop_front()
        {
            // What a transaction is working on is left alone.
            if self.has(unit, bits::SHADOW) && !self.has(unit, bits::ORDERED) {
                left = left.saturating_sub(self.space.bytes(unit));
                count += 1;
                self.drop_shadow(unit);
            }
        }
        count
    }

    /// Answers what the policy asked for: inventories and probes.
    pub(crate) fn answer(&mut self, engine: &mut Engine, clock: &mut dyn Clock) {
        if std::mem::take(&mut self.inventory) {
            self.tell_resident(engine, None);
        }
        for pid in std::mem::take(&mut self.find_slow) {
            self.tell_resident(engine, Some(pid));
        }
        let mut probed = false;
        while let Some((node, pages)) = self.probes.pop_front() {
            self.probe_node(engine, clock, node, pages);
            probed = true;
        }
        if probed {
            self.pump(engine);
        }
        while let Some((node, first, count)) = self.looks.pop_front() {
            match node {
                Some(node) => self.look_at(engine, clock, node, first, count),
                None => self.scan_pages(engine, clock, first, count),
            }
            if self.looks.is_empty() {
                self.tell_scanned(engine);
                self.pump(engine);
            }
        }
    }

    /// A reader of page tables looks at neighbours, wherever they are.
    fn scan_pages(&mut self, engine: &mut Engine, clock: &mut dyn Clock, first: u32, count: u32) {
        let end = first.saturating_add(count).min(self.space.units());
        let program = self.program(first);
        for unit in first..end {
            let node = self.node(unit);
            if node < NODES {
                self.probe_unit(engine, clock, node, unit);
            }
        }
        self.scanned.resize(self.space.programs(), 0);
        self.scanned[program] += u64::from(end - first);
    }

    /// What all that it was asked for together took.
    #[expect(clippy::cast_precision_loss, reason = "pages of a scan")]
    fn tell_scanned(&mut self, engine: &mut Engine) {
        for (program, pages) in std::mem::take(&mut self.scanned).into_iter().enumerate() {
            if pages > 0 {
                let ns = pages as f64 * self.costs.pte_scan_ns;
                self.totals.scans += ns;
                self.supervise(ns);
                let over = Event::Watched {
                    pid: space::pid(program),
                    parts: 1,
                    pages,
                    busy: Nanos(round(ns)),
                    lost: Nanos::ZERO,
                };
                engine.observe(Nanos(self.now), &over);
            }
        }
    }

    /// Looks at neighbours: one through its mapping, several along the page table.
    fn look_at(
        &mut self,
        engine: &mut Engine,
        clock: &mut dyn Clock,
        node: usize,
        first: u32,
        count: u32,
    ) {
        let end = first.saturating_add(count).min(self.space.units());
        for unit in first..end {
            self.probe_unit(engine, clock, node, unit);
        }
        self.totals.workers += if count == 1 {
            self.costs.probe_ns
        } else {
            f64::from(count) * self.costs.pte_scan_ns
        };
    }

    /// Reads and clears one page's accessed bit and tells it. Not where the page is elsewhere or about to
    /// move.
    fn probe_unit(
        &mut self,
        engine: &mut Engine,
        clock: &mut dyn Clock,
        node: usize,
        unit: u32,
    ) -> bool {
        if self.node(unit) != node || self.has(unit, bits::ORDERED) {
            return false;
        }
        let accessed = clock.test_and_clear(self, unit);
        let event = Event::Probed {
            page: self.space.page(unit),
            node: crate::hardware::node_id(node),
            accessed,
        };
        engine.observe(Nanos(self.now), &event);
        true
    }

    /// The clock hand of a node goes over its next pages.
    fn probe_node(&mut self, engine: &mut Engine, clock: &mut dyn Clock, node: usize, pages: u32) {
        let units = self.space.units();
        let mut left = pages;
        for _ in 0..units {
            if left == 0 {
                break;
            }
            let unit = self.hands[node];
            self.hands[node] = if unit + 1 >= units { 0 } else { unit + 1 };
            left -= u32::from(self.probe_unit(engine, clock, node, unit));
        }
        // Who looks is not the program but the kernel's own thread.
        self.totals.workers += f64::from(pages - left) * self.costs.probe_ns;
    }

    /// Tells what is on the fast nodes, or what of a process is not.
    fn tell_resident(&mut self, engine: &mut Engine, slow_of: Option<Pid>) {
        for unit in 0..self.space.units() {
            let (node, page) = (self.node(unit), self.space.page(unit));
            if node < NODES
                && self.top[node] == slow_of.is_none()
                && slow_of.is_none_or(|pid| page.pid == pid)
            {
                let node = crate::hardware::node_id(node);
                engine.observe(Nanos(self.now), &Event::Resident { page, node });
            }
        }
    }
}

/// To whole ns.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times here are not negative, and saturate"
)]
pub(crate) fn round(ns: f64) -> u64 {
    ns.max(0.0).round() as u64
}

impl terrace_policy::Machine for World {
    fn migrate(
        &mut self,
        now: Nanos,
        page: PageRef,
        migration: Migration,
        mechanism: Option<Mechanism>,
        _reason: Reason,
    ) -> Served {
        self.supervise(self.costs.supervisor_move_ns);
        let several = self.space.within(page).len() > 1;
        if self.copier.is_some() && !several {
            self.order_threaded(now.0, page, migration, mechanism)
        } else if self.movement.protected.is_some() || several {
            self.order_protected(now.0, page, migration, mechanism)
        } else {
            self.order(now.0, page, migration, mechanism)
        }
    }

    fn reclaim_shadows(&mut self, _now: Nanos, bytes: u64, _reason: Reason) -> Served {
        if !self.movement.transactions {
            return Err(Refusal::Unserved);
        }
        let programs = self.shadows.len() as u64;
        let share = bytes.div_ceil(programs.max(1));
        for program in 0..self.shadows.len() {
            self.reclaim(program, share);
        }
        Ok(())
    }

    fn scan(&mut self, now: Nanos, scope: ScanScope, period: Nanos) -> Served {
        if !self.tracked.faults {
            return Err(Refusal::Unserved);
        }
        self.start_scan(now.0, scope, period.0);
        Ok(())
    }

    fn read_accessed(&mut self, _now: Nanos, shortest: Nanos, pass: Nanos, parts: u32) -> Served {
        if !self.tracked.bits {
            return Err(Refusal::Unserved);
        }
        self.start_reading((shortest.0, pass.0), parts);
        Ok(())
    }

    fn fault_again(&mut self, _now: Nanos, _page: PageRef) -> Served {
        if self.in_fault.is_none() {
            return Err(Refusal::Unserved);
        }
        self.fault_again = true;
        Ok(())
    }

    fn inventory(&mut self, _now: Nanos) -> Served {
        self.inventory = true;
        Ok(())
    }

    fn find_slow(&mut self, _now: Nanos, pid: Pid) -> Served {
        self.find_slow.push(pid);
        Ok(())
    }

    fn probe_next(&mut self, _now: Nanos, node: NodeId, pages: u32) -> Served {
        let node = node_of(self, node).ok_or(Refusal::Unknown)?;
        self.probes.push_back((node, pages));
        Ok(())
    }

    fn probe_range(
        &mut self,
        _now: Nanos,
        node: Option<NodeId>,
        page: PageRef,
        pages: u32,
    ) -> Served {
        let of = |node| node_of(self, node).ok_or(Refusal::Unknown);
        let node = node.map(of).transpose()?;
        let unit = self.space.find(page).ok_or(Refusal::Unknown)?;
        self.looks.push_back((node, unit, pages));
        Ok(())
    }

    fn sample(&mut self, _now: Nanos, on: bool) -> Served {
        let sampling = self.sampling.as_mut().ok_or(Refusal::Unserved)?;
        sampling.off = !on;
        Ok(())
    }
}

/// A node of an order, if the machine has it.
pub(crate) fn node_of(world: &World, node: NodeId) -> Option<usize> {
    let node = usize::from(node.0);
    (node < world.hardware.nodes).then_some(node)
}

/// The page a policy means, whatever size it takes it for.
pub(crate) fn unit_of(world: &World, page: PageRef) -> Option<u32> {
    let unit = world.space.find(page)?;
    let _ = space::program_of(page.pid)?;
    Some(unit)
}
