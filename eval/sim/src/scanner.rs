// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's hint-fault scanner (`task_numa_work` in `kernel/sched/fair.c`), one for each program.
//!
//! A pass goes over the program's memory in chunks: `scan_bytes` of marked pages, or eight times that
//! of looked-at ones, whichever is first. From chunk to chunk it waits `period / number of chunks`,
//! at least [`crate::Costs::scan_floor_ns`]; so a pass over much memory takes longer than asked. Work
//! and shootdown are charged to the program. A page that is marked still keeps its first time.
//!
//! [`Pace`] says what of the kernel's own ways is played: that a chunk's work delays the next by 32 times as
//! much (of a thread's time, and the next may be another's); that a new period counts from now; and, since 6.7, that from the third pass on each of a program's
//! other writable mappings takes an interval of its own, in which nothing of its memory is marked (who
//! does not fault there does not have it scanned, but at last the kernel scans them anyway, one at a
//! time: `vma_pids_forced`).

use std::ops::Range;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::ScanScope;
use terrace_policy::ScanSizing;

use crate::world::By;
use crate::world::Charge;
use crate::world::Note;
use crate::world::World;
use crate::world::bits;
use crate::world::round;

/// Units that are armed in one go; the rate engine keeps something for each such block.
pub(crate) const BLOCK: u32 = 512;

/// Mappings behind a program's memory that each take an interval: those of a dynamically linked
/// program (data of six libraries and of the loader, the allocator's, the stack), less two that share
/// one with its memory.
const OTHER_MAPPINGS: u64 = 8;
/// Bytes that a page table of base pages maps.
const TABLE: u64 = 2 << 20;
/// From this pass on the kernel asks who faults where (`vma_is_accessed`).
const ASKS_FROM: u32 = 2;
/// A thread is to run so many times as long as it scans.
const RUN_SHARE: f64 = 32.0;

/// How a scanner goes about its passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A kernel's own before 6.7: a chunk's work delays the next.
    Pauses,
    /// A kernel's own since: other mappings take their intervals, too, and the first chunk comes
    /// late (a thread's first look only notes when the next may be).
    PausesForAll,
    /// The same in Terrace's service.
    InService(ScanSizing),
}

impl Pace {
    /// Intervals for other mappings.
    const fn others(self) -> u64 {
        match self {
            Self::Pauses => 0,
            Self::PausesForAll | Self::InService(_) => OTHER_MAPPINGS,
        }
    }
}

/// Where a program's pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanner {
    /// Next unit, counted from the program's first.
    cursor: u32,
    interval: u64,
    /// Bytes that a chunk marks at most.
    chunk: u64,
    pub(crate) next: u64,
    /// How long a whole pass takes, ns.
    pub(crate) pass: u64,
    /// Passes that have ended.
    passes: u32,
}

impl Scanner {
    pub(crate) const OFF: Self = Self {
        cursor: 0,
        interval: 0,
        chunk: 0,
        next: u64::MAX,
        pass: u64::MAX,
        passes: 0,
    };
}

impl World {
    /// Starts or changes the scan of all programs.
    pub(crate) fn start_scan(&mut self, now: u64, scope: ScanScope, period: u64) {
        self.make_armed();
        self.scope = Some(scope);
        if period == u64::MAX {
            self.scanners.iter_mut().for_each(|one| one.next = u64::MAX);
            return;
        }
        for program in 0..self.scanners.len() {
            let bytes = self.space.program_bytes(program);
            let (chunk, interval) = match &mut self.movement.pace {
                // The kernel marks whole tables.
                Pace::InService(sizing) => (
                    sizing.size(bytes, Nanos(period)).next_multiple_of(TABLE),
                    sizing.delay().0,
                ),
                _ => {
                    let chunks = bytes.div_ceil(self.costs.scan_bytes).max(1);
                    let floor = round(self.costs.scan_floor_ns);
                    (self.costs.scan_bytes, (period / chunks).max(floor))
                }
            };
            let pace = self.movement.pace;
            let scanner = &mut self.scanners[program];
            let next = match (scanner.next, pace) {
                (u64::MAX, Pace::PausesForAll) => now + 2 * interval,
                (u64::MAX, _) => now + interval / 4,
                (_, Pace::Pauses | Pace::PausesForAll) => now + interval,
                (next, _) => next.min(now + interval),
            };
            scanner.interval = interval;
            scanner.chunk = chunk;
            scanner.next = next.max(now + 1);
            scanner.pass = interval * bytes.div_ceil(chunk).max(1);
        }
    }

