// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line as it was typed. No system call here; `run.rs` and its siblings resolve it.

mod nodes;
mod sim;

use std::error::Error;
use std::ffi::OsString;
use std::path::Path;
use std::path::PathBuf;

use clap::Args;
use clap::Parser;
use clap::Subcommand;
use terrace_core::parse_bytes;
use terrace_policy::DEFAULT;
use terrace_policy::Mover;
use terrace_policy::Preset;
use terrace_policy::TrackerKind;
use terrace_supervisor::options::COPY_THREADS_MAX;
use terrace_sys::topology::Override;
use terrace_track::EventTable;

pub(crate) use sim::CompareArgs;
pub(crate) use sim::SimArgs;
pub(crate) use sim::SimCli;
pub(crate) use sim::SimCommand;

/// Transparent memory tiering: keep the pages that matter in the fast tier.
#[derive(Debug, Parser)]
#[command(
    name = "terrace",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program with its memory tiered.
    ///
    /// Goes on while the program or what descends from it lives, as `strace -f` does, and ends as the program itself did. A
    /// signal is the program's; once it has ended, a signal lets the others go on alone. With --no-follow the run
    /// ends with the program.
    Run(RunArgs),
    /// Tier the memory of a program that runs already (by move_pages, without transactions).
    Attach(AttachArgs),
    /// Show what the running supervisors do.
    Status(StatusArgs),
    /// Say what the policy believes of a process, and why it moves its pages or leaves them.
    Why(WhyArgs),
    /// Stop the supervisors from acting, until `resume`.
    Pause(StatusArgs),
    /// Let paused supervisors act.
    Resume(StatusArgs),
    /// List the policies: what each needs, and its parameters.
    Policies(PoliciesArgs),
    /// Show the memory nodes and the tiers they form.
    Tiers(TiersArgs),
    /// Say what this machine can do, what is missing and what follows.
    Doctor(DoctorArgs),
    /// Run a benchmark workload in this process.
    Bench(BenchArgs),
    /// Simulate a policy on a described machine.
    Sim(Box<SimCli>),
    /// Check the papers' claims in the simulator.
    Claims(ClaimsArgs),
    /// Write the manual pages (section 1) into a folder: what `make install` does.
    #[command(hide = true)]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Where to; it must exist.
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    #[arg(long, value_name = "NAME", default_value = DEFAULT.name, help = format!(
        "Preset (`terrace policies` says more): {}", Preset::names_of(Preset::in_user_space)))]
    pub(crate) policy: String,
    /// A parameter of the preset, such as hot_read_threshold=8 (may be repeated).
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) param: Vec<String>,
    /// Where accesses are learnt from: all of these together, of auto, accessed-bits, hint-faults, pmu,
    /// emulated-pmu. auto: the fewest more that give what the policy needs, the first of several that work here.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "auto"
    )]
    pub(crate) tracker: Vec<TrackerKind>,
    /// One sample in so many accesses [default: the preset's sample_period; in the lab the lab's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) sample_period: Option<u64>,
    /// Memory that the kernel's scanner arms in one step; a pass is as many steps as it needs.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = scan_size)]
    pub(crate) scan_size: u64,
    /// What PMU sampling may cost, of the time of the processors sampled.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = sim::percent)]
    pub(crate) sample_share: f64,
    /// Further events for the PMU, by processor (docs/pmu.md).
    #[arg(long, value_name = "FILE", value_parser = event_table)]
    pub(crate) pmu_events: Option<EventTable>,
    /// Tiers of the memory nodes, and latencies and bandwidths, where the machine does not say them or says them
    /// wrongly (docs/tiers.md); `terrace tiers` shows what comes of it.
    #[arg(long, value_name = "FILE", value_parser = nodes::nodes)]
    pub(crate) tiers: Option<Override>,
    /// Use at most so much of the fast tier (4GiB, 512M). On a machine with one node: split it.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) fast: Option<u64>,
    /// Leave the program's children alone.
    #[arg(long)]
    pub(crate) no_follow: bool,
    /// Start paused; `terrace resume` lets it act.
    #[arg(long)]
    pub(crate) paused: bool,
    /// At the end, print statistics to standard error; with FILE, write them there as JSON.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub(crate) stats: Option<Option<PathBuf>>,
    /// At the end, print statistics to standard error as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

