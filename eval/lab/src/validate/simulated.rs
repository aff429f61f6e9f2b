// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell in the simulator: the lab's set-up, as far as the simulator knows such things.

use anyhow::Context;
use terrace_machine_spec::Machine;
use terrace_policy::Preset;
use terrace_policy::UNMANAGED;
use terrace_sim::Costs;
use terrace_sim::Setup;

use super::cells::Settings;
use super::cells::resized;
use super::results::CaseResult;
use super::results::Figures;
use super::results::SystemResult;
use crate::compare::case;
use crate::compare::one_run;
use crate::compare::record::MODEL_OF_KERNEL;
use crate::compare::record::System;

/// The simulator's name for a system.
fn system(system: System) -> &'static str {
    match system {
        System::Kernel => MODEL_OF_KERNEL.name,
        System::None | System::Damon(_) | System::Preset(_) | System::Oracle => system.name(),
    }
}

/// The same cell for the simulator: the machine's emulated sizes, of each node what the guest had free, what its
/// kernel keeps free, and the preset's parameters as the lab sets them.
///
/// # Errors
///
/// Where the workload cannot be made.
pub fn setup(
    machine: &Machine,
    settings: &Settings,
    result: &CaseResult,
    of: &SystemResult,
    costs: Costs,
) -> anyhow::Result<Setup> {
    let case = &result.case;
    let threads = case::settings(&case.workload, settings.sized_for, settings.threads);
    let mut workload = case::sized(&case.workload, settings.sized_for, &threads)?;
    if let Some(start) = case.start {
        for program in &mut workload.programs {
            program.start = start.of_programs();
        }
    }
    let machine = resized(machine, result.fast_bytes);
    let mut setup = Setup::new(machine, workload);
    setup.lab = true;
    setup.costs = costs;
    system(of.system).clone_into(&mut setup.system);
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = settings.seconds as f64;
    setup.seconds = seconds;
    setup.seed = settings.seed;
    setup.min_free = Some(result.min_free_bytes);
    if let Some(preset) = of.system.preset() {
        for (name, value) in one_run::dilated(preset, &setup.machine) {
            setup.params.insert(name.to_owned(), value.into());
        }
        if let Some(period) = one_run::sample_period(preset) {
            let period = i64::from(period);
            setup
                .params
                .insert("sample_period".to_owned(), period.into());
        }
    }
    for node in &of.nodes {
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
    let in_user_space = Preset::of(&setup.system).is_some_and(Preset::in_user_space);
    let in_user_space = in_user_space && setup.system != UNMANAGED.name;
    Ok(Figures {
        ops_per_s: metric("ops_per_s")?,
        fast_access_ratio: metric("fast_access_ratio")?,
        promoted_pages: outcome.stats.promoted_pages,
        demoted_pages: outcome.stats.demoted_pages,
        hint_faults: Some(outcome.stats.hint_faults),
        own_s: in_user_space.then_some((outcome.supervisor_ns + outcome.worker_ns) / 1e9),
    })
}
