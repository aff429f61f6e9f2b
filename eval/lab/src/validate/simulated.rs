// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell in the simulator: the lab's set-up, as far as the simulator knows such things.

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use terrace_machine_spec::Machine;
use terrace_sim::Costs;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

use super::cells::CellRun;
use super::cells::resized;
use crate::compare::record::MODEL_OF_KERNEL;
use crate::compare::record::RunRecord;
use crate::compare::record::System;

/// What a run came to, in the lab or in the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Median of the last third; of several runs, the median of theirs.
    pub ops_per_s: f64,
    /// The slowest and the fastest run's.
    pub range: (f64, f64),
    /// Share of fast accesses in the last third.
    pub fast_access_ratio: f64,
    /// Pages moved to the fast node.
    pub promoted_pages: u64,
    /// Pages moved away from it.
    pub demoted_pages: u64,
    /// Hint faults; absent where nobody counted them.
    pub hint_faults: Option<u64>,
}

/// The lab's figures; absent where the run has none.
#[must_use]
pub fn of_lab(record: &RunRecord) -> Option<Figures> {
    let status = record.terrace.as_ref();
    let ops_per_s = record.ops_per_s?;
    let runs = record.rates().into_iter();
    let range = runs.fold((ops_per_s, ops_per_s), |(low, high), rate| {
        (rate.min(low), rate.max(high))
    });
    Some(Figures {
        ops_per_s,
        range,
        fast_access_ratio: record.fast_access_ratio?,
        promoted_pages: record.moves.promoted_pages,
        demoted_pages: record.moves.demoted_pages,
        hint_faults: status.map(|status| status.stats.hint_faults),
    })
}

/// The simulator's name for a system.
fn system(system: System) -> &'static str {
    match system {
        System::Kernel => MODEL_OF_KERNEL.name,
        System::None | System::Damon(_) | System::Preset(_) | System::Oracle => system.name(),
    }
}

/// The same cell for the simulator: the machine's emulated sizes, of each node what the guest had free,
/// and what its kernel keeps free (`vm.min_free_kbytes`, in bytes).
///
/// # Errors
///
/// Where the workload cannot be made.
pub fn setup(
    machine: &Machine,
    kept: &CellRun,
    min_free: u64,
    costs: Costs,
) -> anyhow::Result<Setup> {
    let sizes = Sizes::fast_free(kept.settings.sized_for);
    let workload = Workload::named(&kept.cell.workload, &sizes)?;
    let machine = resized(machine, kept.cell.fast_bytes);
    let mut setup = Setup::new(machine, workload);
    setup.lab = true;
    setup.costs = costs;
    system(kept.cell.system).clone_into(&mut setup.system);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = kept.settings.seconds as f64;
    setup.seconds = seconds;
    setup.seed = kept.settings.seed;
    setup.min_free = Some(min_free);
    for node in &kept.record.nodes {
        let taken = node.total_kib.saturating_sub(node.free_kib);
        setup.free.insert(node.id, node.total_kib << 10);
        setup.reserved.insert(node.id, taken << 10);
    }
    Ok(setup)
}

/// Runs it.
///
/// # Errors
///
/// Where the simulator refuses the set-up.
pub fn run(setup: &Setup) -> anyhow::Result<Figures> {
    let outcome = terrace_sim::run(setup, &mut |_| {})?;
    let metric = |name: &str| {
        outcome
            .metric(name)
            .with_context(|| format!("The simulator gave no {name}"))
    };
    let ops_per_s = metric("ops_per_s")?;
    Ok(Figures {
        ops_per_s,
        range: (ops_per_s, ops_per_s),
        fast_access_ratio: metric("fast_access_ratio")?,
        promoted_pages: outcome.stats.promoted_pages,
        demoted_pages: outcome.stats.demoted_pages,
        hint_faults: Some(outcome.stats.hint_faults),
    })
}
