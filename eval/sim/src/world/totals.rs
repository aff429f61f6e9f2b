// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is counted of a run, and how busy copies keep the nodes.

use crate::hardware::NODES;

/// Counters of one node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NodeCount {
    pub(crate) reads: f64,
    pub(crate) writes: f64,
    pub(crate) backs: f64,
}

/// Counters of the run so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    /// `[program]`
    pub(crate) visits: Vec<f64>,
    /// `[program][node]`
    pub(crate) accesses: Vec<[NodeCount; NODES]>,
    pub(crate) migrated: [u64; NODES],
    pub(crate) profiling: f64,
    pub(crate) migration: f64,
    pub(crate) stall: f64,
    pub(crate) workers: f64,
    /// Processor time of scans of named pages, ns.
    pub(crate) scans: f64,
    /// Processor time of the supervisor, ns.
    pub(crate) supervisor: f64,
    pub(crate) allocations_failed: u64,
    pub(crate) write_protect_faults: u64,
    /// Writes that waited for the copy of their page.
    pub(crate) writes_waited: f64,
    /// Thread time of the programs.
    pub(crate) threads: f64,
    pub(crate) shadow_max: u64,
}

/// Utilisation of the nodes by copies under way, and its integral over time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CopyLoad {
    active: [f64; NODES],
    sum: [f64; NODES],
    since: u64,
    start: u64,
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times of a step, far below 2^53 ns"
)]
impl CopyLoad {
    fn settle(&mut self, now: u64) {
        let span = now.saturating_sub(self.since) as f64;
        for node in 0..NODES {
            self.sum[node] += self.active[node] * span;
        }
        self.since = self.since.max(now);
    }

    /// More (or less) copying from now on.
    pub(crate) fn change(&mut self, now: u64, node: usize, by: f64) {
        self.settle(now);
        self.active[node] = (self.active[node] + by).max(0.0);
    }

    /// A copy of that length at once.
    pub(crate) fn lump(&mut self, node: usize, utilisation: f64, ns: f64) {
        self.sum[node] += utilisation * ns;
    }

    /// Mean utilisation since the last call.
    pub(crate) fn take(&mut self, now: u64) -> [f64; NODES] {
        self.settle(now);
        let span = now.saturating_sub(self.start).max(1) as f64;
        let mean = self.sum.map(|sum| sum / span);
        self.sum = [0.0; NODES];
        self.start = now;
        mean
    }
}
