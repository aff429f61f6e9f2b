// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

use terrace_core::Measurement;
use terrace_core::PageSize;

use super::Adaptive;
use super::Process;
use super::latencies;
use super::whole_ns;

terrace_core::figures! {
    pub(super) struct Figures {
        /// Passes that ended with a plan.
        passes: u64 as Count,
        /// Base pages in the last plan.
        pages: u64 as Count,
        /// What the moves of the last plan gain by its estimate.
        value_possible_us: u64 as Microseconds,
        /// What moving a base page takes.
        move_ns: u64 as Nanoseconds,
        /// What an access saves between the slowest memory and the fastest.
        saved_ns: u64 as Nanoseconds,
        /// Pages that made room for better ones, as planned.
        swaps: u64 as Count,
        /// Pages promoted within a pass, before its plan.
        early: u64 as Count,
        /// How often the pass was made longer.
        rests: u64 as Count,
        /// What pages saved because they were not where they first were, less what those lost that gave room, as far back as savings count ahead.
        earned_ms: u64 as Milliseconds,
        /// The same where more was lost.
        lost_ms: u64 as Milliseconds,
        /// What moves took, as far back.
        spent_ms: u64 as Milliseconds,
        /// Processes that owe more than they may: their pages go back to where they first were, and rest.
        owing: u64 as Count,
        /// How often a process was much worse predicted than before, and learnt anew.
        surprises: u64 as Count,
        /// Huge pages that were split, as they are worth more in parts or to see whether.
        splits: u64 as Count,
        /// Hint faults that told which socket accesses a page.
        faults: u64 as Count,
        /// Base pages that one socket accesses mostly, of processes that may run on several.
        told_apart: u64 as Count,
        /// Length of a pass.
        pass_ms: u64 as Milliseconds,
        /// The first wait after clearing, which the others double.
        shortest_us: u64 as Microseconds,
        /// Of how many chunks of memory a pass reads one; all are read once in the longest pass.
        parts: u64 as Count,
        /// Migrations under way.
        moving: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}

impl Adaptive {
    pub(super) fn figures(&self) -> Vec<Measurement> {
        let c = &self.counters;
        let all = || self.processes.iter();
        let sum =
            |of: fn(&Process) -> f64| all().map(|(_, process)| of(process)).sum::<f64>() / 1e6;
        let earned = sum(|process| process.ledger.earned);
        Figures {
            passes: c.passes,
            pages: c.pages,
            value_possible_us: c.value_possible_ns / 1_000,
            move_ns: whole_ns(self.costs.of(PageSize::Base4K)),
            saved_ns: whole_ns(self.saved_ns()),
            swaps: c.swaps,
            early: c.early,
            rests: self.pace.rests,
            earned_ms: whole_ns(earned),
            lost_ms: whole_ns(-earned),
            spent_ms: whole_ns(sum(|process| process.ledger.spent)),
            owing: all()
                .filter(|(pid, process)| self.owes(**pid, process))
                .count() as u64,
            surprises: c.surprises,
            splits: c.splits,
            faults: c.faults,
            told_apart: self.told_apart(),
            pass_ms: self.pace.pass.0 / 1_000_000,
            shortest_us: self.pace.shortest.0 / 1_000,
            parts: u64::from(self.pace.parts),
            moving: self.moves.under_way(),
            metadata_bytes: self.bytes(),
        }
        .values()
    }

    /// What an access saves between the slowest memory and the fastest, for who runs on all processors, ns.
    fn saved_ns(&self) -> f64 {
        let reads = self.latencies.reads_ns(&self.places, None);
        let (least, most) = latencies::ends(&reads, &self.places);
        most - least
    }

    fn bytes(&self) -> u64 {
        let all = self.processes.values();
        self.chunks.bytes()
            + all.map(|process| process.bytes() as u64).sum::<u64>()
            + self.moves.bytes()
    }
}
