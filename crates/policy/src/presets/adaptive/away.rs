// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are not where they first were, and what comes of that.
//!
//! ```text
//! gain = sum over pages that are faster now of   w * (read where it first was - read where it is) * their mean rate        ns a second
//! loss = the same of those that are slower
//! ```
//!
//! A page would be where it first was if nobody had moved it, so it is that which is measured against, not what a plan hoped for. And what is measured is what
//! these pages did in this pass, fitted as first waits are ([`super::first`]), whatever they were taken for: a page that was taken for cold
//! and has become hot has a class that is too low for passes yet. Times are the clock's and not the program's own: while it waits its pages bring nothing.

use terrace_core::PageBits;
use terrace_core::Pid;

use super::Adaptive;
use super::chunk::Chunk;
use super::estimate::Seen;
use super::first::Waits;
use super::latencies::Reads;
use super::places::PLACES;
use super::places::Place;
use super::process::Process;
use super::queue::Order;

/// Whether a page is faster than where it first was, or slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

/// From a place to another, if either is slower.
fn way(from: Place, to: Place, reads: &Reads) -> Option<Way> {
    let saved = reads[from] - reads[to];
    if saved > 0.0 {
        Some(Way::Up)
    } else {
        (saved < 0.0).then_some(Way::Down)
    }
}

/// Pages that are faster than where they first were, and those that are slower.
type Ways = [PageBits; 2];

/// Those of a chunk, and what an access to each of them saves in all, or loses, ns.
fn of_chunk(chunk: &Chunk, reads: &Reads) -> (Ways, [f64; 2]) {
    let (mut ways, mut saves) = ([PageBits::NONE; 2], [0.0; 2]);
    let Some(home) = chunk.home() else {
        return (ways, saves);
    };
    let strays = chunk.strays();
    for from in 0..PLACES {
        let of = home.of(from, &strays);
        if of.is_empty() {
            continue;
        }
        for to in 0..PLACES {
            if let Some(way) = way(from, to, reads) {
                let there = chunk.spread.of(to, &of);
                ways[way as usize] = ways[way as usize].or(&there);
                saves[way as usize] += f64::from(there.count()) * (reads[from] - reads[to]).abs();
            }
        }
    }
    (ways, saves)
}

/// What is counted of them, and what they bring.
#[derive(Debug, Clone)]
pub(super) struct Away {
    /// By way, in this pass.
    waits: [Waits; 2],
    /// The mean in the last pass that observed any, visits a second.
    rates: [f64; 2],
    pub(super) brings: Brings,
}

/// What pages save and lose a second, ns, because they are not where they first were.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Brings {
    pub(super) gain: f64,
    pub(super) loss: f64,
    /// Base pages that are faster.
    pub(super) taken: u64,
}

impl Brings {
    /// With those of another process.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            gain: self.gain + other.gain,
            loss: self.loss + other.loss,
            taken: self.taken + other.taken,
        }
    }
}

impl Away {
    pub(super) fn new() -> Self {
        Self {
            waits: [Waits::default(), Waits::default()],
            rates: [0.0; 2],
            brings: Brings::default(),
        }
    }

    /// Of a chunk these pages were seen between two times of the clock, and those were not until the second.
    pub(super) fn observed(
        &mut self,
        chunk: &Chunk,
        reads: &Reads,
        pages: [&PageBits; 2],
        times: (f64, f64),
    ) {
        if chunk.home().is_none() {
            return;
        }
        let (ways, _) = of_chunk(chunk, reads);
        for (pages, one) in pages.into_iter().zip(Seen::both(times.0, times.1)) {
            self.count(pages, &ways, one);
        }
    }

    fn count(&mut self, pages: &PageBits, ways: &Ways, one: Seen) {
        for (waits, way) in self.waits.iter_mut().zip(ways) {
            waits.observed(pages.and(way).count(), one);
        }
    }

