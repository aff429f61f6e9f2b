// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab validate`: the simulator against the lab.
//!
//! Exit code 1 where they disagree, where the judge would not have noticed, or where cells are still to be run.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::ensure;
use terrace_core::parse_bytes;
use terrace_experiment::Kept;
use terrace_experiment::RunInfo;
use terrace_experiment::hash_of;
use terrace_experiment::simulator_revision;
use terrace_lab::compare::case;
use terrace_lab::compare::case::Case;
use terrace_lab::compare::case::Start;
use terrace_lab::compare::matrix::replace;
use terrace_lab::compare::record::DEFAULT_SYSTEMS;
use terrace_lab::compare::record::RunRecord;
use terrace_lab::compare::record::System;
use terrace_lab::kernel::Kernel;
use terrace_lab::validate::cells;
use terrace_lab::validate::cells::Bench;
use terrace_lab::validate::cells::Settings;
use terrace_lab::validate::results::CaseResult;
use terrace_lab::validate::results::Figures;
use terrace_lab::validate::results::LabRun;
use terrace_lab::validate::results::Results;
use terrace_lab::validate::results::SystemResult;
use terrace_lab::validate::results::parameters_by_system;
use terrace_lab::validate::simulated;
use terrace_lab::validate::table;
use terrace_machine_spec::Machine;
use terrace_sim::Costs;

use crate::cmd_compare::cases;

/// Options of `terrace-lab validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Machine description
    #[arg(long, value_name = "FILE", default_value = "machines/cxl-2tier.toml")]
    machine: PathBuf,
    /// Workloads, as for `compare`
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "gups:slow,gups:full,zipf:full"
    )]
    workloads: Vec<Case>,
    /// More of them, which nothing was ever made to fit
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "drifting:slow,pmbench:full,gups-writeskew:slow"
    )]
    set_aside: Vec<Case>,
    /// Where the pages of a workload start that does not say so itself, one or both
    #[arg(long, value_delimiter = ',', value_enum, default_value = "slow")]
    start: Vec<Start>,
    /// Threads of a workload, over all its programs [default: the machine's processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Sizes of the emulated machine's fast node
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, default_value = "250MiB")]
    fast: Vec<u64>,
    /// Systems
    #[arg(
        long,
        value_delimiter = ',',
        default_value = DEFAULT_SYSTEMS.as_str()
    )]
    systems: Vec<System>,
    /// Free fast memory that the workloads are sized for, whatever the fast node's size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "110MiB")]
    sized_for: u64,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 22, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    /// Seed of the workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each cell runs in the lab, in turns: the median counts
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    rounds: u32,
    /// At most so many runs in the lab; the others when it is called again
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Costs that the simulator takes for the lab, instead of its own file
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Where the lab's runs are kept; another build's are not taken
    #[arg(long, value_name = "DIR", default_value = "results/validate")]
    cells: PathBuf,
    /// Take the lab's figures from these results instead, and simulate again
    #[arg(long, value_name = "FILE", conflicts_with_all = ["workloads", "set_aside", "fast", "systems", "rounds", "at_most"])]
    lab_from: Option<PathBuf>,
    /// Simulate nothing either: judge the figures of --lab-from as they are
    #[arg(long, requires = "lab_from")]
    as_kept: bool,
    /// Write the results, from which the table is made
    #[arg(long, value_name = "FILE", default_value = "results/validate.json")]
    json: PathBuf,
    /// Write the table into this document, below its marker
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Kernel to boot: a fetched release (6.12, 7.3) or an image [default: 6.12]
    #[arg(long, value_name = "NAME|FILE")]
    kernel: Option<PathBuf>,
    /// Modules of that kernel
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
}

pub(crate) fn main(args: &ValidateArgs) -> anyhow::Result<ExitCode> {
    let machine = Machine::load(&args.machine)?;
    if let Some(path) = &args.document {
        // Before hours of work.
        table::into_document(&read(path)?, "")?;
    }
    let (mut results, left) = match &args.lab_from {
        Some(path) => {
            let results: Results = serde_json::from_str(&read(path)?)
                .with_context(|| format!("{} was not written by validate", path.display()))?;
            ensure!(
                results.settings.machine_hash == hash_of(&machine),
                "{} is of another machine than {}",
                path.display(),
                args.machine.display()
            );
            (results, 0)
        }
        None => from_lab(args, &machine)?,
    };
    if !args.as_kept {
        simulate(args, &machine, &mut results)?;
    }
    let text = table::markdown(&results, machine.ranking(0)[0]);
    println!("{text}");
    if left > 0 {
        eprintln!("terrace-lab: {left} runs are left; call it again");
        return Ok(ExitCode::from(1));
    }
    let json = serde_json::to_string_pretty(&results)? + "\n";
    replace(&args.json, &json)?;
    if let Some(path) = &args.document {
        replace(path, &table::into_document(&read(path)?, &text)?)?;
    }
    let good = results.agree() && results.nulls_are_caught();
    Ok(ExitCode::from(u8::from(!good)))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))
}

