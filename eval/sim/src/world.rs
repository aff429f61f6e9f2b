// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated machine under the engine: page states, memory, shadows, what is charged to whom.
//!
//! [`World`] carries out the policy's actions as `LinuxMachine` does on Linux: orders are queued and
//! their ends come back as events. What the policy asks for is in `answers`, what programs run into in `faults` and
//! `shadows`, what is counted in `totals`. Movers are in [`crate::mover`], the hint-fault scanner in
//! [`crate::scanner`], the processors in [`crate::cpu_share`]. How programs run is not here: a [`Clock`] knows.

mod answers;
pub(crate) mod bits;
mod faults;
mod shadows;
mod spread;
mod totals;

use std::collections::BTreeSet;
use std::collections::VecDeque;

use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::ScanScope;
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
use crate::space::Space;
use crate::threaded_copy::Copier;
use crate::threaded_copy::ThreadedCopy;
use crate::world::spread::Spread;

pub(crate) use answers::node_of;
pub(crate) use answers::unit_of;
pub(crate) use totals::CopyLoad;
pub(crate) use totals::NodeCount;
pub(crate) use totals::Totals;

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
    /// By unit: its last captured idle time in 16 us, 0 without one. Empty until something is armed.
    pub(crate) idle: Vec<u32>,
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
    /// What comes to that bit by bit.
    spread: Spread,
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
            idle: Vec::new(),
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
            spread: Spread::default(),
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
        self.count(what, ns);
    }

    /// The same, of what its threads paid one by one in so long: evenly in as long from now on, as it is known only now. At once, the program
    /// would stand still, and its hottest pages look idle.
    pub(crate) fn charge_over(&mut self, program: usize, what: Charge, ns: f64, span: u64) {
        self.spread.add(program, ns, self.now + span);
        self.count(what, ns);
    }

    /// A step that long begins: what is to be paid in it.
    pub(crate) fn pay_spread(&mut self, step: u64) {
        self.spread.pay(self.now, step, &mut self.debt);
    }

    const fn count(&mut self, what: Charge, ns: f64) {
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

    /// The machine's next socket after this one.
    pub(crate) fn socket_after(&self, socket: usize) -> usize {
        (socket + 1) % self.hardware.cpus.len()
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

    /// Room for what is kept of armed pages.
    pub(crate) fn make_armed(&mut self) {
        if self.armed_at.is_empty() {
            self.armed_at = vec![0; self.state.len()];
            self.idle = vec![0; self.state.len()];
        }
    }

    /// Arms a page by itself.
    pub(crate) fn arm(&mut self, unit: u32) {
        self.make_armed();
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
