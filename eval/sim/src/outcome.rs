// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a simulation gave: totals, a series with a point a second, and named metrics.

use serde::Serialize;
use terrace_policy::Stats;

/// Two runs of the same may differ by so much: the two engines do (`tests/agreement.rs`).
const NOISE: f64 = 0.03;

/// A second of the run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Point {
    /// End of the second, s.
    pub t: f64,
    /// Visits a second, all programs.
    pub ops_per_s: f64,
    /// Share of the accesses that the fast tier served.
    pub fast_access_ratio: f64,
    /// Pages promoted in it.
    pub promoted_pages: u64,
    /// Pages demoted in it.
    pub demoted_pages: u64,
    /// What shadows take at its end, bytes.
    pub shadow_bytes: u64,
    /// Share of the programs' time spent waiting for migrations.
    pub stall_share: f64,
    /// Whether pages were moving: at least one in 10,000 in it.
    pub migrating: bool,
}

/// Accesses that a node served; cache misses where there is a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct NodeAccesses {
    /// The node.
    pub node: usize,
    /// Tier as the program sees it; 0 is the fastest.
    pub tier: u16,
    /// Lines read.
    pub reads: u64,
    /// Lines written by the program's visits.
    pub writes: u64,
    /// Bytes of dirty lines given back.
    pub written_bytes: u64,
    /// Bytes that migrations wrote.
    pub migration_written_bytes: u64,
}

/// One program.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ProgramOutcome {
    /// Its name.
    pub name: String,
    /// Visits in all.
    pub visits: f64,
    /// Visits a second over the whole run.
    pub ops_per_s: f64,
    /// Share of its accesses that the fast tier served.
    pub fast_access_ratio: f64,
    /// Bytes of it in the fast tier at the end, of how many.
    pub fast_bytes: u64,
    /// Its size.
    pub bytes: u64,
}

/// How well the placement matched the hot set; see [`crate::quality`] for what is hot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Quality {
    /// Of the accesses to hot pages, how many the fast tier served.
    pub recall: f64,
    /// Of the accesses that the fast tier served, how many were to hot pages.
    pub precision: f64,
    /// Their harmonic mean.
    pub f1: f64,
    /// Promotions per page that was accessed on a slow node; none if no page was.
    pub page_promotion_ratio: Option<f64>,
    /// What hint faults told of rates; none if there were too few.
    pub idle: Option<IdleTimes>,
}

/// Captured idle times against the rates of their pages (Chrono 3.1.1, figure 10 (a)).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct IdleTimes {
    /// Of the logarithms of both.
    pub correlation: f64,
    /// Mean of an idle time over the mean interval between accesses of its page.
    pub intervals: f64,
}

/// Everything about one run.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The machine's name.
    pub machine: String,
    /// The workload's name.
    pub workload: String,
    /// The system's name.
    pub system: String,
    /// `exact` or `rate`.
    pub engine: crate::EngineKind,
    /// The seed.
    pub seed: u64,
    /// Simulated seconds.
    pub seconds: f64,
    /// Resident pages, base pages.
    pub base_pages: u64,
    /// Of the programs.
    pub programs: Vec<ProgramOutcome>,
    /// By node.
    pub nodes: Vec<NodeAccesses>,
    /// A point a second.
    pub series: Vec<Point>,
    /// The engine's own statistics.
    pub stats: Stats,
    /// The policy's own figures at the end.
    pub policy_counters: Vec<(String, u64)>,
    /// Allocations that found no memory on any node.
    pub allocations_failed: u64,
    /// Thread time of the programs, ns; what the shares below are of.
    pub thread_ns: f64,
    /// Of it, marking and hint faults, samples, probes.
    pub profiling_ns: f64,
    /// Of it, migrating: synchronous copies, shootdowns, write-protection faults.
    pub migration_ns: f64,
    /// Of it, waiting for a page that was inaccessible.
    pub stall_ns: f64,
    /// Time that migration workers were busy, ns.
    pub worker_ns: f64,
    /// Processor time of scans of named pages, ns; the supervisor's has it, too.
    pub scan_ns: f64,
    /// Processor time that the supervisor took beside the programs, ns.
    pub supervisor_ns: f64,
    /// Writes that waited for the copy of their page.
    pub writes_waited: f64,
    /// Lines that the programs wrote, those that the cache took included.
    pub written_lines: f64,
    /// When a program last went on to another phase, s; none if all stayed in their first.
    pub phase_changed_s: Option<f64>,
    /// Most that shadows took, bytes.
    pub shadow_bytes_max: u64,
    /// What shadows took at the end, bytes.
    pub shadow_bytes_end: u64,
    /// Peak of the policy's metadata, bytes; 0 if it has none of its own.
    pub metadata_bytes: u64,
    /// What the simulator itself took for its tables, bytes.
    pub simulator_bytes: u64,
    /// Throughput of `oracle` in the same set-up, if that was run too.
    pub oracle_ops_per_s: Option<f64>,
    /// Not for memory mode, nor beyond 16 million pages, nor where all pages are visited alike.
    pub quality: Option<Quality>,
}

impl Outcome {
    /// What cannot be, and so is an error of the model; nothing usually. [`Self::oracle_ops_per_s`] is known where
    /// the oracle was run, too.
    #[must_use]
    pub fn model_errors(&self) -> Vec<String> {
        let share = self.metric("of_oracle");
        let mut errors: Vec<_> = share
            .and_then(|share| above_oracle(&self.system, share))
            .into_iter()
            .collect();
        let charged = (self.profiling_ns + self.migration_ns + self.stall_ns) / self.thread_ns;
        if charged > 1.0 + NOISE {
            errors.push(format!(
                "Programs were charged {:.0} % of the time that they have; play every visit (--engine exact)",
                charged * 100.0
            ));
        }
        errors
    }
}

/// What is wrong where a system has such a share of the oracle's speed, if it is more than two runs of the same differ.
#[must_use]
pub fn above_oracle(system: &str, share: f64) -> Option<String> {
    (share > 1.0 + NOISE).then(|| {
        format!(
            "{system} comes to {:.1} % of the oracle's speed, and no placement is better than the oracle's",
            share * 100.0
        )
    })
}
