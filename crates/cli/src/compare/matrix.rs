// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which runs a matrix has: every combination once, in the order in which it was asked for.

use terrace_experiment::RunInfo;
use terrace_policy::Mover;
use terrace_policy::TrackerKind;
use terrace_sim::Setup;

use super::record::Spec;
use crate::args::CompareArgs;
use crate::args::JsonArgs;
use crate::args::SimArgs;

/// One run to make.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) spec: Spec,
    pub(crate) setup: Setup,
    /// What it is made with.
    pub(crate) run: RunInfo,
}

/// All runs, checked; the error is one line for the user.
pub(crate) fn cells(args: &CompareArgs) -> Result<Vec<Cell>, String> {
    let fast: Vec<Option<u64>> = match &args.fast_free[..] {
        [] => vec![None],
        sizes => unique(sizes).into_iter().map(Some).collect(),
    };
    let mut cells = Vec::new();
    for machine in unique(&args.machines) {
        for workload in unique(&args.workloads) {
            for &fast_free in &fast {
                for page_size in unique(&args.page_size) {
                    for policy in unique(&args.policies) {
                        let one = SimArgs {
                            machine: machine.clone(),
                            workload: workload.clone(),
                            page_size: page_size.clone(),
                            policy,
                            fast_free,
                            ..common(args)
                        };
                        cells.push(cell(&one)?);
                    }
                }
            }
        }
    }
    Ok(cells)
}

fn cell(args: &SimArgs) -> Result<Cell, String> {
    let setup = crate::sim::setup(args).map_err(|error| format!("{error:#}"))?;
    let place = || {
        let file = args.machine.display();
        format!("{} on {file}, {}", args.workload, args.policy)
    };
    terrace_sim::check(&setup).map_err(|error| format!("{}: {error}", place()))?;
    let spec = Spec {
        machine: setup.machine.name.clone(),
        workload: args.workload.clone(),
        fast_free: args.fast_free,
        page_size: args.page_size.clone(),
        policy: args.policy.clone(),
        seconds: args.common.seconds,
        seed: args.common.seed,
    };
    let run = RunInfo::of_simulation(&setup, &args.machine);
    Ok(Cell { spec, setup, run })
}

/// What all runs have in common.
fn common(args: &CompareArgs) -> SimArgs {
    SimArgs {
        machine: std::path::PathBuf::new(),
        workload: String::new(),
        common: args.common.clone(),
        play: args.play.clone(),
        policy: String::new(),
        param: Vec::new(),
        priority: Vec::new(),
        floor: Vec::new(),
        ceiling: Vec::new(),
        tracker: vec![TrackerKind::Auto],
        mover: Mover::Auto,
        fast_free: None,
        page_size: String::new(),
        no_oracle: true,
        json: JsonArgs { json: false },
    }
}

/// Without what was named before.
fn unique<T: Clone + PartialEq>(names: &[T]) -> Vec<T> {
    let mut out: Vec<T> = Vec::new();
    for name in names {
        if !out.contains(name) {
            out.push(name.clone());
        }
    }
    out
}
