// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reading taken in: who was seen has a new level at once, who was not when the pass ends.
//!
//! ```text
//! exposure = (since + until) / 2 of a page seen between them; the whole pass of one that was not
//! ```

use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::PageBits;

use super::Adaptive;
use super::chunks::Key;
use super::classes::SETTLING;
use super::classes::Seen;
use super::classes::Step;

impl Adaptive {
    /// Takes the pages' new levels in; gives those that were seen now and are not in fast memory.
    pub(super) fn learn(&mut self, key: Key, reading: &ChunkReading<'_>) -> PageBits {
        let (since, until) = (reading.since.as_secs_f64(), reading.until.as_secs_f64());
        self.meet(key.0);
        let Some(process) = self.processes.get_mut(&key.0) else {
            return PageBits::NONE;
        };
        if reading.last {
            process.pass_s = until.max(1e-3);
        }
        let pass = process.pass_s;
        let seen = Seen {
            seen: true,
            exposure: f64::midpoint(since.min(until), until).max(1e-6),
        };
        let unseen = Seen {
            seen: false,
            exposure: until.max(1e-6),
        };
        let chunk = self.chunks.get_or_new(key, reading.huge, process.pass);
        chunk.remap(reading.huge, process.pass);
        let settled = process.pass.wrapping_sub(chunk.since) >= SETTLING;
        let whole = whole(reading.huge);
        chunk.present = reading.present.and(&whole);
        let on_fast = reading.nodes.iter().filter(|(n, _)| self.tiers.is_top(*n));
        chunk.fast = on_fast
            .fold(PageBits::NONE, |all, (_, pages)| all.or(pages))
            .and(&chunk.present);
        chunk.heard = process.pass;
        process.complete |= reading.last;
        let fresh = reading.fresh.and(&chunk.present);
        let mut observe = |pages: PageBits, step: &Step, one: Seen| {
            for page in pages.pages() {
                let from = chunk.levels[page];
                let to = step[usize::from(from)];
                chunk.levels[page] = to;
                process.transitions.count(from, settled.then_some(to), one);
            }
        };
        observe(fresh, self.steps.of(seen, pass), seen);
        if reading.last {
            let missed = chunk.present.without(&reading.accessed);
            observe(missed, self.steps.of(unseen, pass), unseen);
        }
        if reading.since == Nanos::ZERO && !reading.last {
            process.first += u64::from(fresh.count()) * chunk.size().base_pages();
        }
        fresh.without(&chunk.fast)
    }
}

const fn whole(huge: bool) -> PageBits {
    if huge {
        let mut one = PageBits::NONE;
        one.set(0);
        one
    } else {
        PageBits::ALL
    }
}
