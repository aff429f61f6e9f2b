// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-stress`: shows that pages keep their bytes while the agent moves them.
//!
//! Three processes: a *victim* with libterrace.so preloaded, whose threads check every word they
//! read; a *driver* that speaks the supervisor's side of the protocol at full rate, at random; and
//! this one, which starts both and judges. The first wrong word ends it with exit code 1.

mod chaos;
mod cost;
mod driver;
mod judge;
mod link;
mod options;
mod victim;

use std::process::ExitCode;

use clap::Parser;

use crate::options::Cli;
use crate::options::Role;

fn main() -> ExitCode {
    let result = match Cli::parse().role {
        Role::Words(options) => judge::run(&options),
        Role::Drive(options) => driver::run(&options),
        Role::Victim(options) => victim::run(&options),
        Role::Leave => victim::leave(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("terrace-stress: {error:#}");
            ExitCode::FAILURE
        }
    }
}
