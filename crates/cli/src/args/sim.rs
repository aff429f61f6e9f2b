// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace sim` and `terrace sim compare` as they were typed.

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::Args;
use clap::Subcommand;
use terrace_core::parse_bytes;
use terrace_policy::DEFAULT;
use terrace_policy::Mover;
use terrace_policy::Preset;
use terrace_policy::TrackerKind;

use super::JsonArgs;

/// Every preset, and the oracle.
static COMPARED: LazyLock<String> =
    LazyLock::new(|| terrace_experiment::presets_and(&[], |_| true));

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct SimCli {
    #[command(subcommand)]
    pub(crate) command: Option<SimCommand>,
    #[command(flatten)]
    pub(crate) run: SimArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Simulate a matrix of machines, workloads and policies; write tables and a page with plots.
    Compare(CompareArgs),
}

/// What every simulation is told.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArgs {
    /// A parameter of the workload, e.g. working_set=32GiB.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) size: Vec<String>,
    /// Simulated seconds.
    #[arg(long, default_value_t = 60.0, value_name = "S")]
    pub(crate) seconds: f64,
    /// Same seed, same result.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Costs of all policies: those of the papers' systems (papers), of Terrace in user space (hardware), of the
    /// emulated machine (lab), or a file: TOML, or JSON as `terrace bench primitives --json` wrote it, whose values take
    /// the place of the policy's own. If not given, each policy has its own: the kernel's those of papers, Terrace's those of hardware.
    #[arg(long, value_name = "COSTS")]
    pub(crate) costs: Option<PathBuf>,
}

/// How a policy's simulation is played.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlayArgs {
    /// The workload in its paper's size, also with --fast-free.
    #[arg(long)]
    pub(crate) paper_sizes: bool,
    /// Play every visit (exact), or draw from the pages' rates (rate).
    #[arg(long, default_value = "rate", value_parser = ["exact", "rate"])]
    pub(crate) engine: String,
    /// The machine as the lab emulates it, with the lab's costs.
    #[arg(long)]
    pub(crate) lab: bool,
    /// No last-level cache.
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Programs run on the sockets in turn, else all on the first; --fast-free is divided over their nodes.
    #[arg(long)]
    pub(crate) spread: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SimArgs {
    /// Machine file.
    #[arg(long, value_name = "FILE", default_value = "machines/cxl-2tier.toml")]
    pub(crate) machine: PathBuf,
    /// What runs; `terrace bench --help` lists the names.
    #[arg(long, value_name = "NAME", default_value = "gups")]
    pub(crate) workload: String,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) play: PlayArgs,
    #[arg(long, value_name = "NAME", default_value = DEFAULT.name, help = format!(
        "Preset (`terrace policies`) or baseline: {}", terrace_sim::systems().join(", ")))]
    pub(crate) policy: String,
    /// A parameter of the policy, e.g. max_retries=2 or scan_period=500ms.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    #[arg(long, value_name = "PROGRAM=N", help = format!(
        "Priority of a program of the workload: what it saves counts N times more, or all of its memory is kept in the \
        fast tier, as the policy has it (those that heed it: {}). With `--workload mix --size of=kv:zipf+rest:gups` \
        the programs are kv and rest: kv=1",
        Preset::names_of(|preset| preset.priorities)))]
    pub(crate) priority: Vec<String>,
    #[arg(long, value_name = "PROGRAM=SIZE", help = format!(
        "What others do not push out of the fast tier of a program of the workload, as far as it uses it (policies \
        that keep to it: {})", Preset::names_of(|preset| preset.limits)))]
    pub(crate) floor: Vec<String>,
    #[arg(long, value_name = "PROGRAM=SIZE", help = format!(
        "How much of a program of the workload may be in the fast tier (policies that keep to it: {})",
        Preset::names_of(|preset| preset.limits)))]
    pub(crate) ceiling: Vec<String>,
    /// Where accesses are learnt from, as for `terrace run`: all of these together, of auto, accessed-bits,
    /// hint-faults, pmu.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "auto"
    )]
    pub(crate) tracker: Vec<TrackerKind>,
    /// Who moves pages: the kernel from outside the program (move-pages), an agent in it by transactions or as the
    /// preset has it (agent), the hint fault (in-fault), several threads beside the program until it writes
    /// (adaptive-copy) or while it waits (parallel-copy). auto: as the preset has it.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) mover: Mover,
    /// Size of the fastest node; the workload is sized in proportion.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) fast_free: Option<u64>,
    /// What memory is mapped with.
    #[arg(long, default_value = "4k", value_parser = ["4k", "2m", "1g"])]
    pub(crate) page_size: String,
    /// Do not run the oracle for comparison.
    #[arg(long)]
    pub(crate) no_oracle: bool,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Machine files.
    #[arg(long, value_name = "FILES", value_delimiter = ',', required = true)]
    pub(crate) machines: Vec<PathBuf>,
    /// What runs; `terrace bench --help` lists the names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    pub(crate) workloads: Vec<String>,
    /// Presets and baselines.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = COMPARED.as_str()
    )]
    pub(crate) policies: Vec<String>,
    /// Sizes of the fastest node; the workloads are sized in proportion.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = parse_bytes)]
    pub(crate) fast_free: Vec<u64>,
    /// What memory is mapped with: 4k, 2m, 1g.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', default_value = "4k",
        value_parser = ["4k", "2m", "1g"])]
    pub(crate) page_size: Vec<String>,
    #[command(flatten)]
    pub(crate) common: CommonArgs,
    #[command(flatten)]
    pub(crate) play: PlayArgs,
    /// Simulations at a time; as many as there are processors if not given.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<NonZero<usize>>,
    /// Where results.json, results.csv and index.html go. Finished runs are kept in its runs/: an
    /// interrupted matrix goes on from there.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// `5%` as 0.05.
pub(super) fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim().parse::<f64>();
    let number = number.ok().filter(|n| *n > 0.0 && *n <= 100.0);
    let number = number.ok_or_else(|| format!("'{text}' is no percentage; write e.g. 5%"))?;
    Ok(number / 100.0)
}
