// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulated reader of accessed bits: a ladder of readings over all pages, pass after pass.
//!
//! A pass clears the bits of the pages whose turn it is ([`Turns`]) once and reads them after the shortest wait, twice that, and so on up to
//! the pass's length ([`ladder`]). The next pass begins with the last reading. What it tells is what
//! [`ChunkReading`] says. Whether a page was touched the clock knows: the exact engine has it from the
//! visits, the rate engine draws `1 - exp(-visits since the last look)` for pages not yet seen.
//!
//! The reader is a thread of the supervisor: a page costs [`crate::Costs::accessed_clear_ns`] a pass
//! and [`crate::Costs::accessed_read_ns`] a reading; each pass flushes every program's TLBs once. A program pays
//! [`crate::Costs::accessed_set_ns`] for each of its pages that it touches in a pass.
//! Pages of 1 GiB are not read: none of them moves.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageSize;
use terrace_core::Turns;
use terrace_core::ladder;
use terrace_core::shorten;
use terrace_policy::Engine;
use terrace_policy::Event;

use crate::hardware::NODES;
use crate::hardware::node_id;
use crate::space::BASE;
use crate::space::pid;
use crate::world::By;
use crate::world::Charge;
use crate::world::Clock;
use crate::world::World;
use crate::world::round;

const CHUNK: u32 = 512;

/// Where a pass has come to.
#[derive(Debug)]
pub(crate) struct Reader {
    /// The waits of the pass after this one.
    asked: (u64, u64),
    /// One in so many passes reads all.
    parts: u32,
    /// By program.
    turns: Vec<Turns>,
    /// What this pass reads.
    chunks: Vec<Chunk>,
    /// When the bits were cleared.
    cleared: u64,
    /// Readings of this pass, ns from the clearing.
    rungs: Vec<Nanos>,
    /// How many of them were done.
    done: usize,
    /// By unit: seen in this pass.
    seen: Vec<u64>,
    /// By program: how many of its pages were.
    set: Vec<u64>,
}

/// Pages of one size in 2 MiB of a program's addresses.
#[derive(Debug, Clone)]
struct Chunk {
    program: usize,
    units: std::ops::Range<u32>,
    /// Of the first, in base pages from the beginning.
    offset: u32,
    number: u32,
    huge: bool,
}

impl Chunk {
    fn start(&self) -> Addr {
        Addr(BASE + u64::from(self.number) * CHUNK_BYTES)
    }
}

impl Reader {
    fn pages(&self) -> u32 {
        let units = self.chunks.iter().map(|chunk| &chunk.units);
        units.map(|units| units.end - units.start).sum()
    }

    /// Times since the clearing: of the reading before, and of the one that is due.
    fn interval(&self) -> (Nanos, Nanos) {
        let before = self.done.checked_sub(1).map(|done| self.rungs[done]);
        (before.unwrap_or(Nanos::ZERO), self.rungs[self.done])
    }
}

/// What one reading of a chunk gathers.
#[derive(Debug, Default)]
struct Gathered {
    present: PageBits,
    accessed: PageBits,
    fresh: PageBits,
    on: [PageBits; NODES],
}

impl World {
    /// The policy asked for readings; a pass under way ends sooner where the new ones are shorter.
    pub(crate) fn start_reading(&mut self, (shortest, pass): (u64, u64), parts: u32) {
        match &mut self.reader {
            Some(reader) => {
                reader.asked = (shortest, pass);
                reader.parts = parts;
                let end = Nanos(pass.max(self.now - reader.cleared));
                shorten(&mut reader.rungs, reader.done, end);
            }
            None => {
                let reader = Reader {
                    asked: (shortest, pass),
                    parts,
                    turns: vec![Turns::default(); self.space.programs()],
                    chunks: Vec::new(),
                    cleared: self.now,
                    rungs: Vec::new(),
                    done: 0,
                    seen: vec![0; self.state.len().div_ceil(64)],
                    set: vec![0; self.space.programs()],
                };
                self.reader = Some(reader);
            }
        }
    }

    /// When the bits are cleared or read next.
    pub(crate) fn reading_next(&self) -> u64 {
        self.reader.as_ref().map_or(u64::MAX, |reader| {
            let rung = reader
                .rungs
                .get(reader.done)
                .copied()
                .unwrap_or(Nanos::ZERO);
            reader.cleared + rung.0
        })
    }

    /// Clears or reads; its time has come.
    pub(crate) fn reading_step(&mut self, engine: &mut Engine, clock: &mut dyn Clock) {
        let Some(mut reader) = self.reader.take() else {
            return;
        };
        if !reader.rungs.is_empty() {
            self.read(&mut reader, engine, clock);
            reader.done += 1;
        }
        if reader.done == reader.rungs.len() {
            self.tell_costs(&reader, engine);
            self.begin_pass(&mut reader, clock);
        }
        self.reader = Some(reader);
        self.pump(engine);
    }

    #[expect(clippy::cast_precision_loss, reason = "a count of pages")]
    fn set_again_ns(&self, pages: u64) -> f64 {
        pages as f64 * self.costs.accessed_set_ns
    }

