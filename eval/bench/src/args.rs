// SPDX-License-Identifier: MIT OR Apache-2.0
//! The command line of `terrace-bench`.

use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use clap::Parser;
use clap::ValueEnum;
use terrace_core::NodeId;
use terrace_workload::Scale;
use terrace_workload::Sizes;
use terrace_workload::Workload;
use terrace_workload::WorkloadError;

use crate::group;
use crate::oracle::Rooms;
use crate::placement;
use crate::placement::PlacementError;
use crate::run::Options;
use crate::run::Place;

/// Runs a benchmark workload on this machine's memory.
#[derive(Debug, Clone, Parser)]
#[command(name = "terrace-bench", version)]
pub struct Arguments {
    /// The workload, e.g. nomad-small-read or gups; `--list` prints them all
    #[arg(required_unless_present = "list")]
    pub workload: Option<String>,
    /// Parameters of the workload: working_set=32GiB theta=0.9 threads=4
    #[arg(value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Print the names of all workloads and what they do
    #[arg(long)]
    pub list: bool,
    /// How long to run, unless SIGINT or SIGTERM ends it before
    #[arg(long, default_value = "30s", value_parser = terrace_core::parse_duration)]
    seconds: terrace_core::Nanos,
    /// Where the pages start
    #[arg(long, value_enum, default_value_t = PlaceArg::Default)]
    place: PlaceArg,
    /// Scale the sizes to a fast node with that much free [default: what is free now]
    #[arg(long, value_name = "BYTES", value_parser = terrace_core::parse_bytes)]
    fast_free: Option<u64>,
    /// The papers' sizes
    #[arg(long, conflicts_with = "fast_free")]
    paper_size: bool,
    /// Cache lines touched by a visit, in all parts of the workload
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    lines: Option<u8>,
    /// Lines from one touched line to the next, odd, in all parts
    #[arg(long, value_parser = odd)]
    step: Option<u8>,
    /// Seed of the visits
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The fast node
    #[arg(long, default_value_t = 0)]
    fast_node: u16,
    /// All nodes as the first socket sees them, the fastest first, e.g. 0,1,2,3; again for the next socket: the oracle's
    /// [default: the fast one and the slow one]
    #[arg(long, value_name = "NODES")]
    order: Vec<Order>,
    /// Bind each thread to a socket (a node that has processors), in turn, of all programs together
    #[arg(long)]
    bind: bool,
    /// The slow node [default: 1, or the fast one where there is no other]
    #[arg(long)]
    slow_node: Option<u16>,
    /// Use transparent huge pages
    #[arg(long)]
    huge: bool,
    /// Wait that long between filling the memory and the first visit
    #[arg(long, value_parser = terrace_core::parse_duration)]
    pub settle: Option<terrace_core::Nanos>,
    /// After the line `ready`, wait for a line on standard input
    #[arg(long)]
    pub hold: bool,
    /// Run only that program of the workload, for a process that runs them all
    #[arg(long, hide = true)]
    pub program: Option<usize>,
    /// The number of its first thread among those of all programs
    #[arg(long, hide = true, default_value_t = 0)]
    first_thread: u32,
    /// How many pages the oracle may put on a node: NODE=PAGES
    #[arg(long, hide = true, value_parser = room)]
    oracle_pages: Vec<(NodeId, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PlaceArg {
    /// As the workload says
    Default,
    /// All on the slow node
    Slow,
    /// On the local node until it is full
    Fast,
    /// The most visited first on the fast node
    Oracle,
}

/// Nodes, the fastest first.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Order(Vec<NodeId>);

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let node = |number: &str| number.trim().parse().map(NodeId);
        let nodes: Result<Vec<NodeId>, _> = text.split(',').map(node).collect();
        let wrong = |_| format!("'{text}' are no nodes; write their numbers, e.g. 0,1,2,3");
        nodes.map(Self).map_err(wrong)
    }
}

fn room(text: &str) -> Result<(NodeId, u64), String> {
    let pair = text.split_once('=');
    let room =
        pair.and_then(|(node, pages)| Some((NodeId(node.parse().ok()?), pages.parse().ok()?)));
    room.ok_or_else(|| format!("'{text}' is no NODE=PAGES"))
}

