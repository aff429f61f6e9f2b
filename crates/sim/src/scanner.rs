// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's hint-fault scanner (`task_numa_work` in `kernel/sched/fair.c`), one for each program.
//!
//! A pass goes over the program's memory in chunks: `scan_bytes` of marked pages, or eight times that
//! of looked-at ones, whichever is first. From chunk to chunk it waits `period / number of chunks`,
//! at least [`crate::Costs::scan_floor_ns`]; so a pass over much memory takes longer than asked. Work
//! and shootdown are charged to the program. A page that is marked still keeps its first time.
//!
//! With [`crate::world::Movement::paused_scan`] also: a chunk's work delays the next by 32 times as
//! much; a new period counts from now; and, since 6.7, from the third pass on each of a program's
//! other writable mappings takes an interval of its own, in which nothing of its memory is marked (who
//! does not fault there does not have it scanned, but at last the kernel scans them anyway, one at a
//! time: `vma_pids_forced`).

use std::ops::Range;

use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::ScanScope;

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
pub(crate) const OTHER_MAPPINGS: u64 = 8;
/// From this pass on the kernel asks who faults where (`vma_is_accessed`).
const ASKS_FROM: u32 = 2;
/// A thread is to run so many times as long as it scans.
const RUN_SHARE: f64 = 32.0;

/// Where a program's pass is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scanner {
    /// Next unit, counted from the program's first.
    cursor: u32,
    interval: u64,
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
        next: u64::MAX,
        pass: u64::MAX,
        passes: 0,
    };
}

impl World {
    /// Starts or changes the scan of all programs.
    pub(crate) fn start_scan(&mut self, now: u64, scope: ScanScope, period: u64) {
        if self.armed_at.is_empty() {
            self.armed_at = vec![0; self.state.len()];
        }
        self.scope = Some(scope);
        for program in 0..self.scanners.len() {
            let bytes: u64 = self
                .space
                .program_regions(program)
                .iter()
                .map(|r| u64::from(r.count) * r.size.bytes())
                .sum();
            let chunks = bytes.div_ceil(self.costs.scan_bytes).max(1);
            let interval = (period / chunks).max(round(self.costs.scan_floor_ns));
            let scanner = &mut self.scanners[program];
            let next = match scanner.next {
                u64::MAX => now + interval / 4,
                _ if self.movement.paused_scan.is_some() => now + interval,
                next => next.min(now + interval),
            };
            scanner.interval = interval;
            scanner.next = next.max(now + 1);
            scanner.pass = interval * chunks;
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

    /// Gives the units it has looked at.
    fn scan_chunk(&mut self, program: usize) -> Range<u32> {
        let units = self.space.program_units(program);
        let count = units.end - units.start;
        let all = self.scope == Some(ScanScope::All);
        let mut cursor = self.scanners[program].cursor;
        let start = units.start + cursor;
        let (mut marked, mut looked) = (0_u64, 0_u64);
        let (limit, look_limit) = (self.costs.scan_bytes, self.costs.scan_bytes * 8);
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
        let work = entries as f64 * self.costs.pte_scan_ns;
        self.charge(program, Charge::Profiling, work);
        if marked > 0 {
            let wait = self.shootdown_ns(program, By::Program);
            self.charge(program, Charge::Profiling, wait);
            self.charge_shootdowns(program, By::Program, Charge::Profiling, 1.0);
        }
        let (now, paused) = (self.now, self.movement.paused_scan);
        let scanner = &mut self.scanners[program];
        scanner.cursor = if cursor >= count { 0 } else { cursor };
        scanner.next = Nanos(now + scanner.interval).0;
        if let Some(others) = paused {
            scanner.next += round(RUN_SHARE * work);
            if cursor >= count {
                if scanner.passes >= ASKS_FROM {
                    scanner.next += others * scanner.interval;
                }
                scanner.passes += 1;
            }
        }
        start..units.start + cursor
    }
}