    fn tell_costs(&mut self, reader: &Reader, engine: &mut Engine) {
        #[expect(clippy::cast_precision_loss, reason = "a dozen rungs")]
        let rungs = reader.rungs.len() as f64;
        let each = self.costs.accessed_clear_ns + rungs * self.costs.accessed_read_ns;
        for program in (0..self.space.programs()).filter(|_| rungs > 0.0) {
            let chunks = reader
                .chunks
                .iter()
                .filter(|chunk| chunk.program == program);
            let pages: u32 = chunks
                .map(|chunk| chunk.units.end - chunk.units.start)
                .sum();
            let busy = f64::from(pages) * each + self.shootdown_ns(program, By::Worker);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a time"
            )]
            let (busy, lost) = (
                Nanos(busy as u64),
                Nanos(self.set_again_ns(reader.set[program]) as u64),
            );
            let over = Event::Watched {
                pid: pid(program),
                parts: reader.turns[program].parts(),
                pages: u64::from(pages),
                busy,
                lost,
            };
            engine.observe(Nanos(self.now), &over);
        }
    }

    /// The 2 MiB of a program's addresses that units are in, by region: base pages of one region, or a huge page.
    fn chunks_of(&self, program: usize) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        for region in self.space.program_regions(program) {
            let (step, huge) = match region.size {
                PageSize::Base4K => (CHUNK, false),
                PageSize::Huge2M => (1, true),
                PageSize::Giant1G => continue,
            };
            let end = region.unit + region.count;
            let mut unit = region.unit;
            while unit < end {
                // Chunks begin at multiples of 2 MiB, regions of base pages need not.
                let base = self.space.base_pages(unit).0;
                let until = (unit + step - if huge { 0 } else { base % CHUNK }).min(end);
                chunks.push(Chunk {
                    program,
                    units: unit..until,
                    offset: base % CHUNK,
                    number: base / CHUNK,
                    huge,
                });
                unit = until;
            }
        }
        chunks
    }

    /// Begins a pass: the chunks whose turn it is are cleared.
    fn begin_pass(&mut self, reader: &mut Reader, clock: &mut dyn Clock) {
        reader.cleared = self.now;
        reader.rungs = ladder(Nanos(reader.asked.0), Nanos(reader.asked.1));
        reader.done = 0;
        reader.seen.fill(0);
        reader.set.fill(0);
        reader.chunks.clear();
        for (program, turns) in reader.turns.iter_mut().enumerate() {
            let mut chunks = self.chunks_of(program);
            turns.begin(reader.parts);
            chunks.retain(|chunk| turns.has(chunk.start()));
            reader.chunks.extend(chunks);
        }
        for unit in reader.chunks.iter().flat_map(|chunk| chunk.units.clone()) {
            clock.test_and_clear(self, unit);
        }
        self.supervise(f64::from(reader.pages()) * self.costs.accessed_clear_ns);
        for program in 0..self.space.programs() {
            self.supervise(self.shootdown_ns(program, By::Worker));
            self.charge_shootdowns(program, By::Worker, Charge::Profiling, 1.0);
        }
    }

    fn read(&mut self, reader: &mut Reader, engine: &mut Engine, clock: &mut dyn Clock) {
        let before = reader.set.clone();
        for chunk in std::mem::take(&mut reader.chunks) {
            self.read_chunk(reader, engine, clock, &chunk);
            reader.chunks.push(chunk);
        }
        let (since, until) = reader.interval();
        for (program, before) in before.into_iter().enumerate() {
            let set = self.set_again_ns(reader.set[program] - before);
            self.charge_over(program, Charge::Profiling, set, until.since(since).0);
        }
        self.supervise(f64::from(reader.pages()) * self.costs.accessed_read_ns);
    }

    fn read_chunk(
        &mut self,
        reader: &mut Reader,
        engine: &mut Engine,
        clock: &mut dyn Clock,
        chunk: &Chunk,
    ) {
        let program = chunk.program;
        let mut got = Gathered::default();
        for (index, unit) in chunk.units.clone().enumerate() {
            let page = index + chunk.offset as usize;
            let node = self.node(unit);
            if node >= NODES {
                continue;
            }
            got.present.set(page);
            got.on[node].set(page);
            let (word, bit) = (unit as usize / 64, 1 << (unit % 64));
            if reader.seen[word] & bit == 0 && clock.test_and_clear(self, unit) {
                reader.seen[word] |= bit;
                got.fresh.set(page);
            }
            if reader.seen[word] & bit != 0 {
                got.accessed.set(page);
            }
        }
        reader.set[program] += u64::from(got.fresh.count());
        let last = reader.done + 1 == reader.rungs.len();
        if got.present.is_empty() || got.fresh.is_empty() && !last {
            return;
        }
        let on = got.on.iter().enumerate();
        let nodes: Vec<(NodeId, PageBits)> = on
            .filter(|(_, pages)| !pages.is_empty())
            .map(|(node, pages)| (node_id(node), *pages))
            .collect();
        let (since, until) = reader.interval();
        // All threads run all the time.
        let threads = round(self.threads[program]);
        let ran = |time: Nanos| Nanos(time.0.saturating_mul(threads));
        let reading = ChunkReading {
            pid: pid(program),
            parts: reader.turns[program].parts(),
            start: chunk.start(),
            since,
            until,
            ran: Some((ran(since), ran(until))),
            last,
            huge: chunk.huge,
            present: got.present,
            accessed: got.accessed,
            fresh: got.fresh,
            nodes: &nodes,
        };
        engine.accessed(Nanos(self.now), &reading);
    }
}
