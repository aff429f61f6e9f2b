// SPDX-License-Identifier: MIT OR Apache-2.0
//! A reading taken in: who was seen has a new level at once, who was not when the pass ends.

use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::PageBits;

use super::Adaptive;
use super::estimate::Seen;
use super::lag;
use super::places::PLACES;
use super::process::Process;
use super::steps::Step;
use super::transitions::Known;
use crate::kit::pages::Key;

impl Adaptive {
    /// Takes the pages' new levels in; gives those that were seen now and could be faster.
    pub(super) fn learn(&mut self, key: Key, reading: &ChunkReading<'_>) -> PageBits {
        self.meet(key.0);
        let is_counted = reading.parts == 1 && lag::sampled(key.1, self.chunks.len());
        let Some(process) = self.processes.get_mut(&key.0) else {
            return PageBits::NONE;
        };
        process.transitions.reads(reading.parts);
        let [ours, (since, until)] = times(process, reading, self.params.own_time);
        let [seen, unseen] = Seen::both(since, until);
        let present = reading.present.and(&whole(reading.huge));
        let spread = self.places.told(reading.nodes, &present);
        let told = (reading.huge, process.pass);
        let (chunk, census) = self.chunks.place(key, told, (present, spread));
        let mut at = [PageBits::NONE; PLACES];
        let places = self.places.len();
        for (place, at) in at[..places].iter_mut().enumerate() {
            *at = chunk.spread.of(place, &present);
        }
        let age = process.pass.wrapping_sub(chunk.since);
        let known = Known::after(age);
        let settles = is_counted && !process.transitions.is_trained();
        let fresh = reading.fresh.and(&present);
        let base_pages = chunk.size().base_pages();
        let missed = if reading.last {
            present.without(&reading.accessed)
        } else {
            PageBits::NONE
        };
        let sight = *process.sight_of(chunk);
        let strays = [&fresh, &missed];
        process.away.observed(chunk, &sight.reads, strays, ours);
        let mut observe = |pages: PageBits, step: &Step, one: Seen| {
            if let Some(then) = &chunk.then {
                for page in pages.pages() {
                    process.lag.count(then, page, one);
                }
            }
            process.accesses.response.count(pages.count(), one);
            for (place, at) in at[..places].iter().enumerate() {
                let pages = pages.and(at);
                if pages.is_empty() {
                    continue;
                }
                self.tally.step(&mut chunk.levels, &pages, step);
                self.tally.drain(|from, pages| {
                    let to = step[usize::from(from)];
                    if settles {
                        process.settling.count(pages, (from, age), one);
                    }
                    if from == 0 {
                        process.transitions.count_first(pages, to, one);
                    }
                    process.transitions.count(pages, [from, to], known, one);
                    let there = (reading.huge, place);
                    census.step(there, u64::from(pages) * base_pages, [from, to]);
                });
            }
        };
        observe(fresh, self.steps.of(seen, age), seen);
        if reading.last {
            observe(missed, self.steps.of(unseen, age), unseen);
        }
        if reading.since == Nanos::ZERO && !reading.last && reading.parts == 1 {
            process.first += u64::from(fresh.count()) * base_pages;
        }
        let fastest = (0..places).filter(|place| sight.is_fastest(*place));
        fastest.fold(fresh, |pages, place| pages.without(&at[place]))
    }
}

/// Since and until of a reading, s: ours, and the process's own.
fn times(process: &mut Process, reading: &ChunkReading<'_>, own_time: bool) -> [(f64, f64); 2] {
    let seconds = |(since, until): (Nanos, Nanos)| (since.as_secs_f64(), until.as_secs_f64());
    let ours = seconds((reading.since.min(reading.until), reading.until));
    let ran = reading.ran.filter(|_| own_time).map(seconds);
    let own = process.clock.own(ours, ran);
    if reading.last {
        process.pass_s = ours.1.max(1e-3);
        process.clock.last(ours.1, ran.map(|ran| ran.1));
    } else if own.1 > process.rung.1 {
        process.rung = own;
    }
    [ours, own]
}

const fn whole(huge: bool) -> PageBits {
    if huge {
        PageBits::one(0)
    } else {
        PageBits::ALL
    }
}
