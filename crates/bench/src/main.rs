// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench`: runs one workload and prints a JSON line a second.
//!
//! Exit codes: 0 the run is good, 1 memory was wrong or the run failed, 2 usage.

use std::io;
use std::io::BufRead;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use clap::ValueEnum;
use terrace_bench::mark;
use terrace_bench::placement;
use terrace_bench::run::Options;
use terrace_bench::run::Place;
use terrace_bench::run::Run;
use terrace_core::NodeId;
use terrace_workload::NAMES;
use terrace_workload::Scale;
use terrace_workload::Spec;
use terrace_workload::report::Line;
use terrace_workload::report::Second;

/// Runs a benchmark workload on this machine's memory.
#[derive(Debug, Parser)]
#[command(name = "terrace-bench", version)]
struct Arguments {
    /// The workload, e.g. nomad-small-read or gups; `list` prints them all
    workload: String,
    /// How long to run
    #[arg(long, default_value = "30s", value_parser = terrace_core::parse_duration)]
    seconds: terrace_core::Nanos,
    /// Where the pages start
    #[arg(long, value_enum, default_value_t = PlaceArg::Default)]
    place: PlaceArg,
    /// Scale the sizes to a fast node with that much free [default: what is free now]
    #[arg(long, value_name = "BYTES", value_parser = terrace_core::parse_bytes)]
    fast_free: Option<u64>,
    /// The papers' sizes, for a fast node of 16 GB
    #[arg(long, conflicts_with = "fast_free")]
    paper_size: bool,
    /// Cache lines touched by a visit
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    lines: Option<u8>,
    /// Lines from one touched line to the next, odd
    #[arg(long, value_parser = odd)]
    step: Option<u8>,
    /// Seed of the visits
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The fast node
    #[arg(long, default_value_t = 0)]
    fast_node: u16,
    /// The slow node [default: 1, or the fast one where there is no other]
    #[arg(long)]
    slow_node: Option<u16>,
    /// Use transparent huge pages
    #[arg(long)]
    huge: bool,
    /// Wait that long between filling the memory and the first visit
    #[arg(long, value_parser = terrace_core::parse_duration)]
    settle: Option<terrace_core::Nanos>,
    /// After the line `ready`, wait for a line on standard input
    #[arg(long)]
    hold: bool,
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

fn odd(text: &str) -> Result<u8, String> {
    match text.parse::<u8>() {
        Ok(step) if step % 2 == 1 && step < 64 => Ok(step),
        _ => Err(format!("'{text}' is not an odd number below 64")),
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("terrace-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.workload == "list" {
        println!("{}", NAMES.join("\n"));
        return Ok(ExitCode::SUCCESS);
    }
    let fast = NodeId(arguments.fast_node);
    let scale = match arguments.fast_free {
        _ if arguments.paper_size => Scale::Paper,
        Some(bytes) => Scale::FastFree(bytes),
        None => Scale::FastFree(placement::free_bytes(fast)?),
    };
    let mut spec = match Spec::named(&arguments.workload, scale) {
        Ok(spec) => spec,
        Err(error) => {
            eprintln!("terrace-bench: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    spec.lines = arguments.lines.unwrap_or(spec.lines);
    spec.step = arguments.step.unwrap_or(spec.step);
    let options = options(arguments, fast);
    let run = Run::prepare(&spec, &options)?;
    print_line(&Line::Ready(run.ready()?))?;
    if let Some(time) = arguments.settle {
        std::thread::sleep(Duration::from(time));
    }
    if arguments.hold {
        let mut go = String::new();
        let bytes = io::stdin()
            .lock()
            .read_line(&mut go)
            .context("Cannot read the word to go from standard input")?;
        anyhow::ensure!(bytes > 0, "Standard input ended before the word to go");
    }
    let mut printed = Ok(());
    mark::start();
    // The counters at the start, so that the first second has a beginning.
    mark::mark(&to_json(&Line::Second(Second { t: 0.0, ops: 0 })));
    let check = run.visit_and_check(|line| {
        match line {
            Line::Second(_) => mark::mark(&to_json(line)),
            Line::Total(_) => mark::stop(),
            Line::Ready(_) | Line::Check(_) => {}
        }
        if printed.is_ok() {
            printed = print_line(line);
        }
    })?;
    printed?;
    for word in &check.wrong {
        eprintln!(
            "terrace-bench: {:#x} holds {:#018x} instead of {:#018x}",
            word.address, word.found, word.expected
        );
    }
    if check.passed() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!(
        "terrace-bench: memory is wrong: {} updates made, {} found",
        check.updates_made, check.updates_found
    );
    Ok(ExitCode::FAILURE)
}

fn options(arguments: &Arguments, fast: NodeId) -> Options {
    let slow = arguments.slow_node.map_or_else(
        || match placement::free_bytes(NodeId(1)) {
            Ok(_) => NodeId(1),
            Err(_) => fast,
        },
        NodeId,
    );
    Options {
        seed: arguments.seed,
        place: match arguments.place {
            PlaceArg::Default => Place::Workload,
            PlaceArg::Slow => Place::Slow,
            PlaceArg::Fast => Place::FirstTouch,
            PlaceArg::Oracle => Place::Oracle,
        },
        fast,
        slow,
        time: Duration::from(arguments.seconds),
        huge: arguments.huge,
    }
}

fn to_json(line: &Line) -> String {
    serde_json::to_string(line).expect("plain numbers and text")
}

fn print_line(line: &Line) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{}", to_json(line))?;
    out.flush()
}