    /// A pass is over, after which there are so many base pages that are faster, and an access to each of those of both ways saves or loses so
    /// much, ns, where a visit is so many. What all of them save a second if it is one, ns.
    pub(super) fn end_pass(&mut self, taken: u64, saves: [f64; 2], of_a_visit: f64) -> f64 {
        for (waits, rate) in self.waits.iter_mut().zip(&mut self.rates) {
            if let Some(fit) = waits.fit() {
                *rate = fit.mean();
                *waits = Waits::default();
            }
        }
        let [gain, loss] = [0, 1].map(|way| saves[way] * self.rates[way]);
        self.brings = Brings {
            gain: gain * of_a_visit,
            loss: loss * of_a_visit,
            taken,
        };
        gain - loss
    }
}

impl Adaptive {
    /// A process's pass is over: what comes of its pages that are not where they first were.
    pub(super) fn account(&mut self, pid: Pid) {
        let Some(process) = self.processes.get_mut(&pid) else {
            return;
        };
        let (mut taken, mut saves) = (0, [0.0; 2]);
        for (_, chunk) in self.chunks.of(pid) {
            let (ways, chunk_saves) = of_chunk(chunk, &process.sight_of(chunk).reads);
            taken += u64::from(ways[0].count()) * chunk.size().base_pages();
            saves = [0, 1].map(|way| saves[way] + chunk_saves[way]);
        }
        let visit = process.accesses.counted();
        let saved = process.away.end_pass(taken, saves, visit);
        let usual = process
            .clock
            .usual()
            .filter(|_| self.params.response && process.parts == 1);
        process.accesses.response.end_pass(saved, usual);
    }

    /// Whether what a process's moves may take is limited by what they brought.
    pub(super) fn has_ledger(&self, pid: Pid) -> bool {
        self.params.ledger && !self.is_limited(pid)
    }

    /// Whether a process owes more than it may.
    pub(super) fn owes(&self, pid: Pid, process: &Process) -> bool {
        self.has_ledger(pid) && process.ledger.may(self.once(pid)) < 0.0
    }

    /// Pages of processes that owe more than they may go back to where they first were.
    pub(super) fn send_home(&mut self) {
        let all = self.processes.iter();
        let owing = all.filter(|(pid, process)| self.owes(**pid, process));
        let owing: Vec<Pid> = owing.map(|(pid, _)| *pid).collect();
        for pid in owing {
            for (page, from, home) in self.chunks.strays(pid) {
                let there = self.sides.of(home);
                if let Some(side) = there.filter(|_| there != self.sides.of(from)) {
                    self.moves.plan.0[side].push(Order { page, from });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(away: &mut Away, pages: usize, one: Seen) {
        let pages = (0..pages).fold(PageBits::NONE, |all, page| all.or(&PageBits::one(page)));
        away.count(&pages, &[pages, PageBits::NONE], one);
    }

    const fn seen(since: f64, until: f64) -> Seen {
        Seen {
            seen: true,
            since,
            until,
        }
    }

    #[test]
    fn what_strays_did_is_measured_whatever_they_were_taken_for() {
        let mut away = Away::new();
        let saves = [0, 1].map(|way| 512.0 * [170.0, 0.0][way]);
        // Of 512 pages an eighth is visited 1,000 times a second and the others hardly ever.
        let unseen = Seen {
            seen: false,
            ..seen(0.0, 1.0)
        };
        for _ in 0..100 {
            count(&mut away, 40, seen(0.0, 0.001));
            count(&mut away, 15, seen(0.001, 0.002));
            count(&mut away, 9, seen(0.002, 0.008));
            count(&mut away, 448, unseen);
        }
        away.end_pass(512, saves, 1.0);
        let visits = away.brings.gain / 170.0;
        assert!((visits / 64_000.0 - 1.0).abs() < 0.1, "{visits}");
        assert_eq!((away.brings.loss, away.brings.taken), (0.0, 512));
        // Nobody looked: as before.
        away.end_pass(256, saves.map(|saves| saves / 2.0), 1.0);
        assert!((away.brings.gain / 85.0 / visits - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_way_is_that_of_the_reads() {
        let mut reads = Reads::default();
        (reads[0], reads[1], reads[2]) = (100.0, 250.0, 250.0);
        assert_eq!(way(1, 0, &reads), Some(Way::Up));
        assert_eq!(way(0, 2, &reads), Some(Way::Down));
        assert_eq!(way(1, 2, &reads), None);
    }
}
