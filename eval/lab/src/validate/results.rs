// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a validation came to, in the compact form that is kept in the repository: the table is made of it, and the
//! simulator can be held against its figures again without the lab. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use serde_json::Map;
use serde_json::Value;
use terrace_experiment::RunInfo;

use super::cells::Settings;
use super::judge;
use super::judge::Verdict;
use crate::compare::analysis::median;
use crate::compare::case::Case;
use crate::compare::record::RunRecord;
use crate::compare::record::System;
use crate::job::GuestNode;

/// Everything.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// What the lab's runs were made with; the kernel is the guest's, and parameters are by system
    /// ([`parameters_by_system`]).
    pub run: RunInfo,
    /// A hash of the simulator's sources that made the simulated figures.
    pub simulator: String,
    /// What the cells have in common.
    pub settings: Settings,
    /// By workload and size of the fast node.
    pub cases: Vec<CaseResult>,
}

/// One workload from one start, at one size of the fast tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The workload, and where its pages started.
    pub case: Case,
    /// Whether nothing was ever measured with it to make the lab's costs or the simulator.
    pub set_aside: bool,
    /// Size of the fast node, bytes.
    pub fast_bytes: u64,
    /// What the guest's kernel keeps free (`vm.min_free_kbytes`), bytes.
    pub min_free_bytes: u64,
    /// The systems.
    pub systems: Vec<SystemResult>,
}

/// A system in the lab and in the simulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemResult {
    /// The system.
    pub system: System,
    /// The lab's rounds, in their order.
    pub lab: Vec<LabRun>,
    /// Memory of the guest's nodes before the first round's workload began.
    pub nodes: Vec<GuestNode>,
    /// In the simulator with the lab's costs.
    pub simulated: Figures,
    /// In the simulator with the papers' costs and memory that is not slowed.
    pub real: Figures,
}

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Mean of the last third.
    pub ops_per_s: f64,
    /// Share of fast accesses in the last third.
    pub fast_access_ratio: f64,
    /// Pages moved to the fast node.
    pub promoted_pages: u64,
    /// Pages moved away from it.
    pub demoted_pages: u64,
    /// Hint faults; absent where nobody counted them.
    pub hint_faults: Option<u64>,
    /// Processor time of Terrace's supervisor and agent over the whole run, s; absent where it is not Terrace.
    pub own_s: Option<f64>,
}

/// A round in the lab.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LabRun {
    /// What it came to.
    #[serde(flatten)]
    pub figures: Figures,
    /// How fast the host was, as in [`RunRecord`].
    pub host_pace: Option<f64>,
    /// Share of the host that others used.
    pub host_busy_ratio: Option<f64>,
}

impl LabRun {
    /// Of a run.
    ///
    /// # Errors
    ///
    /// Where it has no figures.
    pub fn of(record: &RunRecord) -> anyhow::Result<Self> {
        let what = || {
            format!(
                "{} under {} has no figures",
                record.workload,
                record.system.name()
            )
        };
        let stats = record.terrace.as_ref().map(|status| &status.stats);
        Ok(Self {
            figures: Figures {
                ops_per_s: record.ops_per_s.with_context(what)?,
                fast_access_ratio: record.fast_access_ratio.with_context(what)?,
                promoted_pages: record.moves.promoted_pages,
                demoted_pages: record.moves.demoted_pages,
                hint_faults: stats.map(|stats| stats.hint_faults),
                own_s: stats.map(|stats| Duration::from_nanos(stats.terrace_cpu_ns).as_secs_f64()),
            },
            host_pace: record.host_pace,
            host_busy_ratio: record.host_busy_ratio,
        })
    }
}

/// The parameters that each system ran with in the lab, those that have their defaults too; of one without, none.
pub fn parameters_by_system<'a>(
    runs: impl IntoIterator<Item = &'a RunRecord>,
) -> BTreeMap<String, Value> {
    let of = |record: &RunRecord| {
        let parameters = &record.run.as_ref()?.parameters;
        let object: Map<String, Value> = parameters.clone().into_iter().collect();
        Some((record.system.name().to_owned(), object.into()))
    };
    runs.into_iter().filter_map(of).collect()
}

impl SystemResult {
    /// Median of the lab's rounds; 0 of none.
    #[must_use]
    pub fn rate(&self) -> f64 {
        median(self.lab.iter().map(|run| run.figures.ops_per_s))
    }

    /// Likewise, the share of fast accesses.
    #[must_use]
    pub fn share(&self) -> f64 {
        median(self.lab.iter().map(|run| run.figures.fast_access_ratio))
    }

    /// Likewise, the processor time of Terrace's own; absent where it is not Terrace.
    #[must_use]
    pub fn own_s(&self) -> Option<f64> {
        let own: Vec<f64> = self
            .lab
            .iter()
            .filter_map(|run| run.figures.own_s)
            .collect();
        (!own.is_empty()).then(|| median(own))
    }

    /// The slowest and the fastest round's rate.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let rates = self.lab.iter().map(|run| run.figures.ops_per_s);
        rates.fold((f64::INFINITY, 0.0), |(low, high), rate| {
            (rate.min(low), rate.max(high))
        })
    }
}

impl CaseResult {
    /// What of the fast node was free when the workload began, bytes.
    #[must_use]
    pub fn fast_free_bytes(&self, fast_node: usize) -> u64 {
        let first = self.systems.first();
        let node = first.and_then(|system| system.nodes.iter().find(|node| node.id == fast_node));
        node.map_or(0, |node| node.free_kib << 10)
    }
}

impl Results {
    /// Whether lab and simulator agree in all cases.
    #[must_use]
    pub fn agree(&self) -> bool {
        self.cases.iter().all(|case| Verdict::of(case).agrees())
    }

    /// Whether the judge refuses every simulator with two systems exchanged that the lab tells apart, and there is one.
    #[must_use]
    pub fn nulls_are_caught(&self) -> bool {
        let nulls: Vec<_> = self.cases.iter().flat_map(judge::nulls).collect();
        !nulls.is_empty() && nulls.iter().all(|null| null.caught)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_system_has_its_own_parameters() {
        let made_by = || ("QEMU 1".to_owned(), "6.12".to_owned());
        let ran = |system: &str| {
            let run = RunInfo::of_machine(("m", &0), "m.toml".as_ref(), made_by());
            let given = BTreeMap::from([("sample_period".to_owned(), 397.into())]);
            let system: System = system.parse().expect("a system");
            RunRecord {
                run: Some(Box::new(run.with_parameters(system.policy(), given))),
                ..RunRecord::failed("gups", system, String::new())
            }
        };
        let runs = [ran("hemem"), ran("adaptive"), ran("hemem")];
        let parameters = parameters_by_system(&runs);
        assert_eq!(parameters.len(), 2);
        assert_eq!(parameters["hemem"]["sample_period"], 397, "as given");
        assert!(
            parameters["hemem"]["cooling_threshold"].is_string(),
            "default"
        );
        assert!(
            parameters["adaptive"]["cooling_threshold"].is_null(),
            "not its own"
        );
    }
}
