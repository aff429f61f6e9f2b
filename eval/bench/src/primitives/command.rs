// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench primitives`, which is `terrace bench primitives`.

use std::process::ExitCode;

use clap::Parser;
use terrace_core::NodeId;
use terrace_experiment::RunInfo;
use terrace_sys::mempolicy;

use super::Options;
use super::measure;
use super::report;
use super::report::Report;

/// Measures what basic things cost on this machine: the simulator's costs.
#[derive(Debug, Parser)]
#[command(name = "terrace bench primitives")]
struct Arguments {
    /// Print JSON, which `terrace sim --costs` takes
    #[arg(long)]
    json: bool,
    /// How often everything is measured; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Measure hint faults, too: changes kernel settings for some seconds and puts them back
    #[arg(long)]
    hint_faults: bool,
    /// Memory that random reads go over, MiB: more than the last-level cache
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=16384))]
    read_mib: u16,
}

/// Runs the command if `arguments` (with the program's name) ask for it.
pub fn command(arguments: impl IntoIterator<Item = std::ffi::OsString>) -> Option<ExitCode> {
    let mut arguments = arguments.into_iter().skip(1);
    if arguments.next()? != "primitives" {
        return None;
    }
    let program = std::ffi::OsString::from("terrace bench primitives");
    let arguments = Arguments::parse_from(std::iter::once(program).chain(arguments));
    let nodes = mempolicy::allowed_nodes().unwrap_or_else(|_| vec![NodeId(0)]);
    let options = Options {
        nodes,
        rounds: usize::from(arguments.rounds),
        read_pages: usize::from(arguments.read_mib) << 8,
        hint_faults: arguments.hint_faults,
    };
    let figures = measure(&options);
    let report = Report {
        run: RunInfo::of_host(),
        cpus: std::thread::available_parallelism().map_or(1, Into::into),
        nodes: options.nodes.iter().map(|node| node.0).collect(),
        rounds: options.rounds,
        costs: report::costs(&figures),
        figures,
    };
    if arguments.json {
        let text = serde_json::to_string_pretty(&report).expect("plain numbers and text");
        println!("{text}");
    } else {
        print!("{}", report::table(&report));
    }
    Some(ExitCode::SUCCESS)
}