    /// When the next chunk is due.
    pub(crate) fn scan_next(&self) -> u64 {
        self.scanners
            .iter()
            .map(|s| s.next)
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Marks the chunks that are due, and tells the policy.
    pub(crate) fn scan_step(&mut self, engine: &mut Engine) {
        for program in 0..self.scanners.len() {
            if self.scanners[program].next <= self.now {
                let units = self.scan_chunk(program);
                if let (Some(scope), false) = (self.scope, units.is_empty()) {
                    let (first, last) =
                        (self.space.page(units.start), self.space.page(units.end - 1));
                    let event = Event::Armed {
                        pid: first.pid,
                        range: terrace_core::Range {
                            start: first.addr,
                            end: Addr(last.addr.0 + last.size.bytes()),
                        },
                        scope,
                    };
                    engine.observe(Nanos(self.now), &event);
                }
            }
        }
    }

    /// Arms a page that was chosen, beside the program; one that is armed stays so. Who does it looks for the page's entry, and others'
    /// translations of it are flushed.
    pub(crate) fn arm_chosen(&mut self, unit: u32) {
        if self.has(unit, bits::ARMED) || self.node(unit) >= self.hardware.nodes {
            return;
        }
        let program = self.program(unit);
        self.arm(unit);
        self.supervise(self.costs.pte_scan_ns + self.shootdown_ns(program, By::Worker));
        self.charge_shootdowns(program, By::Worker, Charge::Profiling, 1.0);
    }

    /// Gives the units it has looked at.
    fn scan_chunk(&mut self, program: usize) -> Range<u32> {
        let units = self.space.program_units(program);
        let count = units.end - units.start;
        let all = self.scope == Some(ScanScope::All);
        let mut cursor = self.scanners[program].cursor;
        let start = units.start + cursor;
        let (mut marked, mut looked) = (0_u64, 0_u64);
        let limit = self.scanners[program].chunk;
        let look_limit = limit * 8;
        let stamp = u32::try_from(self.now >> 14).unwrap_or(u32::MAX);
        let mut entries = 0_u64;
        while cursor < count && marked < limit && looked < look_limit {
            let first = units.start + cursor;
            let size = self.space.bytes(first);
            // Large pages are few: do not overshoot the chunk by a whole block of them.
            let block = (BLOCK - cursor % BLOCK)
                .min(count - cursor)
                .min(u32::try_from((limit / size).max(1)).unwrap_or(BLOCK));
            let mut updated = false;
            for unit in first..first + block {
                let state = self.state[unit as usize];
                let node = usize::from(state & bits::NODE);
                if node < self.hardware.nodes && (all || !self.top[node]) {
                    let fresh = state & bits::ARMED == 0;
                    if fresh {
                        self.state[unit as usize] |= bits::ARMED;
                        self.armed_at[unit as usize] = stamp;
                        updated = true;
                    }
                    self.note(Note::Armed { unit, fresh });
                }
            }
            let bytes = u64::from(block) * size;
            looked += bytes;
            if updated {
                marked += bytes;
            }
            entries += u64::from(block);
            cursor += block;
        }
        #[expect(clippy::cast_precision_loss, reason = "entries of a chunk")]
        let entries = entries as f64;
        self.charge(program, Charge::Profiling, entries * self.costs.pte_scan_ns);
        if marked > 0 {
            let wait = self.shootdown_ns(program, By::Program);
            self.charge(program, Charge::Profiling, wait);
            self.charge_shootdowns(program, By::Program, Charge::Profiling, 1.0);
        }
        let (now, pace, threads) = (self.now, self.movement.pace, self.threads[program].max(1.0));
        let scanner = &mut self.scanners[program];
        scanner.cursor = if cursor >= count { 0 } else { cursor };
        let pause = round(RUN_SHARE * entries * self.costs.scan_work_ns / threads);
        scanner.next = Nanos(now + scanner.interval + pause).0;
        if cursor >= count {
            if scanner.passes >= ASKS_FROM {
                scanner.next += pace.others() * scanner.interval;
            }
            scanner.passes += 1;
        }
        start..units.start + cursor
    }
}
