// SPDX-License-Identifier: MIT OR Apache-2.0
//! What was done, counted: each figure is defined here once, with its unit and its sentence, and nowhere else.
//!
//! The migrations keep the books: `ordered = promoted + demoted + exchanged + aborted + refused + lost` once none
//! is under way; a test in the lab adds them up at the end of a run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::NodeId;
use terrace_core::PageSize;

use crate::distribution::Distribution;
use crate::event::Mechanism;
use crate::event::Migration;
use crate::event::Verdict;

terrace_core::figures! {
    /// Figures of one run. Pages are counted as migrations of one page of whatever size; bytes count
    /// the size.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(default)]
    pub struct Stats {
        /// Hint faults seen.
        hint_faults: u64 as Count,
        /// Hint faults that the tracker lost for lack of buffer.
        hint_faults_lost: u64 as Count,
        /// Samples of a performance-monitoring unit that the policy saw.
        samples: u64 as Count,
        /// Samples that were lost: a full buffer, a throttled counter.
        samples_lost: u64 as Count,
        /// Readings of 512 pages' accessed bits that showed something new, or ended a pass.
        chunk_readings: u64 as Count,
        /// Migrations ordered by the policy.
        ordered: u64 as Count,
        /// Pages moved to a faster tier.
        promoted_pages: u64 as Count,
        /// Bytes moved to a faster tier.
        promoted_bytes: u64 as Bytes,
        /// Pages moved to a slower tier, with or without a copy.
        demoted_pages: u64 as Count,
        /// Bytes moved to a slower tier.
        demoted_bytes: u64 as Bytes,
        /// Pairs of pages that changed places.
        exchanged_pairs: u64 as Count,
        /// Bytes that migrations wrote to each node, by its number. It is what was copied there (HeMem
        /// 5.2.3); an order for 2 MiB counts whole, also where less of it is in memory.
        migration_written_bytes: BTreeMap<u16, u64> as Bytes,
        /// Transactions that committed, promotions and copying demotions.
        tpm_committed: u64 as Count,
        /// Transactions that a write aborted.
        tpm_aborted: u64 as Count,
        /// Demotions onto a shadow, without a copy.
        shadow_hits: u64 as Count,
        /// Shadows dropped because the program wrote to the page.
        shadows_written: u64 as Count,
        /// Shadows dropped because a write slipped in behind the commit.
        shadows_stale: u64 as Count,
        /// How often shadows were reclaimed for their memory.
        shadow_reclaims: u64 as Count,
        /// Shadow pages given back by that.
        shadows_reclaimed: u64 as Count,
        /// Migrations by the kernel (move_pages).
        ordinary_moves: u64 as Count,
        /// Migrations refused for now: shared, pinned, under other work.
        refused_busy: u64 as Count,
        /// Migrations for which the target had no memory.
        refused_no_memory: u64 as Count,
        /// Migrations of pages that had gone or cannot be moved.
        lost: u64 as Count,
        /// Of those lost, the ones never answered: their process, or the run, ended before.
        unanswered: u64 as Count,
        /// What the policy asked for and the machine refused; of migrations, those by a mechanism that is not served.
        actions_refused: u64 as Count,
        /// Agents that connected and can move pages.
        agents: u64 as Count,
        /// Write-protection faults answered in the programs.
        write_protect_faults: u64 as Count,
        /// Missing-page faults answered in the programs.
        missing_faults: u64 as Count,
        /// Writes of the programs that waited because their page was being moved.
        writes_waited: u64 as Count,
        /// Writes of the programs, all of them. The simulator counts lines written, those in the cache
        /// included. On a machine nobody counts stores, so it is an estimate, one sampling period for each
        /// sampled store; it is unknown where stores are not sampled.
        writes: Option<u64> as Count,
        /// Writes that waited as a share of all. The paper of HeMem has less than 0.0000013 (3.2).
        writes_waited_share: Option<f64> as Share,
        /// How long each migrated page was inaccessible during its commit.
        inaccessible_ns: Distribution as Nanoseconds,
        /// Processor time that Terrace itself spent, supervisor and agent threads.
        terrace_cpu_ns: u64 as Nanoseconds,
    }
}

impl Stats {
    /// Counts a migration's end.
    pub fn count(
        &mut self,
        size: PageSize,
        migration: Migration,
        from: Option<NodeId>,
        verdict: Verdict,
        mechanism: Mechanism,
    ) {
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
                Migration::Exchange { .. } => self.exchanged_pairs += 1,
            }
        }
        if matches!(verdict, Verdict::Moved { .. }) {
            let written = self.migration_written_bytes.entry(migration.target().0);
            *written.or_default() += size.bytes();
            if let (Migration::Exchange { .. }, Some(from)) = (migration, from) {
                *self.migration_written_bytes.entry(from.0).or_default() += size.bytes();
            }
        }
        match verdict {
            _ if moved && !mechanism.is_in_process() => self.ordinary_moves += 1,
            Verdict::Moved { .. } => self.tpm_committed += 1,
            Verdict::MovedOntoShadow => self.shadow_hits += 1,
            Verdict::Dirtied => self.tpm_aborted += 1,
            Verdict::Busy => self.refused_busy += 1,
            Verdict::NoMemory => self.refused_no_memory += 1,
            Verdict::Lost => self.lost += 1,
        }
    }

    /// Notes how many writes there were in all, and with that which share of them waited.
    #[expect(clippy::cast_precision_loss, reason = "a share for printing")]
    pub fn set_writes(&mut self, writes: Option<u64>) {
        self.writes = writes;
        let all = writes.filter(|writes| *writes > 0);
        self.writes_waited_share = all.map(|all| self.writes_waited as f64 / all as f64);
    }
}
