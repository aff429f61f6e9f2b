// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line, and the addresses that driver and victim agree on.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;
use terrace_core::PageSize;
use terrace_proto::Commit;
use terrace_proto::Welcome;

/// First byte of the area whose words only grow.
pub(crate) const WORDS_BASE: u64 = 0x10_0000_0000;
/// First byte of the areas of the disturbers, one behind the other.
pub(crate) const CHAOS_BASE: u64 = 0x20_0000_0000;
/// From one disturber's area to the next.
pub(crate) const CHAOS_STRIDE: u64 = 0x1_0000_0000;
/// Base pages of a disturber's area.
pub(crate) const CHAOS_PAGES: u64 = 96;
/// Huge pages of the area of [`Chaos::Parts`].
pub(crate) const PARTS_PAGES: u64 = 2;

/// Moves a program's pages about at full rate and checks that no word is lost.
#[derive(Debug, Parser)]
#[command(name = "terrace-stress", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) role: Role,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// Threads read and write words that only grow, and check every one.
    Words(Options),
    /// Moves the pages of any program about while it runs, in the supervisor's place.
    Storm(StormOptions),
    /// What a manager costs a program that starts threads, forks and touches new memory.
    Toll(TollOptions),
    /// The works of `toll`.
    #[command(hide = true)]
    Works,
    /// The supervisor's side (started by `words`).
    #[command(hide = true)]
    Drive(DriveOptions),
    /// The program whose pages move (started by `words`).
    #[command(hide = true)]
    Victim(Options),
    /// A program whose main thread ends before its last one does.
    #[command(hide = true)]
    Leave,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// How long to run.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Size of the pages that are moved.
    #[arg(long, default_value = "4k")]
    pub(crate) page_size: PageArg,
    /// Threads that write and read.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=8))]
    pub(crate) threads: u64,
    /// Pages of the area (default: 2048 of 4 KiB, 32 of 2 MiB).
    #[arg(long)]
    pub(crate) pages: Option<u64>,
    /// What the program does to its mappings meanwhile.
    #[arg(long, value_delimiter = ',')]
    pub(crate) chaos: Vec<Chaos>,
    /// Kill the supervisor's side half-way.
    #[arg(long)]
    pub(crate) kill_supervisor: bool,
    /// Move pages of every mapping of the program, not only of the areas under test.
    #[arg(long)]
    pub(crate) everywhere: bool,
    /// Arm pages instead of moving them by the agent, and move them from outside.
    #[arg(long)]
    pub(crate) arm: bool,
    /// Mostly exchange pages with one another, few of them, from both sides at once.
    #[arg(long)]
    pub(crate) exchanges: bool,
    /// Take the verification out (needs an agent built with the feature test-switches).
    #[arg(long)]
    pub(crate) skip_verify: bool,
    /// The agent library (default: libterrace.so beside this program).
    #[arg(long)]
    pub(crate) agent: Option<PathBuf>,
    /// Copy workers of the agent.
    #[arg(long, default_value_t = 1)]
    pub(crate) workers: u32,
    /// Pages of one batch of the agent.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch: u32,
    /// Who copies a page, and when: copy (the kernel migrates), transaction, wait.
    #[arg(long, default_value = "transaction", value_parser = commit)]
    pub(crate) commit: Commit,
    /// Threads that copy one huge page together.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub(crate) copy_threads: u8,
    /// Copy huge pages past the caches.
    #[arg(long)]
    pub(crate) streaming: bool,
    /// Pages are called by 2 MiB, while the memory is base pages.
    #[arg(long)]
    pub(crate) split: bool,
    /// Without `CAP_SYS_PTRACE`'s fork events: quiesce by pthread_atfork.
    #[arg(long)]
    pub(crate) no_fork_events: bool,
    /// Instead of a storm: what each kind of move costs a page, the program being idle.
    #[arg(long)]
    pub(crate) cost: bool,
    /// Instead of a storm: how long it takes until a page of the slow node is on the fast one, by exchange, by demotion and promotion, and into
    /// room; the program being idle.
    #[arg(long, conflicts_with = "cost")]
    pub(crate) latency: bool,
    /// With --cost or --latency: threads of the program that compute meanwhile, so that other processors must
    /// hear of what changes in the page tables.
    #[arg(long, default_value_t = 0)]
    pub(crate) spinners: u64,
    /// With --cost: pages in no order, with gaps, as a policy picks them.
    #[arg(long)]
    pub(crate) scattered: bool,
    /// Print the counts and what they were made with as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StormOptions {
    /// Size of the pages that are moved.
    #[arg(long, default_value = "4k")]
    pub(crate) page_size: PageArg,
    /// Who copies a page, and when: copy (the kernel migrates), transaction, wait.
    #[arg(long, default_value = "copy", value_parser = commit)]
    pub(crate) commit: Commit,
    /// Orders a second.
    #[arg(long, default_value_t = 4000.0)]
    pub(crate) rate: f64,
    /// Share of the orders that are demotions, 0 to 1.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) demote: f64,
    /// Write the counts there, as JSON, instead of to standard error.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The agent library (default: libterrace.so beside this program).
    #[arg(long)]
    pub(crate) agent: Option<PathBuf>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct TollOptions {
    /// Turns of each work, alone and managed.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) turns: u32,
    /// How long a turn takes, ms.
    #[arg(long, default_value_t = 5)]
    pub(crate) milliseconds: u64,
    /// Print the table and what it was made with as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// What manages a program when it is put before its command: terrace run --
    #[arg(required = true, trailing_var_arg = true, value_name = "PREFIX")]
    pub(crate) command: Vec<OsString>,
}

