// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab compare`, and `terrace-lab scenario`, which it runs in the guest.

use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use terrace_lab::compare::case;
use terrace_lab::compare::case::Case;
use terrace_lab::compare::case::Start;
use terrace_lab::compare::matrix;
use terrace_lab::compare::matrix::Plan;
use terrace_lab::compare::record::DEFAULT_SYSTEMS;
use terrace_lab::compare::record::System;
use terrace_lab::compare::scenario;
use terrace_lab::compare::scenario::Setting;
use terrace_lab::compare::table;
use terrace_lab::kernel::Kernel;
use terrace_machine_spec::Machine;

/// Options of `terrace-lab compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// Machine description
    #[arg(long, value_name = "FILE")]
    machine: PathBuf,
    /// Workloads, e.g. nomad-small-read,redis,gups:full; `terrace-bench list` names them, :slow and :full are as --start
    #[arg(long, value_delimiter = ',', required = true)]
    workloads: Vec<Case>,
    /// Where the pages of each workload start, one or both [default: as the workload says]
    #[arg(long, value_delimiter = ',', value_enum)]
    start: Vec<Start>,
    /// Threads of a workload, over all its programs [default: the machine's processors]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Systems, in the order in which they run; a policy may have parameters: POLICY:NAME=VALUE
    #[arg(
        long,
        value_delimiter = ',',
        default_value = DEFAULT_SYSTEMS.as_str()
    )]
    systems: Vec<System>,
    /// Write the results as JSON, after each run
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the results as a page, after each run
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measured seconds of each run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=3600))]
    seconds: u64,
    /// Run each pair this often, in turns; the median counts, and two systems are judged by the 95 %
    /// interval of the ratio of their rates
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Begin no further round that would end later than this after the start
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    within: Option<Duration>,
    /// Kernel to boot: a fetched release (6.12, 7.3) or an image [default: 6.12]
    #[arg(long, value_name = "NAME|FILE")]
    kernel: Option<PathBuf>,
    /// Modules of that kernel
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// Where the programs terrace and terrace-bench are [default: beside this one]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
    /// Seed of the workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Free fast memory that the workloads are sized for [default: what is free]
    #[arg(long, value_name = "SIZE", value_parser = terrace_core::parse_bytes)]
    fast_free: Option<u64>,
    /// The workloads of `terrace-bench` ask for transparent huge pages
    #[arg(long)]
    huge: bool,
    /// Each thread of a workload of `terrace-bench` stays on a socket, in turn, of all programs together
    #[arg(long)]
    bind: bool,
    /// One more option for `terrace run` (may be repeated)
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    terrace_option: Vec<String>,
}

/// Options of `terrace-lab scenario`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScenarioArgs {
    #[arg(long)]
    case: Case,
    #[arg(long)]
    threads: u32,
    #[arg(long)]
    system: System,
    #[arg(long)]
    seconds: u64,
    #[arg(long)]
    fast_free: Option<u64>,
    #[arg(long)]
    huge: bool,
    #[arg(long, default_value_t = 0)]
    fast_node: usize,
    #[arg(long, default_value_t = 1)]
    slow_node: usize,
    #[arg(long)]
    order: Vec<String>,
    #[arg(long)]
    bind: bool,
    #[arg(long)]
    tools: PathBuf,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, allow_hyphen_values = true)]
    terrace_option: Vec<String>,
}

/// Each workload from each start.
pub(crate) fn cases(workloads: &[Case], starts: &[Start]) -> Vec<Case> {
    let each = workloads.iter().cloned();
    each.flat_map(|case| case.from_each(starts)).collect()
}

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let machine = Machine::load(&args.machine)?;
    let kernel = Kernel::find(args.kernel.as_deref(), args.modules.as_deref())?;
    let program = std::env::current_exe().context("Cannot find the running program")?;
    let beside = program.parent().unwrap_or(Path::new("/"));
    let tools = args.tools.clone().unwrap_or_else(|| beside.to_owned());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let plan = Plan {
        machine: &machine,
        machine_file: &args.machine,
        kernel: &kernel,
        tools: std::fs::canonicalize(&tools)
            .with_context(|| format!("No directory {}", tools.display()))?,
        program,
        python_path: root.join("target/lab/py"),
        cases: cases(&args.workloads, &args.start),
        threads: args.threads.unwrap_or_else(|| case::processors(&machine)),
        systems: args.systems.clone(),
        time: Duration::from_secs(args.seconds),
        rounds: args.rounds,
        within: args.within,
        seed: args.seed,
        fast_free: args.fast_free,
        huge: args.huge,
        bind: args.bind,
        terrace_options: args.terrace_option.clone(),
        json: args.json.clone(),
        html: args.html.clone(),
    };
    let records = matrix::run(&plan, |line| eprintln!("{line}"))?;
    println!("{}", table::render(&records));
    let failed = records.iter().any(|record| record.failed.is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

pub(crate) fn scenario(args: ScenarioArgs) -> ExitCode {
    let good = scenario::main(&Setting {
        case: args.case,
        threads: args.threads,
        system: args.system,
        time: Duration::from_secs(args.seconds),
        fast_free: args.fast_free,
        huge: args.huge,
        fast_node: args.fast_node,
        slow_node: args.slow_node,
        orders: args.order,
        bind: args.bind,
        tools: args.tools,
        terrace_options: args.terrace_option,
        seed: args.seed,
    });
    ExitCode::from(u8::from(!good))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct One {
        #[command(flatten)]
        args: CompareArgs,
    }

    fn names(options: &[&str]) -> Result<Vec<String>, String> {
        let all = ["compare", "--machine", "m"].iter().chain(options);
        let one = One::try_parse_from(all).map_err(|error| error.to_string())?;
        let all = cases(&one.args.workloads, &one.args.start);
        Ok(all.iter().map(Case::to_string).collect())
    }

    #[test]
    fn starts_come_from_the_option_or_the_workload() {
        let of = |start: &str| names(&["--workloads", "gups,redis:full", "--start", start]);
        assert_eq!(of("slow").unwrap(), ["gups:slow", "redis:full"]);
        let both = ["gups:slow", "gups:full", "redis:full"];
        assert_eq!(of("slow,full").unwrap(), both);
        let error = of("empty").unwrap_err();
        assert!(error.contains("slow, full"), "{error}");
        assert_eq!(names(&["--workloads", "gups"]).unwrap(), ["gups"]);
        let error = names(&["--workloads", "gups:empty"]).unwrap_err();
        assert!(error.contains("no start 'empty'"), "{error}");
    }
}
