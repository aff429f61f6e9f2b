// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses at random that make a cache, streams and queues work: in phases, each of which has its mixture of
//! streams up and down, of lines that are used again and of lines anywhere, in a hurry or at leisure.

use terrace_machine_spec::Machine;
use terrace_machine_spec::machine::Lab;

use crate::cache::Writer;

const FOUR_GIB: u64 = 4 << 30;
const PAGE: u64 = 4096;
/// The kernel's view of physical memory, as the plugin expects it.
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
/// Two mappings of the same memory.
const MAPPINGS: [u64; 2] = [0x5500_0000_0000, 0x7f00_1234_5000];
const PHASE: usize = 500;
/// After the harness has begun.
const BEGIN: u64 = 2 << 40;

/// Whose code it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Program,
    Tiering,
    Copy,
    Clear,
}

/// One access; the harness reads them as lines of these fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) code: Code,
    /// Not before this tick.
    pub(crate) at: u64,
    pub(crate) cpu: usize,
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) store: bool,
}

impl Code {
    pub(crate) const fn writer(self) -> Writer {
        match self {
            Self::Program => Writer::Program,
            Self::Tiering | Self::Copy => Writer::Copy,
            Self::Clear => Writer::Clear,
        }
    }

    /// Bytes that the kernel's instruction moves at once.
    pub(crate) const fn bulk_bytes(self) -> Option<u64> {
        match self {
            Self::Program | Self::Tiering => None,
            Self::Copy | Self::Clear => Some(8),
        }
    }
}

impl Access {
    pub(crate) fn line(&self) -> String {
        let Self { at, cpu, .. } = self;
        let (code, store) = (self.code as u8, u8::from(self.store));
        let (address, physical) = (self.address, self.physical);
        format!("{code} {at} {cpu} {address:x} {physical:x} {store}\n")
    }
}

/// A generator of numbers (xorshift64*).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `end`.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    pub(crate) fn choose<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    }
}

/// Out of 100 accesses.
#[derive(Debug, Clone, Copy)]
struct Phase {
    streams: u64,
    /// Of the others: of a line that was used just before, and of a page that was used before.
    again: u64,
    reuse: u64,
    stores: u64,
    /// Most ticks from one access to the next.
    pause: u64,
}

#[derive(Debug)]
struct Maker<'a> {
    dice: Dice,
    lab: &'a Lab,
    /// Of guest memory.
    bytes: u64,
    cpus: usize,
    /// Bytes into guest memory: pages that are used again, and the heads of streams with their direction.
    working: Vec<u64>,
    heads: Vec<(u64, bool)>,
    /// The last few, and whose they were.
    recent: Vec<(usize, u64)>,
}

/// So many accesses for that machine.
pub(crate) fn trace(machine: &Machine, lab: &Lab, seed: u64, accesses: usize) -> Vec<Access> {
    let ends = machine.nodes.iter().scan(0, |end, node| {
        *end += node.lab_bytes.unwrap();
        Some(*end)
    });
    let mut maker = Maker {
        dice: Dice::new(seed),
        lab,
        bytes: ends.last().unwrap(),
        cpus: usize::try_from(lab.cpus).unwrap() * machine.sockets.len(),
        working: Vec::new(),
        heads: Vec::new(),
        recent: vec![(0, PAGE); 4],
    };
    // Half as much again as the cache holds.
    for _ in 0..(lab.llc.bytes * 3 / 2 / PAGE).max(2) {
        let page = maker.anywhere() / PAGE * PAGE;
        maker.working.push(page);
    }
    let mut all = Vec::with_capacity(accesses);
    let mut at = BEGIN;
    while all.len() < accesses {
        let phase = maker.phase();
        for _ in 0..PHASE {
            at += maker.dice.below(phase.pause);
            all.push(maker.access(phase, at));
        }
    }
    all
}

impl Maker<'_> {
    /// Not the first page, which is no program's.
    fn anywhere(&mut self) -> u64 {
        PAGE + self.dice.below(self.bytes - PAGE)
    }

    fn phase(&mut self) -> Phase {
        // More than a processor can follow, now and then.
        let streams = self.dice.choose(&[2, 8, 24, 60]);
        self.heads.clear();
        for _ in 0..streams {
            let head = (self.anywhere(), self.dice.below(2) == 0);
            self.heads.push(head);
        }
        Phase {
            streams: self.dice.choose(&[0, 10, 50, 90, 100]),
            again: self.dice.choose(&[0, 30]),
            reuse: self.dice.choose(&[5, 40, 80]),
            stores: self.dice.choose(&[0, 20, 50, 90]),
            pause: self.dice.choose(&[2, 100, 1_000, 20_000]),
        }
    }

    fn access(&mut self, phase: Phase, at: u64) -> Access {
        let (cpu, offset) = self.place(phase);
        self.recent.rotate_right(1);
        self.recent[0] = (cpu, offset);
        let physical = if offset < self.lab.below_4g {
            offset
        } else {
            offset - self.lab.below_4g + FOUR_GIB
        };
        let code = match self.dice.below(20) {
            0 => Code::Tiering,
            1 | 2 => Code::Copy,
            3 => Code::Clear,
            _ => Code::Program,
        };
        let kernel = code.bulk_bytes().is_some();
        // The kernel copies from and to programs' addresses, too; a program may have mapped a device.
        let direct = kernel && self.dice.below(2) == 0;
        let device = !kernel && self.dice.below(100) == 0;
        Access {
            code,
            at,
            cpu,
            address: if direct {
                DIRECT_MAP + physical
            } else {
                self.dice.choose(&MAPPINGS) + offset
            },
            physical: match self.dice.below(2) {
                _ if !device => physical,
                0 => self.lab.below_4g + offset % (FOUR_GIB - self.lab.below_4g),
                _ => FOUR_GIB + self.bytes + offset,
            },
            store: self.dice.below(100) < phase.stores,
        }
    }

    /// The processor of the next access, and where it goes, bytes into guest memory.
    fn place(&mut self, phase: Phase) -> (usize, u64) {
        if self.dice.below(100) < phase.streams {
            return self.stream();
        }
        if self.dice.below(100) < phase.again {
            return self.dice.choose(&self.recent);
        }
        let cpu = self.dice.below(self.cpus as u64);
        let offset = if self.dice.below(100) < phase.reuse {
            self.dice.choose(&self.working) + self.dice.below(PAGE)
        } else {
            self.anywhere()
        };
        (usize::try_from(cpu).unwrap(), offset)
    }

    /// The next line of a stream, each of which is one processor's.
    fn stream(&mut self) -> (usize, u64) {
        let line = u64::from(self.lab.llc.line);
        let which = self.dice.below(self.heads.len() as u64);
        let which = usize::try_from(which).unwrap();
        let (head, up) = &mut self.heads[which];
        let next = if *up { *head + line } else { *head - line };
        if next < PAGE || next >= self.bytes {
            *up = !*up;
        } else {
            *head = next;
        }
        (which % self.cpus, *head)
    }
}