fn commit(name: &str) -> Result<Commit, String> {
    Commit::named(name).ok_or_else(|| "give copy, transaction or wait".to_owned())
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DriveOptions {
    #[arg(long)]
    pub(crate) socket: PathBuf,
    #[arg(long)]
    pub(crate) seconds: f64,
    #[arg(long)]
    pub(crate) page_size: PageArg,
    #[arg(long)]
    pub(crate) pages: u64,
    #[arg(long, value_delimiter = ',')]
    pub(crate) chaos: Vec<Chaos>,
    #[arg(long)]
    pub(crate) everywhere: bool,
    #[arg(long)]
    pub(crate) arm: bool,
    #[arg(long)]
    pub(crate) exchanges: bool,
    #[arg(long)]
    pub(crate) cost: bool,
    #[arg(long)]
    pub(crate) latency: bool,
    #[arg(long)]
    pub(crate) scattered: bool,
    /// Nothing else moves the pages: they must be where the agent said.
    #[arg(long)]
    pub(crate) placement: bool,
    #[arg(long)]
    pub(crate) workers: u32,
    #[arg(long)]
    pub(crate) batch: u32,
    #[arg(long, value_parser = commit)]
    pub(crate) commit: Commit,
    #[arg(long, default_value_t = 1)]
    pub(crate) copy_threads: u8,
    #[arg(long)]
    pub(crate) streaming: bool,
}

impl DriveOptions {
    pub(crate) const fn welcome(&self) -> Welcome {
        Welcome {
            ring_bytes: 0,
            copy_workers: self.workers,
            batch_pages: self.batch,
            commit: self.commit,
            copy_threads: self.copy_threads,
            streaming: self.streaming,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageArg {
    #[value(name = "4k")]
    K4,
    #[value(name = "2m")]
    M2,
}

impl PageArg {
    pub(crate) const fn size(self) -> PageSize {
        match self {
            Self::K4 => PageSize::Base4K,
            Self::M2 => PageSize::Huge2M,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::K4 => "4k",
            Self::M2 => "2m",
        }
    }
}

/// What a program may do to its own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Chaos {
    Fork,
    Munmap,
    Mremap,
    Dontneed,
    Mprotect,
    Rw,
    Collapse,
    /// Changes parts of huge pages.
    Parts,
    /// Unmaps a huge page whose address another thread maps anew at once.
    Reuse,
}

impl Options {
    pub(crate) fn page_count(&self) -> u64 {
        self.pages.unwrap_or(match self.page_size {
            PageArg::K4 => 2048,
            PageArg::M2 => 32,
        })
    }
}