fn odd(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(step) if step % 2 == 1 && step < 64 => Ok(step),
        _ => Err(format!("'{text}' is not an odd number below 64")),
    }
}

impl Arguments {
    /// The node that is fast.
    #[must_use]
    pub fn fast(&self) -> NodeId {
        NodeId(self.fast_node)
    }

    /// What the sizes relate to, as it is now.
    ///
    /// # Errors
    ///
    /// Where the kernel does not say what is free.
    pub fn scale(&self) -> Result<Scale, PlacementError> {
        Ok(match self.fast_free {
            _ if self.paper_size => Scale::Paper,
            Some(bytes) => Scale::FastFree(bytes),
            None => Scale::FastFree(placement::free_bytes(self.fast())?),
        })
    }

    /// The workload at that scale.
    ///
    /// # Errors
    ///
    /// Where there is no such workload or parameter.
    pub fn workload(&self, scale: Scale) -> Result<Workload, WorkloadError> {
        let sizes = self
            .settings
            .iter()
            .try_fold(Sizes::from(scale), |sizes, setting| sizes.with(setting))?;
        let name = self.workload.as_deref().unwrap_or_default();
        let mut workload = Workload::named(name, &sizes)?;
        let programs = workload.programs.iter_mut();
        for part in programs
            .flat_map(|p| &mut p.phases)
            .flat_map(|p| &mut p.parts)
        {
            part.lines = self.lines.unwrap_or(part.lines);
            part.step = self.step.unwrap_or(part.step);
        }
        Ok(workload)
    }

    /// How to run.
    #[must_use]
    pub fn options(&self) -> Options {
        let slow = self.slow_node.map_or_else(
            || match placement::free_bytes(NodeId(1)) {
                Ok(_) => NodeId(1),
                Err(_) => self.fast(),
            },
            NodeId,
        );
        Options {
            seed: self.seed,
            place: match self.place {
                PlaceArg::Default => Place::Workload,
                PlaceArg::Slow => Place::Slow,
                PlaceArg::Fast => Place::FirstTouch,
                PlaceArg::Oracle => Place::Oracle,
            },
            fast: self.fast(),
            slow,
            orders: match &self.order[..] {
                [] => vec![vec![self.fast(), slow]],
                given => given.iter().map(|order| order.0.clone()).collect(),
            },
            oracle_pages: match &self.oracle_pages[..] {
                [] => None,
                given => Some(given.iter().copied().collect()),
            },
            bind: self.bind,
            first_thread: self.first_thread,
            time: Duration::from(self.seconds),
            huge: self.huge,
        }
    }

    /// Makes `command` run one program of this workload, held until told to go. `scale` is what this
    /// process found: the free memory changes while the programs fill theirs.
    pub fn for_program(
        &self,
        command: &mut Command,
        index: usize,
        scale: Scale,
        first_thread: u32,
        oracle_pages: &Rooms,
    ) {
        command
            .arg(self.workload.as_deref().unwrap_or_default())
            .args(&self.settings)
            .arg("--hold")
            .arg(format!("--program={index}"))
            .arg(format!("--seconds={}ns", self.seconds.0))
            .arg(format!("--seed={}", group::seed_of(self.seed, index)))
            .arg(format!("--first-thread={first_thread}"))
            .arg(format!("--fast-node={}", self.fast_node));
        match scale {
            Scale::Paper => command.arg("--paper-size"),
            Scale::FastFree(bytes) => command.arg(format!("--fast-free={bytes}")),
        };
        if let Some(place) = self.place.to_possible_value() {
            command.arg(format!("--place={}", place.get_name()));
        }
        command.args(self.huge.then_some("--huge"));
        command.args(self.bind.then_some("--bind"));
        let numbers = [
            ("lines", self.lines.map(u64::from)),
            ("step", self.step.map(u64::from)),
            ("slow-node", self.slow_node.map(u64::from)),
        ];
        for (name, value) in numbers {
            if let Some(value) = value {
                command.arg(format!("--{name}={value}"));
            }
        }
        for order in &self.order {
            let nodes: Vec<String> = order.0.iter().map(NodeId::to_string).collect();
            command.arg(format!("--order={}", nodes.join(",")));
        }
        for (node, pages) in oracle_pages {
            command.arg(format!("--oracle-pages={node}={pages}"));
        }
    }
}
