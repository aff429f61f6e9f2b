// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench`: runs one workload and prints a JSON line a second.
//!
//! SIGINT and SIGTERM end the visits early: what was reached is reported and the memory checked as at their end.
//!
//! Exit codes: 0 the run is good, 1 memory was wrong or the run failed, 2 usage.

use std::io;
use std::io::BufRead;
use std::io::Write;
use std::process::Command;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use rustix::process::Signal;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use terrace_bench::args::Arguments;
use terrace_bench::fill;
use terrace_bench::group;
use terrace_bench::group::Group;
use terrace_bench::lab_marker;
use terrace_bench::oracle;
use terrace_bench::oracle::Rooms;
use terrace_bench::run::Options;
use terrace_bench::run::Place;
use terrace_bench::run::Run;
use terrace_experiment::RunInfo;
use terrace_workload::Scale;
use terrace_workload::WORKLOADS;
use terrace_workload::Workload;
use terrace_workload::report::Check;
use terrace_workload::report::Line;
use terrace_workload::report::Ready;
use terrace_workload::report::Second;

/// What ends the visits early.
const TO_END: [i32; 2] = [SIGINT, SIGTERM];

fn main() -> ExitCode {
    if let Some(code) = terrace_bench::primitives::command(std::env::args_os()) {
        return code;
    }
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("terrace-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.list || arguments.workload.as_deref() == Some("list") {
        return list();
    }
    let scale = arguments.scale()?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut workload = match arguments.workload(scale) {
        Ok(workload) => workload,
        Err(error) => {
            eprintln!("terrace-bench: {error}");
            return Ok(ExitCode::from(2));
        }
    };
    if let Some(index) = arguments.program {
        anyhow::ensure!(index < workload.programs.len(), "No program {index}");
        workload.programs = vec![workload.programs.swap_remove(index)];
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // Before the word to go: it can be told to end at once, and more than once.
        for signal in TO_END {
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
    }
    let options = arguments.options();
    let check = match &workload.programs[..] {
        [program] => {
            let run = Run::prepare(program, &options)?;
            let ready = Ready {
                workload: workload.name.clone(),
                ..run.ready()?
            };
            wait_to_go(arguments, ready)?;
            watched(arguments, &stop, |line| {
                Ok(run.visit_and_check(&stop, line)?)
            })?
        }
        _ => {
            let mut group = start(arguments, &workload, scale, &options)?;
            wait_to_go(arguments, group.ready().clone())?;
            watched(arguments, &stop, |line| {
                Ok(group.visit_and_check(&stop, line)?)
            })?
        }
    };
    Ok(verdict(&check))
}

fn list() -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    for about in &WORKLOADS {
        writeln!(out, "{:<24} {} ({})", about.name, about.what, about.source)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A process for each program.
fn start(
    arguments: &Arguments,
    workload: &Workload,
    scale: Scale,
    options: &Options,
) -> anyhow::Result<Group> {
    let own = std::env::current_exe().context("Cannot find this program")?;
    let budgets = match options.place {
        Place::Oracle => {
            let (run, rooms) = ((options.seed, options.time), fill::oracle_rooms(options)?);
            oracle::budgets(workload, run, &options.orders, options.bind, &rooms)
        }
        _ => vec![Rooms::new(); workload.programs.len()],
    };
    Ok(Group::prepare(workload, |index| {
        let mut command = Command::new(&own);
        let first = group::first_thread(workload, index);
        arguments.for_program(&mut command, index, scale, first, &budgets[index]);
        command
    })?)
}

/// Prints the line `ready` and waits as long as asked to.
fn wait_to_go(arguments: &Arguments, ready: Ready) -> anyhow::Result<()> {
    print_ready(arguments, ready)?;
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
    Ok(())
}

/// The first SIGINT or SIGTERM from here on ends the visits, as if their time were over; another ends the program.
fn end_on_signals(stop: &Arc<AtomicBool>) -> io::Result<()> {
    for signal in TO_END {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(stop))?;
        signal_hook::flag::register(signal, Arc::clone(stop))?;
    }
    Ok(())
}

/// Runs with every line printed and, where this is the whole workload, marked for the memory model.
fn watched(
    arguments: &Arguments,
    stop: &Arc<AtomicBool>,
    visit: impl FnOnce(&mut dyn FnMut(&Line)) -> anyhow::Result<Check>,
) -> anyhow::Result<Check> {
    let whole = arguments.program.is_none();
    if whole {
        end_on_signals(stop)?;
        lab_marker::start();
        // The counters at the start, so that the first second has a beginning.
        lab_marker::mark(&to_json(&Line::Second(Second { t: 0.0, ops: 0 })));
    }
    let mut printed = Ok(());
    let check = visit(&mut |line| {
        match line {
            Line::Second(_) if whole => lab_marker::mark(&to_json(line)),
            Line::Total(_) if whole => lab_marker::stop(),
            _ => {}
        }
        if printed.is_ok() {
            printed = print_line(line);
        }
    })?;
    printed?;
    Ok(check)
}

fn verdict(check: &Check) -> ExitCode {
    for word in &check.wrong {
        eprintln!(
            "terrace-bench: {:#x} holds {:#018x} instead of {:#018x}",
            word.address, word.found, word.expected
        );
    }
    if check.passed() {
        return ExitCode::SUCCESS;
    }
    eprintln!(
        "terrace-bench: memory is wrong: {} updates made, {} found",
        check.updates_made, check.updates_found
    );
    ExitCode::FAILURE
}

fn to_json(line: &Line) -> String {
    serde_json::to_string(line).expect("plain numbers and text")
}

fn print_line(line: &Line) -> io::Result<()> {
    print(&to_json(line))
}

/// The first line, with what the run is made with.
fn print_ready(arguments: &Arguments, ready: Ready) -> anyhow::Result<()> {
    let run = RunInfo {
        seed: Some(arguments.seed),
        seconds: Some(arguments.options().time.as_secs_f64()),
        ..RunInfo::of_host()
    };
    let mut line = serde_json::to_value(Line::Ready(ready))?;
    line["ready"]["run"] = serde_json::to_value(run)?;
    Ok(print(&line.to_string())?)
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