/// Runs what is not kept; nothing is simulated yet. And how many runs are left.
fn from_lab(args: &ValidateArgs, machine: &Machine) -> anyhow::Result<(Results, usize)> {
    let kernel = Kernel::find(args.kernel.as_deref(), args.modules.as_deref())?;
    let program = std::env::current_exe().context("Cannot find the running program")?;
    let tools = program.parent().unwrap_or(Path::new("/")).to_owned();
    let settings = Settings {
        machine: machine.name.clone(),
        machine_hash: hash_of(machine),
        kernel: cells::kernel_hash(&kernel)?,
        programs: cells::programs_hash(&tools)?,
        threads: args.threads.unwrap_or_else(|| case::processors(machine)),
        sized_for: args.sized_for,
        seconds: args.seconds,
        seed: args.seed,
    };
    let bench = Bench {
        machine,
        machine_file: &args.machine,
        kernel: &kernel,
        program,
        tools,
        settings,
        kept: Kept::new(args.cells.clone()),
    };
    let (records, left) = lab(args, &bench)?;
    let run = records.iter().flatten().find_map(|run| run.run.as_deref());
    let run = run.context("No run says what it was made with")?;
    let run = RunInfo {
        parameters: parameters_by_system(records.iter().flatten()),
        ..run.clone()
    };
    Ok((in_cases(args, &bench, &records, run)?, left))
}

/// The rounds of each cell, kept ones and new ones, and how many runs are left.
fn lab(args: &ValidateArgs, bench: &Bench<'_>) -> anyhow::Result<(Vec<Vec<RunRecord>>, usize)> {
    let cells = all_cells(args);
    let mut rounds = vec![Vec::new(); cells.len()];
    let (mut new, mut left) = (0, 0);
    for round in 1..=args.rounds {
        for (at, cell) in cells.iter().enumerate() {
            if let Some(old) = bench.kept(cell, round) {
                rounds[at].push(old.record);
            } else if args.at_most.is_some_and(|most| new >= most) {
                left += 1;
            } else {
                let size = cell.fast_bytes >> 20;
                let of = cells.len();
                eprintln!("round {round}, cell {} of {of}, {size} MiB fast", at + 1);
                let run = bench.run(cell, round, |line| eprintln!("{line}"))?;
                rounds[at].push(run.record);
                new += 1;
            }
        }
    }
    Ok((rounds, left))
}

fn all_cases(args: &ValidateArgs) -> (Vec<Case>, usize) {
    let known = cases(&args.workloads, &args.start);
    let count = known.len();
    let all = known.into_iter();
    (
        all.chain(cases(&args.set_aside, &args.start)).collect(),
        count,
    )
}

fn all_cells(args: &ValidateArgs) -> Vec<cells::Cell> {
    cells::all(&all_cases(args).0, &args.fast, &args.systems)
}

/// The cells in their cases, those of which no system is missing.
fn in_cases(
    args: &ValidateArgs,
    bench: &Bench<'_>,
    records: &[Vec<RunRecord>],
    run: RunInfo,
) -> anyhow::Result<Results> {
    let (all, known) = all_cases(args);
    let by_case = all_cells(args);
    let by_case = by_case
        .chunks(args.systems.len())
        .zip(records.chunks(args.systems.len()));
    let mut cases = Vec::new();
    for (cells, rounds) in by_case {
        if rounds.iter().any(Vec::is_empty) {
            continue;
        }
        let (case, fast_bytes) = (&cells[0].case, cells[0].fast_bytes);
        let systems = cells.iter().zip(rounds).map(|(cell, rounds)| {
            let lab = rounds.iter().map(LabRun::of);
            Ok(SystemResult {
                system: cell.system,
                lab: lab.collect::<anyhow::Result<_>>()?,
                nodes: rounds[0].nodes.clone(),
                simulated: Figures::default(),
                real: Figures::default(),
            })
        });
        cases.push(CaseResult {
            case: case.clone(),
            set_aside: !all[..known].contains(case),
            fast_bytes,
            min_free_bytes: bench.min_free(fast_bytes)?,
            systems: systems.collect::<anyhow::Result<_>>()?,
        });
    }
    Ok(Results {
        run,
        simulator: String::new(),
        settings: bench.settings.clone(),
        cases,
    })
}

/// Fills in the simulated figures.
fn simulate(args: &ValidateArgs, machine: &Machine, results: &mut Results) -> anyhow::Result<()> {
    let costs = match &args.costs {
        None => Costs::lab(),
        Some(path) => Costs::papers()
            .with_toml(&read(path)?)
            .with_context(|| path.display().to_string())?,
    };
    results.run.costs = Some(costs.clone());
    results.simulator = simulator_revision();
    for case in &mut results.cases {
        for at in 0..case.systems.len() {
            let of = &case.systems[at];
            let run = |costs| {
                simulated::run(&simulated::setup(
                    machine,
                    &results.settings,
                    case,
                    of,
                    costs,
                )?)
            };
            let (simulated, real) = (run(costs.clone())?, run(Costs::papers())?);
            let of = &mut case.systems[at];
            (of.simulated, of.real) = (simulated, real);
        }
    }
    Ok(())
}
