// SPDX-License-Identifier: MIT OR Apache-2.0
//! The `terrace` command. `args` is what was typed; each other module is one verb.
//!
//! Exit codes: the program's own for `run`; 2 for usage, 1 for failure, 126 and 127 as a shell.

mod args;
mod bench;
mod claims;
mod compare;
mod doctor;
mod out;
mod parallel;
mod policies;
mod profile;
mod run;
mod sim;
mod status;
mod tiers;

use std::process::ExitCode;

use clap::Parser;

use args::Cli;
use args::Command;
use args::SimCommand;

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
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("TERRACE_LOG"))
        .without_time()
        .init();
    let done = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Attach(args) => run::attach(&args),
        Command::Status(args) => status::status(&args),
        Command::Pause(args) => status::switch(&args, terrace_supervisor::control::Request::Pause),
        Command::Resume(args) => {
            status::switch(&args, terrace_supervisor::control::Request::Resume)
        }
        Command::Policies(args) => policies::policies(&args),
        Command::Tiers(args) => tiers::tiers(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Sim(args) => match args.command {
            None => sim::sim(&args.run),
            Some(SimCommand::Compare(args)) => compare::compare(&args),
            Some(SimCommand::Profile(args)) => profile::profile(&args),
        },
        Command::Claims(args) => claims::claims(&args),
    };
    match done {
        Ok(0) if out::failed() => ExitCode::FAILURE,
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("terrace: {error:#}");
            ExitCode::from(code_of(&error))
        }
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() || error.is::<terrace_policy::PolicyError>() {
        return 2;
    }
    error
        .downcast_ref::<terrace_supervisor::program::ProgramError>()
        .map_or(1, terrace_supervisor::program::ProgramError::exit_code)
}
