// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was done, counted: each figure is defined here once and nowhere else.
//!
//! The migrations keep the books: `ordered = promoted + demoted + aborted + refused + lost` once none
//! is under way; a test in the lab adds them up at the end of a run.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::Serialize;
use terrace_core::Nanos;
use terrace_core::PageSize;

use crate::engine::Way;
use crate::event::Migration;
use crate::event::Verdict;

/// Counters of one run. Pages are counted as migrations of one page of whatever size; bytes count
/// the size.
#[derive(Debug, Clone, Serialize)]
pub struct Stats {
    /// Hint faults seen.
    pub hint_faults: u64,
    /// Hint faults that the tracker lost for lack of buffer.
    pub hint_faults_lost: u64,
    /// Samples of a performance-monitoring unit that the policy saw.
    pub samples: u64,
    /// Samples that were lost: a full buffer, a throttled counter.
    pub samples_lost: u64,
    /// Readings of 512 pages' accessed bits that showed something new, or ended a pass.
    pub chunk_readings: u64,
    /// Migrations ordered by the policy.
    pub ordered: u64,
    /// Pages moved to a faster tier.
    pub promoted_pages: u64,
    /// Bytes moved to a faster tier.
    pub promoted_bytes: u64,
    /// Pages moved to a slower tier, with or without a copy.
    pub demoted_pages: u64,
    /// Bytes moved to a slower tier.
    pub demoted_bytes: u64,
    /// Bytes that migrations wrote to each node, by its number: what was copied there (HeMem 5.2.3). An
    /// order for 2 MiB counts whole, also where less of it is in memory.
    pub migration_written_bytes: BTreeMap<u16, u64>,
    /// Transactions that committed, promotions and copying demotions.
    pub tpm_committed: u64,
    /// Transactions that a write aborted.
    pub tpm_aborted: u64,
    /// Demotions onto a shadow, without a copy.
    pub shadow_hits: u64,
    /// Shadows dropped because the program wrote to the page.
    pub shadows_written: u64,
    /// Shadows dropped because a write slipped in behind the commit.
    pub shadows_stale: u64,
    /// How often shadows were reclaimed for their memory.
    pub shadow_reclaims: u64,
    /// Shadow pages given back by that.
    pub shadows_reclaimed: u64,
    /// Migrations by the kernel's ordinary way (`move_pages`).
    pub ordinary_moves: u64,
    /// Migrations refused for now: shared, pinned, under other work.
    pub refused_busy: u64,
    /// Migrations for which the target had no memory.
    pub refused_no_memory: u64,
    /// Migrations of pages that had gone or cannot be moved.
    pub lost: u64,
    /// Write-protection faults answered in the programs.
    pub write_protect_faults: u64,
    /// Missing-page faults answered in the programs.
    pub missing_faults: u64,
    /// Writes of the programs that waited because their page was being moved.
    pub writes_waited: u64,
    /// Writes of the programs, all of them. The simulator counts lines written, those in the cache
    /// included. On a machine nobody counts stores, so it is an estimate: one sampling period for each sampled
    /// store (`terrace_track::TrackStats::stores` says what that leaves out). `None` where stores are not
    /// sampled.
    pub writes: Option<u64>,
    /// [`Self::writes_waited`] as a share of them. The paper of HeMem has less than 0.0000013 (3.2).
    pub writes_waited_share: Option<f64>,
    /// How long pages were inaccessible during a commit, ns.
    #[serde(rename = "inaccessible_ns", serialize_with = "quantiles")]
    pub inaccessible: Histogram<u64>,
    /// Processor time that Terrace itself spent, ns: supervisor and agent threads.
    pub terrace_cpu_ns: u64,
}

impl Default for Stats {
    fn default() -> Self {
        // 1 ns to 100 s, two digits: 3 KiB a histogram.
        let inaccessible = Histogram::new_with_bounds(1, 100_000_000_000, 2)
            .expect("bounds and digits are in the crate's range");
        Self {
            hint_faults: 0,
            hint_faults_lost: 0,
            samples: 0,
            samples_lost: 0,
            chunk_readings: 0,
            ordered: 0,
            promoted_pages: 0,
            promoted_bytes: 0,
            demoted_pages: 0,
            demoted_bytes: 0,
            migration_written_bytes: BTreeMap::new(),
            tpm_committed: 0,
            tpm_aborted: 0,
            shadow_hits: 0,
            shadows_written: 0,
            shadows_stale: 0,
            shadow_reclaims: 0,
            shadows_reclaimed: 0,
            ordinary_moves: 0,
            refused_busy: 0,
            refused_no_memory: 0,
            lost: 0,
            write_protect_faults: 0,
            missing_faults: 0,
            writes_waited: 0,
            writes: None,
            writes_waited_share: None,
            inaccessible,
            terrace_cpu_ns: 0,
        }
    }
}

impl Stats {
    /// Counts a migration's end.
    pub fn count(&mut self, size: PageSize, migration: Migration, verdict: Verdict, way: Way) {
        let moved = matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow);
        if moved {
            match migration {
                Migration::Promote { .. } => {
                    self.promoted_pages += 1;
                    self.promoted_bytes += size.bytes();
                }
                Migration::Demote { .. } => {
                    self.demoted_pages += 1;
                    self.demoted_bytes += size.bytes();
                }
            }
        }
        if matches!(verdict, Verdict::Moved { .. }) {
            let written = self.migration_written_bytes.entry(migration.target().0);
            *written.or_default() += size.bytes();
        }
        match (verdict, way) {
            (Verdict::Moved { .. }, Way::Transaction) => self.tpm_committed += 1,
            (Verdict::Moved { .. } | Verdict::MovedOntoShadow, Way::Ordinary) => {
                self.ordinary_moves += 1;
            }
            (Verdict::MovedOntoShadow, Way::Transaction) => self.shadow_hits += 1,
            (Verdict::Dirtied, _) => self.tpm_aborted += 1,
            (Verdict::Busy, _) => self.refused_busy += 1,
            (Verdict::NoMemory, _) => self.refused_no_memory += 1,
            (Verdict::Lost, _) => self.lost += 1,
        }
    }

    /// Notes how many writes there were in all, and with that which share of them waited.
    #[expect(clippy::cast_precision_loss, reason = "a share for printing")]
    pub fn set_writes(&mut self, writes: Option<u64>) {
        self.writes = writes;
        let all = writes.filter(|writes| *writes > 0);
        self.writes_waited_share = all.map(|all| self.writes_waited as f64 / all as f64);
    }

    /// Notes how long a page was inaccessible.
    pub fn inaccessible(&mut self, span: Nanos) {
        self.inaccessible.saturating_record(span.0.max(1));
    }
}

fn quantiles<S: serde::Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
    use serde::ser::SerializeMap;
    let mut map = to.serialize_map(Some(5))?;
    map.serialize_entry("count", &histogram.len())?;
    map.serialize_entry("p50", &histogram.value_at_quantile(0.5))?;
    map.serialize_entry("p99", &histogram.value_at_quantile(0.99))?;
    map.serialize_entry("p999", &histogram.value_at_quantile(0.999))?;
    map.serialize_entry("max", &histogram.max())?;
    map.end()
}
