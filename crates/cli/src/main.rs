// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `terrace` command. `args` is what was typed; each other module is one verb.
//!
//! Exit codes: 2 for usage, 1 for failure; of `run` the program's own, 125 for what is ours, 126 and 127 where it
//! cannot be started, as env(1).

mod args;
mod bench;
mod claims;
mod compare;
mod doctor;
mod man;
mod out;
mod policies;
mod run;
mod sim;
mod status;
mod tiers;
mod why;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use args::Command;
use args::SimCommand;
use out::note;

/// An error that is the user's to mend: exit code 2, nothing was changed.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("TERRACE_LOG"))
        .without_time()
        .init();
    let runs = matches!(cli.command, Command::Run(_));
    let done = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Attach(args) => run::attach(&args),
        Command::Status(args) => status::status(&args),
        Command::Why(args) => why::why(&args),
        Command::Pause(args) => status::switch(&args, terrace_api::Request::Pause),
        Command::Resume(args) => status::switch(&args, terrace_api::Request::Resume),
        Command::Policies(args) => policies::policies(&args),
        Command::Tiers(args) => tiers::tiers(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Sim(args) => match args.command {
            None => sim::sim(&args.run),
            Some(SimCommand::Compare(args)) => compare::compare(&args),
        },
        Command::Claims(args) => claims::claims(&args),
        Command::Man(args) => man::man(&args),
    };
    match done {
        Ok(0) if out::failed() => ExitCode::FAILURE,
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            note!("terrace: {error:#}");
            ExitCode::from(code_of(&error, runs))
        }
    }
}

/// What was typed makes no sense, or asks for help.
fn refuse(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    let runs = std::env::args_os().nth(1).is_some_and(|verb| verb == "run");
    match error.exit_code() {
        0 => ExitCode::SUCCESS,
        _ if runs => ExitCode::from(OURS),
        code => ExitCode::from(u8::try_from(code).unwrap_or(OURS)),
    }
}

/// The exit code of `run` where not the program but Terrace failed.
const OURS: u8 = 125;

fn code_of(error: &anyhow::Error, runs: bool) -> u8 {
    use terrace_supervisor::program::ProgramError;
    match error.downcast_ref::<ProgramError>() {
        Some(error) => error.exit_code(),
        None if runs => OURS,
        None if is_usage(error) => 2,
        None => 1,
    }
}

/// Whether what was asked for cannot be, and nothing was tried.
fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<Usage>()
        || error.is::<terrace_policy::PolicyError>()
        || error.is::<terrace_supervisor::host::HostError>()
}
