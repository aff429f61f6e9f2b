// SPDX-License-Identifier: MIT OR Apache-2.0
//! The named metrics of a simulation's outcome.

use crate::Outcome;
use crate::outcome::Point;

impl Outcome {
    /// Every metric: its name, and unit and meaning.
    pub const METRICS: &'static [(&'static str, &'static str)] = &[
        (
            "ops_per_s",
            "visits a second, mean of the last third of the run",
        ),
        (
            "ops_per_s_first",
            "visits a second, mean of the first third of the run",
        ),
        (
            "in_progress_ops_per_s",
            "visits a second, mean from the first to the last second in which pages were migrated, those between in which none was included",
        ),
        (
            "stable_ops_per_s",
            "visits a second, mean of the last tenth of the run",
        ),
        ("mean_ops_per_s", "visits a second, whole run"),
        (
            "fast_access_ratio",
            "accesses served by the fast tier, share, last third",
        ),
        (
            "slow_access_ratio",
            "accesses served by other tiers, share, last third",
        ),
        ("promoted_pages", "migrations of a page to a faster tier"),
        ("demoted_pages", "migrations of a page to a slower tier"),
        ("promoted_bytes", "bytes moved to a faster tier"),
        ("migrated_pages", "promoted and demoted pages"),
        ("tpm_committed", "transactions that committed"),
        ("tpm_aborted", "transactions that a write aborted"),
        (
            "tpm_success_ratio",
            "transactions committed for each aborted",
        ),
        ("shadow_hits", "demotions onto a shadow, without a copy"),
        ("shadow_bytes_max", "bytes, most that shadows took"),
        ("shadow_bytes_end", "bytes that shadows took at the end"),
        ("allocations_failed", "allocations that found no memory"),
        ("hint_faults", "hint faults"),
        (
            "samples",
            "samples of performance counters that the policy saw",
        ),
        (
            "samples_lost_share",
            "of the samples taken, the share that was lost",
        ),
        (
            "writes_waited_share",
            "of the lines written, in cache or memory, the share that waited for the copy of their page",
        ),
        (
            "slow_written_bytes",
            "bytes written to tiers below the fastest, by programs and migrations",
        ),
        (
            "fast_written_bytes",
            "bytes written to the fastest tier, by programs and migrations",
        ),
        ("migration_written_bytes", "bytes written by migrations"),
        (
            "profiling_share",
            "of the programs' thread time: marking, hint faults, samples, probes",
        ),
        (
            "scan_share",
            "of the run's time: scanning named pages, and what the programs paid for profiling, as one thread's",
        ),
        (
            "migration_share",
            "of the programs' thread time: migrating, workers included",
        ),
        (
            "supervisor_share",
            "of the programs' thread time: what the supervisor worked beside them",
        ),
        (
            "stall_share",
            "of the programs' thread time: waiting for pages that were moving",
        ),
        (
            "inaccessible_p99_ns",
            "ns a migrated page was inaccessible, 99th percentile",
        ),
        (
            "recall",
            "of the accesses to hot pages, the share served by the fast tier, last third",
        ),
        (
            "precision",
            "of the accesses served by the fast tier, the share to hot pages, last third",
        ),
        ("f1", "harmonic mean of recall and precision"),
        (
            "page_promotion_ratio",
            "promotions per page that was accessed on a slow tier",
        ),
        (
            "idle_correlation",
            "of the logarithms of pages' last captured idle times and rates, -1 to 1",
        ),
        (
            "idle_intervals",
            "last captured idle time of a page in mean intervals between its accesses, mean of all pages",
        ),
        (
            "seconds_to_90pct",
            "s until 90 % of the final rate was reached for good",
        ),
        (
            "seconds_to_recover",
            "s from the last change of phase until 90 % of the rate before it was back for good",
        ),
        ("of_oracle", "ops_per_s as a share of the oracle's"),
        (
            "metadata_bytes_per_page",
            "bytes of the policy's metadata a resident base page",
        ),
    ];

    /// The value of a metric; `None` if it was not measured or there is no such metric.
    #[must_use]
    pub fn metric(&self, name: &str) -> Option<f64> {
        let stats = &self.stats;
        Some(match name {
            "ops_per_s" => self.ops_per_s()?,
            "ops_per_s_first" => mean(self.third(0).iter().map(|p| p.ops_per_s))?,
            "in_progress_ops_per_s" => {
                let first = self.series.iter().position(|p| p.migrating)?;
                let last = self.series.iter().rposition(|p| p.migrating)?;
                mean(self.series[first..=last].iter().map(|p| p.ops_per_s))?
            }
            "stable_ops_per_s" => {
                let from = self.series.len() - self.series.len().div_ceil(10);
                mean(self.series[from..].iter().map(|p| p.ops_per_s))?
            }
            "mean_ops_per_s" => self.programs.iter().map(|p| p.visits).sum::<f64>() / self.seconds,
            "fast_access_ratio" => mean(self.third(2).iter().map(|p| p.fast_access_ratio))?,
            "slow_access_ratio" => 1.0 - self.metric("fast_access_ratio")?,
            "promoted_pages" => real(stats.promoted_pages),
            "demoted_pages" => real(stats.demoted_pages),
            "promoted_bytes" => real(stats.promoted_bytes),
            "migrated_pages" => real(stats.promoted_pages + stats.demoted_pages),
            "tpm_committed" => real(stats.tpm_committed),
            "tpm_aborted" => real(stats.tpm_aborted),
            "tpm_success_ratio" if stats.tpm_committed + stats.tpm_aborted == 0 => return None,
            "tpm_success_ratio" => real(stats.tpm_committed) / real(stats.tpm_aborted.max(1)),
            "shadow_hits" => real(stats.shadow_hits),
            "shadow_bytes_max" => real(self.shadow_bytes_max),
            "shadow_bytes_end" => real(self.shadow_bytes_end),
            "allocations_failed" => real(self.allocations_failed),
            "hint_faults" => real(stats.hint_faults),
            "samples" => real(stats.samples),
            "samples_lost_share" => {
                real(stats.samples_lost) / real((stats.samples + stats.samples_lost).max(1))
            }
            "writes_waited_share" => self.writes_waited / self.written_lines.max(1.0),
            "slow_written_bytes" => self.written(|tier| tier > 0),
            "fast_written_bytes" => self.written(|tier| tier == 0),
            "migration_written_bytes" => {
                real(self.nodes.iter().map(|n| n.migration_written_bytes).sum())
            }
            "profiling_share" => self.profiling_ns / self.thread_ns,
            "scan_share" => (self.scan_ns + self.profiling_ns) / (self.seconds * 1e9),
            "migration_share" => (self.migration_ns + self.worker_ns) / self.thread_ns,
            "supervisor_share" => self.supervisor_ns / self.thread_ns,
            "stall_share" => self.stall_ns / self.thread_ns,
            "inaccessible_p99_ns" if stats.inaccessible_ns.count == 0 => return None,
            "inaccessible_p99_ns" => real(stats.inaccessible_ns.p99),
            "recall" => self.quality?.recall,
            "precision" => self.quality?.precision,
            "f1" => self.quality?.f1,
            "page_promotion_ratio" => self.quality?.page_promotion_ratio?,
            "idle_correlation" => self.quality?.idle?.correlation,
            "idle_intervals" => self.quality?.idle?.intervals,
            "seconds_to_90pct" => self.seconds_to_90pct()?,
            "seconds_to_recover" => self.seconds_to_recover()?,
            "of_oracle" => self.ops_per_s()? / self.oracle_ops_per_s?,
            "metadata_bytes_per_page" => real(self.metadata_bytes) / real(self.base_pages),
            _ => return None,
        })
    }

    fn third(&self, which: usize) -> &[Point] {
        let length = self.series.len();
        &self.series[length * which / 3..length * (which + 1) / 3]
    }

    fn ops_per_s(&self) -> Option<f64> {
        mean(self.third(2).iter().map(|p| p.ops_per_s))
    }

    fn seconds_to_90pct(&self) -> Option<f64> {
        let mark = self.ops_per_s()? * 0.9;
        match self.series.iter().rposition(|p| p.ops_per_s < mark) {
            None => Some(0.0),
            Some(last) => self.series.get(last + 1).map(|_| self.series[last].t),
        }
    }

    /// Nothing where no phase changed, or the rate never came back.
    fn seconds_to_recover(&self) -> Option<f64> {
        let changed = self.phase_changed_s?;
        let (before, after): (Vec<_>, Vec<_>) = self.series.iter().partition(|p| p.t <= changed);
        let last = &before[before.len().saturating_sub(10)..];
        let mark = mean(last.iter().map(|p| p.ops_per_s))? * 0.9;
        match after.iter().rposition(|p| p.ops_per_s < mark) {
            None => Some(0.0),
            Some(low) => after.get(low + 1).map(|_| after[low].t - changed),
        }
    }

    fn written(&self, tier: impl Fn(u16) -> bool) -> f64 {
        let of = self.nodes.iter().filter(|n| tier(n.tier));
        real(
            of.map(|n| n.written_bytes + n.migration_written_bytes)
                .sum(),
        )
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a figure for printing and comparing"
)]
fn real(count: u64) -> f64 {
    count as f64
}