impl PolicyArgs {
    /// The preset's name.
    pub(crate) fn preset(&self) -> &str {
        &self.policy
    }
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Who moves pages: the kernel, from outside the program (move-pages), or an agent that is
    /// preloaded into it, for transactions and shadows (agent). auto: the agent where --policy asks
    /// for a preset whose mechanism it is (`terrace policies` says which), else nothing is put into the program.
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) mover: Mover,
    /// Copy workers in the program.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) copy_workers: u32,
    /// Pages of one transaction batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=512))]
    pub(crate) batch_pages: u32,
    /// Who copies a page, and when. copy: the kernel's migration, whoever wants the page waits; a shadow is
    /// copied afterwards. transaction: the agent, while the page stays accessible, and a write aborts. wait:
    /// the agent copies huge pages, and writes wait instead of aborting. auto: as the preset has it, else copy.
    #[arg(long, default_value = "auto", value_parser = ["auto", "copy", "transaction", "wait"])]
    pub(crate) commit: String,
    /// Threads that copy one huge page together (default: the preset's copy_threads; where it has none, 4 with
    /// --commit wait, else 1).
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=i64::from(COPY_THREADS_MAX)))]
    pub(crate) copy_threads: Option<u8>,
    /// How huge pages are copied: while they can be read (ordinary), or past the caches, in one pass while the
    /// page is out of reach (streaming). auto: ordinary, but with --commit wait as the preset wants it (mtm's
    /// migration=sync: streaming).
    #[arg(long, default_value = "auto", value_parser = ["auto", "ordinary", "streaming"])]
    pub(crate) stores: String,
    /// Share one supervisor, its policy and its budget with other programs of this name. The first
    /// one's options count.
    #[arg(long, value_name = "NAME")]
    pub(crate) group: Option<String>,
    /// Put the program before the group's others: adaptive counts what it saves N times more, hemem keeps all
    /// of its memory fast where N is above 0.
    #[arg(long, value_name = "N", default_value_t = 0, requires = "group")]
    pub(crate) priority: u32,
    /// So much of the program's memory the group's others do not push out of the fast tier, as far as it uses it (adaptive).
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "group")]
    pub(crate) floor: Option<u64>,
    /// At most so much of the program's memory in the fast tier, beside the group's others (adaptive).
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, requires = "group")]
    pub(crate) ceiling: Option<u64>,
    /// Be the group's supervisor.
    #[arg(long, hide = true, requires = "group")]
    pub(crate) host: bool,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Process id.
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: u32,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct JsonArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TiersArgs {
    /// With what this file says of them (docs/tiers.md).
    #[arg(long, value_name = "FILE", value_parser = nodes::nodes)]
    pub(crate) tiers: Option<Override>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PoliciesArgs {
    /// Only this one, with its parameters.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// The process, or the supervisor of several.
    #[arg(value_name = "PID")]
    pub(crate) pid: u32,
    /// Also of the page that holds this address, such as 0x7f0012345000.
    #[arg(long, value_name = "ADDR", value_parser = address)]
    pub(crate) page: Option<u64>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) select: SelectArgs,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct SelectArgs {
    /// Only this supervisor, or the one that manages this process.
    #[arg(value_name = "PID")]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Put back kernel settings that a crashed supervisor left changed.
    #[arg(long)]
    pub(crate) restore: bool,
    /// Say what reading the accessed bits of this process would cost.
    #[arg(long, value_name = "PID", conflicts_with = "restore")]
    pub(crate) process: Option<u32>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// Everything else is the benchmark's own: `terrace bench --help`.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORKLOAD"
    )]
    pub(crate) args: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ClaimsArgs {
    /// Only this paper's: mtm, chrono, hemem, autotiering, nomad.
    #[arg(long)]
    pub(crate) paper: Option<String>,
    /// Only those with this in their name.
    #[arg(long, value_name = "PART")]
    pub(crate) only: Option<String>,
    /// Simulations at a time; as many as there are processors if not given.
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<std::num::NonZero<usize>>,
    /// Where finished runs are kept for the next call of the same simulator; results/claims beside the
    /// claims' folder if not given.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Run nothing: leave out the claims that need a run which is not kept, and say how many.
    #[arg(long)]
    pub(crate) finished: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print tables in Markdown.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
    /// The claims' folder; machine files are named relative to the folder it is in.
    #[arg(value_name = "DIR", default_value = "claims")]
    pub(crate) directory: PathBuf,
}

/// The built-in events with those of a file in front.
/// The kernel counts in MiB, and takes 1 to 2^20 of them here: more than any process has.
fn scan_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text).map_err(|error| error.to_string())?;
    if (1 << 20..=1 << 40).contains(&bytes) && bytes % (1 << 20) == 0 {
        return Ok(bytes);
    }
    Err("the kernel's scanner takes whole MiB, 1MiB to 1TiB".to_owned())
}

fn event_table(path: &str) -> Result<EventTable, String> {
    let mut table = EventTable::builtin();
    let extended = table.extend_from(Path::new(path));
    extended.map_err(|error| match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    })?;
    Ok(table)
}

/// An address, hexadecimal as in `/proc/PID/maps`, with 0x or without.
fn address(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16)
        .map_err(|_| "an address is hexadecimal, such as 0x7f0012345000".to_owned())
}
