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
        System::None | System::Autonuma | System::Damon(_) | System::Preset(_) | System::Oracle => {
            system.policy()
        }
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
        let own = of.system.parameters();
        for (name, value) in own.filter_map(|own| own.split_once('=')) {
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::job::GuestNode;

    fn of(case: &str, system: &str) -> Setup {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).unwrap();
        let settings = Settings {
            machine: machine.name.clone(),
            machine_hash: String::new(),
            kernel: String::new(),
            programs: String::new(),
            threads: 2,
            sized_for: 64 << 20,
            seconds: 10,
            seed: 3,
        };
        let node = GuestNode {
            id: 0,
            total_kib: 1000,
            free_kib: 400,
            tier: String::new(),
        };
        let of = SystemResult {
            system: system.parse().unwrap(),
            lab: Vec::new(),
            nodes: vec![node],
            simulated: Figures::default(),
            real: Figures::default(),
        };
        let result = CaseResult {
            case: case.parse().unwrap(),
            set_aside: false,
            fast_bytes: 100 << 20,
            min_free_bytes: 5 << 20,
            systems: Vec::new(),
        };
        setup(&machine, &settings, &result, &of, Costs::lab()).unwrap()
    }

    #[test]
    fn the_simulator_gets_the_lab_s_threads_start_and_memory() {
        let setup = of("gups:full", "kernel");
        let program = &setup.workload.programs[0];
        assert_eq!(program.threads, 2);
        assert_eq!(program.start, terrace_workload::Start::FirstTouch);
        assert_eq!(setup.system, MODEL_OF_KERNEL.name);
        assert_eq!(
            (setup.free[&0], setup.reserved[&0]),
            (1000 << 10, 600 << 10)
        );
        assert_eq!(setup.machine.nodes[0].lab_bytes, Some(100 << 20));
        let setup = of("pmbench:slow", "none");
        assert_eq!(
            setup.workload.programs[0].start,
            terrace_workload::Start::Slow
        );
    }

    #[test]
    fn a_preset_has_the_parameters_that_the_lab_gives_it() {
        let setup = of("gups:slow", "hemem");
        assert_eq!(setup.params["sample_period"].as_integer(), Some(397));
        assert_eq!(setup.params["policy_interval"].as_str(), Some("200000000"));
        assert!(of("gups:slow", "nomad").params.is_empty());
    }
}
