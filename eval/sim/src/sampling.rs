// SPDX-License-Identifier: MIT OR Apache-2.0
//! Samples of a performance-monitoring unit (HeMem 3.1): one in so many accesses that the last-level
//! cache did not serve, told to the policy with its address.
//!
//! Loads and stores are sampled at the same period. A sample costs the program
//! [`crate::Costs::pmu_sample_ns`]. Who reads the buffer keeps up with
//! [`crate::Costs::pmu_rate_max`] samples a second; what comes faster fills the buffer and is then
//! lost, and counted.
//!
//! The exact engine counts misses; the rate engine draws from the pages' shares of them ([`Sampler`]).

use std::ops::Range;

use terrace_core::Nanos;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_workload::AliasTable;

use crate::space::Space;
use crate::world::Charge;
use crate::world::World;

/// The buffer holds what is read in so long: perf's default of 512 KiB a processor holds 10,000
/// records, a reader that wakes every 100 ms must not lose any at its own pace.
const BUFFER_NS: f64 = 100e6;

/// The unit's state.
#[derive(Debug)]
pub(crate) struct Sampling {
    /// Accesses for one sample.
    pub(crate) period: u64,
    /// Records that the buffer has room for.
    room: f64,
    filled: u64,
    pub(crate) lost: u64,
    /// No samples are taken.
    pub(crate) off: bool,
}

impl Sampling {
    pub(crate) const fn new(period: u64) -> Self {
        Self {
            period,
            room: 0.0,
            filled: 0,
            lost: 0,
            off: false,
        }
    }

    /// Whether the buffer has room for a record at that time.
    #[expect(clippy::cast_precision_loss, reason = "times below 2^53 ns")]
    fn admit(&mut self, now: u64, rate_max: f64) -> bool {
        let read = now.saturating_sub(self.filled) as f64 * rate_max / 1e9;
        self.filled = self.filled.max(now);
        self.room = (self.room + read).min(BUFFER_NS * rate_max / 1e9);
        if self.room < 1.0 {
            self.lost += 1;
            return false;
        }
        self.room -= 1.0;
        true
    }
}

impl World {
    /// An access of a program to a base page, of which the unit is given, was sampled.
    pub(crate) fn sampled(
        &mut self,
        engine: &mut Engine,
        unit: u32,
        page: u32,
        write: bool,
        at: u64,
    ) {
        self.now = self.now.max(at);
        let (now, rate_max) = (self.now, self.costs.pmu_rate_max);
        let Some(sampling) = &mut self.sampling else {
            return;
        };
        if sampling.off || !sampling.admit(now, rate_max) {
            return;
        }
        let accesses = sampling.period;
        let program = self.program(unit);
        self.charge(program, Charge::Profiling, self.costs.pmu_sample_ns);
        let event = Event::Sampled {
            page: crate::space::base_page(program, page),
            node: crate::hardware::node_id(self.node(unit)),
            write,
            accesses,
        };
        engine.observe(Nanos(self.now), &event);
    }
}

/// Draws pages by their share of a program's misses.
#[derive(Debug)]
pub(crate) struct Sampler {
    table: AliasTable,
    of: Of,
}

/// What the table's entries are.
#[derive(Debug)]
enum Of {
    /// Units, from that one on.
    Units(u32),
    /// Pieces of the program whose pages are all alike: first base page and number of pages.
    Pieces(Vec<(u32, u32)>),
}

impl Sampler {
    /// Of weights by unit, from that one on.
    pub(crate) fn by_unit(first: u32, weights: &[f64]) -> Option<Self> {
        (weights.iter().sum::<f64>() > 0.0).then(|| Self {
            table: AliasTable::new(weights),
            of: Of::Units(first),
        })
    }

    /// Of pieces, with the weight of each page in it.
    pub(crate) fn by_piece(pieces: impl Iterator<Item = (Range<u32>, f64)>) -> Option<Self> {
        let (places, weights): (Vec<_>, Vec<_>) = pieces
            .filter(|(pages, _)| !pages.is_empty())
            .map(|(pages, each)| {
                let count = pages.end - pages.start;
                ((pages.start, count), each * f64::from(count))
            })
            .unzip();
        (weights.iter().sum::<f64>() > 0.0).then(|| Self {
            table: AliasTable::new(&weights),
            of: Of::Pieces(places),
        })
    }

    /// The unit and the base page of the program that the random bits choose.
    pub(crate) fn draw(&self, space: &Space, program: usize, random: [u64; 2]) -> (u32, u32) {
        let below = |count: u32| {
            let index = (u128::from(random[1]) * u128::from(count)) >> 64;
            u32::try_from(index).expect("below count")
        };
        let entry = self.table.draw(random[0]);
        match &self.of {
            Of::Units(first) => {
                let unit = first + entry;
                let (base, pages) = space.base_pages(unit);
                (unit, base + below(pages))
            }
            Of::Pieces(pieces) => {
                let (start, count) = pieces[entry as usize];
                let page = start + below(count);
                (
                    space.at(program, page).expect("a page of the program"),
                    page,
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_faster_than_it_is_read_is_lost_and_counted() {
        let mut sampling = Sampling::new(1);
        let mut kept = 0;
        // Twice the rate for ten seconds.
        for step in 0..2_000_000_u64 {
            kept += u64::from(sampling.admit(step * 5_000, 1e5));
        }
        assert_eq!(kept + sampling.lost, 2_000_000);
        assert!(kept.abs_diff(1_000_000) < 20_000, "{kept}");
        let mut slow = Sampling::new(1);
        for step in 1..100_000_u64 {
            slow.admit(step * 11_000, 1e5);
        }
        assert_eq!(slow.lost, 0);
    }
}
