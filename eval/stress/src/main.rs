// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-stress`: shows that pages keep their bytes while the agent moves them.
//!
//! Three processes: a *victim* with libterrace.so preloaded, whose threads check every word they
//! read; a *driver* that speaks the supervisor's side of the protocol at full rate, at random; and
//! this one, which starts both and judges. The first wrong word ends it with exit code 1.

mod arm;
mod chaos;
mod cost;
mod driver;
mod judge;
mod latency;
mod link;
mod made_with;
mod options;
mod parts;
mod reuse;
mod storm;
mod toll;
mod victim;

use std::process::ExitCode;

use clap::Parser;

use crate::options::Cli;
use crate::options::Role;

fn main() -> ExitCode {
    let result = match Cli::parse().role {
        Role::Storm(options) => return ended(storm::run(&options)),
        Role::Toll(options) => toll::run(&options),
        Role::Works => toll::work(),
        Role::Words(options) => judge::run(&options),
        Role::Drive(options) => driver::run(&options),
        Role::Victim(options) => victim::run(&options),
        Role::Leave => victim::leave(),
    };
    ended(result.map(|()| ExitCode::SUCCESS))
}

fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("terrace-stress: {error:#}");
            ExitCode::FAILURE
        }
    }
}
