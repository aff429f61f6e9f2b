// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of a process, and what follows from it.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;

use super::accesses::Accesses;
use super::accesses::Visits;
use super::accessors::ALL;
use super::accessors::Accessor;
use super::away::Away;
use super::census::Census;
use super::chunk::Chunk;
use super::classes::CLASSES;
use super::clock::Clock;
use super::lag::Lag;
use super::ledger::Ledger;
use super::matrix::Matrix;
use super::params::Params;
use super::settling::Settling;
use super::sight::Sight;
use super::sight::Sights;
use super::skew::Skew;
use super::transitions::Transitions;
use super::value;
use super::value::Values;

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) transitions: Transitions,
    pub(super) clock: Clock,
    pub(super) lag: Lag,
    pub(super) settling: Settling,
    pub(super) accesses: Accesses,
    /// M and r.
    pub(super) m: Matrix,
    pub(super) rates: [f64; CLASSES],
    /// V for each ns that an access saves.
    pub(super) values: Values,
    /// The node whose processors it runs on, if all are of one.
    pub(super) runs_on: Option<NodeId>,
    pub(super) sights: Sights,
    pub(super) ledger: Ledger,
    pub(super) skew: Skew,
    pub(super) away: Away,
    /// Its pass is over, and nothing was told of the next one yet.
    pub(super) over: bool,
    /// Its passes so far.
    pub(super) pass: u32,
    /// The length of the pass that is read at present, as its readings tell, s.
    pub(super) pass_s: f64,
    /// The same of the pass before.
    pub(super) pass_s_before: f64,
    /// Base pages seen at the first reading of this pass, and of the one before.
    pub(super) first: u64,
    pub(super) first_before: u64,
    /// Of how many chunks the last pass read one.
    pub(super) parts: u32,
    /// Processor time that reading all of it took, and what it lost itself.
    pub(super) busy: Nanos,
    pub(super) lost: Nanos,
    /// When it last did what nobody expected.
    pub(super) surprised: Option<Nanos>,
    /// It did in this pass, by what was seen so far.
    pub(super) alarmed: bool,
    /// The last of the readings in this pass that others were seen with, s of its own time: since and until.
    pub(super) rung: (f64, f64),
}

impl Process {
    /// One that was met, at passes of that length, which sees memory so.
    pub(super) fn new(params: &Params, pass: Nanos, sights: Sights) -> Self {
        let pass = pass.as_secs_f64();
        let mut process = Self {
            transitions: Transitions::new(),
            clock: Clock::new(),
            lag: Lag::new(),
            settling: Settling::default(),
            accesses: Accesses::default(),
            m: Matrix::default(),
            rates: [0.0; CLASSES],
            values: [0.0; CLASSES],
            runs_on: None,
            sights,
            ledger: Ledger::default(),
            skew: Skew::default(),
            away: Away::new(),
            over: false,
            pass: 0,
            pass_s: pass,
            pass_s_before: pass,
            first: 0,
            first_before: 0,
            parts: 1,
            busy: Nanos::ZERO,
            lost: Nanos::ZERO,
            surprised: None,
            alarmed: false,
            rung: (0.0, 0.0),
        };
        process.rates = process.transitions.rates();
        process.evaluate(params);
        process
    }

    /// Whether the pass that is over had another length than the one before: its transitions are others, and those between two
    /// lengths are of neither.
    pub(super) fn changes_length(&mut self) -> bool {
        let before = std::mem::replace(&mut self.pass_s_before, self.pass_s);
        (self.pass_s / before - 1.0).abs() > 0.1
    }

    /// What a visit saves, ns, by what an access does.
    pub(super) fn visit_saves(&self, access_ns: f64) -> f64 {
        access_ns * self.clock.share * self.accesses.of_a_visit()
    }

    /// Visits of a page of that size for each that it is taken for.
    pub(super) const fn visits_of(&self, size: PageSize) -> f64 {
        match size {
            PageSize::Huge2M => self.skew.whole,
            _ => 1.0,
        }
    }

    /// Memory as its pages see it that nobody's in particular access.
    pub(super) fn sight(&self) -> &Sight {
        self.sights.of(ALL)
    }

    /// Memory as a chunk's pages see it.
    pub(super) fn sight_of(&self, chunk: &Chunk) -> &Sight {
        self.sights.of(chunk.accessors.mostly())
    }

    /// Visits of these pages in the pass that is over.
    fn visits<'a>(&self, pages: impl Iterator<Item = (Accessor, &'a Census)>) -> Option<Visits> {
        // Rates that are estimates of one wait each are too high together.
        if !self.transitions.is_counted() {
            return None;
        }
        let own_s = self.pass_s * self.clock.share;
        let mut sums = None;
        for (accessor, pages) in pages {
            let visits = pages.visits(&self.rates).map(|a_second| a_second * own_s);
            let reads = self.sights.of(accessor).reads;
            let (all, read_ns) = sums.get_or_insert((0.0, 0.0));
            *all += visits.iter().sum::<f64>();
            *read_ns += visits.iter().zip(reads).map(|(n, ns)| n * ns).sum::<f64>();
        }
        let (all, read_ns) = sums?;
        Some(Visits {
            all,
            read_ns,
            ran_ns: self.clock.ran_s(self.pass_s).map(|seconds| seconds * 1e9),
        })
    }

    /// A pass over these pages is over, which are mostly accessed from there: values by what was counted.
    pub(super) fn end_pass<'a>(
        &mut self,
        params: &Params,
        pages: impl Iterator<Item = (Accessor, &'a Census)>,
    ) {
        self.rates = self.transitions.rates();
        let visits = self.visits(pages);
        self.accesses.end_pass(visits, params.keep());
        self.evaluate(params);
    }

    /// Bytes that are known of it, but for its pages.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.transitions.bytes()
            + self.lag.bytes()
            + self.m.bytes()
            + self.skew.bytes()
    }

    /// Values by rates and transitions.
    fn evaluate(&mut self, params: &Params) {
        let horizon = params.horizon.as_secs_f64();
        let visit = self.visit_saves(1.0);
        self.m = self.transitions.matrix();
        self.values = value::values(&self.m, &self.rates, self.pass_s, horizon, visit);
        self.lag.end_pass(&self.m, &self.rates);
    }
}
