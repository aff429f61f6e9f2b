// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab validate`: the simulator against the lab.
//!
//! Exit code 1 where they disagree, or where cells are still to be run.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::ensure;
use terrace_core::parse_bytes;
use terrace_experiment::Kept;
use terrace_lab::compare::matrix::replace;
use terrace_lab::compare::record::SYSTEMS;
use terrace_lab::compare::record::System;
use terrace_lab::kernel::Kernel;
use terrace_lab::validate::cells;
use terrace_lab::validate::cells::Bench;
use terrace_lab::validate::cells::Cell;
use terrace_lab::validate::cells::CellRun;
use terrace_lab::validate::cells::Settings;
use terrace_lab::validate::judge::Case;
use terrace_lab::validate::judge::Row;
use terrace_lab::validate::simulated;
use terrace_lab::validate::table;
use terrace_machine_spec::Machine;
use terrace_sim::Costs;

/// Options of `terrace-lab validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct ValidateArgs {
    /// Machine description
    #[arg(long, value_name = "FILE", default_value = "machines/cxl-2tier.toml")]
    machine: PathBuf,
    /// Workloads; `terrace-bench list` names them
    #[arg(long, value_delimiter = ',', default_value = "gups,zipf")]
    workloads: Vec<String>,
    /// Sizes of the emulated machine's fast node
    #[arg(long, value_delimiter = ',', value_parser = parse_bytes, default_value = "200MiB,250MiB,350MiB")]
    fast: Vec<u64>,
    /// Systems
    #[arg(
        long,
        value_delimiter = ',',
        default_value = SYSTEMS.as_str()
    )]
    systems: Vec<System>,
    /// Free fast memory that the workloads are sized for, whatever the fast node's size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "110MiB")]
    sized_for: u64,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 45, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    /// Seed of the workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often each cell runs in the lab, in turns: two systems whose runs overlap count as equally fast
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10))]
    rounds: u32,
    /// At most so many runs in the lab; the others when it is called again
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Costs that the simulator takes for the lab, instead of its own file
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Where the lab's runs are kept; remove it to run them again
    #[arg(long, value_name = "DIR", default_value = "results/validate")]
    cells: PathBuf,
    /// Write the results as JSON
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
    let kernel = Kernel::find(args.kernel.as_deref(), args.modules.as_deref())?;
    let program = std::env::current_exe().context("Cannot find the running program")?;
    let tools = program.parent().unwrap_or(Path::new("/")).to_owned();
    let bench = Bench {
        machine: &machine,
        kernel: &kernel,
        program,
        tools,
        settings: Settings {
            machine: machine.name.clone(),
            sized_for: args.sized_for,
            seconds: args.seconds,
            seed: args.seed,
        },
        kept: Kept::new(args.cells.clone()),
    };
    let costs = match &args.costs {
        None => Costs::lab(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("Cannot read {}", path.display()))?;
            Costs::papers()
                .with_toml(&text)
                .with_context(|| path.display().to_string())?
        }
    };
    if let Some(path) = &args.document {
        // Before hours of work.
        table::into_document(&read(path)?, "")?;
    }
    let (kept, left) = lab(args, &bench)?;
    let cases = cases(args, &bench, &costs, &kept)?;
    let text = table::markdown(&cases);
    println!("{text}");
    let json = serde_json::to_string_pretty(&cases)? + "\n";
    replace(&args.json, &json)?;
    if left > 0 {
        eprintln!("terrace-lab: {left} runs are left; call it again");
        return Ok(ExitCode::from(1));
    }
    if let Some(path) = &args.document {
        replace(path, &table::into_document(&read(path)?, &text)?)?;
    }
    let agree = cases.iter().all(Case::agrees);
    Ok(ExitCode::from(u8::from(!agree)))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))
}

/// The lab's runs, kept ones and new ones, and how many are left.
fn lab(args: &ValidateArgs, bench: &Bench<'_>) -> anyhow::Result<(Vec<CellRun>, usize)> {
    let cells = cells::all(&args.workloads, &args.fast, &args.systems);
    let mut rounds = vec![Vec::new(); cells.len()];
    let (mut new, mut left) = (0, 0);
    for round in 1..=args.rounds {
        for (at, cell) in cells.iter().enumerate() {
            if let Some(old) = bench.kept(cell, round) {
                rounds[at].push(old);
            } else if args.at_most.is_some_and(|most| new >= most) {
                left += 1;
            } else {
                let size = cell.fast_bytes >> 20;
                let of = cells.len();
                eprintln!("round {round}, cell {} of {of}, {size} MiB fast", at + 1);
                rounds[at].push(bench.run(cell, round, |line| eprintln!("{line}"))?);
                new += 1;
            }
        }
    }
    Ok((rounds.into_iter().filter_map(cells::merged).collect(), left))
}

/// Simulates the lab's runs and judges those of which no system is missing.
fn cases(
    args: &ValidateArgs,
    bench: &Bench<'_>,
    costs: &Costs,
    kept: &[CellRun],
) -> anyhow::Result<Vec<Case>> {
    let fast = bench.machine.ranking(0)[0];
    let mut cases = Vec::new();
    for workload in &args.workloads {
        for &fast_bytes in &args.fast {
            let of = |cell: &Cell| cell.workload == *workload && cell.fast_bytes == fast_bytes;
            let runs: Vec<&CellRun> = kept.iter().filter(|kept| of(&kept.cell)).collect();
            if runs.len() < args.systems.len() {
                continue;
            }
            let runs = cells::related(&runs);
            let min_free = bench.min_free(fast_bytes)?;
            let rows: Vec<Row> = runs
                .iter()
                .map(|kept| row(bench.machine, costs, kept, min_free))
                .collect::<anyhow::Result<_>>()?;
            let node = runs[0].record.nodes.iter().find(|node| node.id == fast);
            let free = node.map_or(0, |node| node.free_kib << 10);
            cases.push(Case::new(workload.clone(), fast_bytes, free, rows));
        }
    }
    Ok(cases)
}

fn row(machine: &Machine, costs: &Costs, kept: &CellRun, min_free: u64) -> anyhow::Result<Row> {
    ensure!(
        !kept.record.nodes.is_empty(),
        "The kept run of {} has no node sizes; remove it",
        kept.cell.workload
    );
    let run = |costs| simulated::run(&simulated::setup(machine, kept, min_free, costs)?);
    Ok(Row {
        system: kept.cell.system,
        lab: simulated::of_lab(&kept.record).context("A kept run has no figures")?,
        simulated: run(costs.clone())?,
        real: run(Costs::papers())?,
    })
}
