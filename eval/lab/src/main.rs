// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab`: the emulated tiered machine on the command line.
//!
//! Exit codes: of `run`, the command's own; 1 for a failure of the lab, 2 for wrong usage.

use std::process::ExitCode;

use clap::Parser;
use clap::Subcommand;

mod cmd_calibrate;
mod cmd_compare;
mod cmd_run;
mod cmd_trackers;
mod cmd_validate;

#[derive(Debug, Parser)]
#[command(name = "terrace-lab", version, about = "The emulated tiered machine")]
struct Args {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Boot a machine, run a command in it, bring its output and exit code back
    Run(cmd_run::RunArgs),
    /// Measure how much slower the emulated machine is than a real one, thing by thing
    Calibrate(cmd_calibrate::CalibrateArgs),
    /// Run workloads under systems, one boot each, and print one table
    Compare(cmd_compare::CompareArgs),
    /// Hold the simulator against the lab: same cells in both, one table
    Validate(cmd_validate::ValidateArgs),
    /// Hold trackers against the true accesses, each at the same price, one table
    Trackers(cmd_trackers::TrackersArgs),
    /// Inside the lab: start or stop the memory model, or put a mark into the time series
    Mark {
        /// `start`, `stop`, or the text of a mark
        what: String,
    },
    /// The guest's kernel
    Kernel {
        #[command(subcommand)]
        command: KernelCmd,
    },
    /// Measure what basic things cost here; `calibrate` runs it on both sides
    #[command(hide = true)]
    Probe {
        /// Memory nodes to measure; more than one changes kernel settings
        #[arg(long, default_value_t = 1)]
        nodes: u16,
    },
    /// The guest's side of one run of `compare`
    #[command(hide = true)]
    Scenario(cmd_compare::ScenarioArgs),
    /// The guest's side of `trackers`
    #[command(hide = true)]
    Watch(cmd_trackers::WatchArgs),
    /// Process 1 of the guest; not for use by hand
    #[command(hide = true)]
    GuestInit,
}

#[derive(Debug, Subcommand)]
enum KernelCmd {
    /// Download a Debian kernel and unpack it under target/lab, unless it is there
    Fetch {
        /// 6.12 or 7.3 [default: 6.12]
        release: Option<String>,
    },
}

fn main() -> ExitCode {
    let result = match Args::parse().command {
        Cmd::Run(args) => cmd_run::main(&args),
        Cmd::Calibrate(args) => cmd_calibrate::main(&args),
        Cmd::Compare(args) => cmd_compare::compare(&args),
        Cmd::Validate(args) => cmd_validate::main(&args),
        Cmd::Trackers(args) => cmd_trackers::main(&args),
        Cmd::Watch(args) => cmd_trackers::watch(&args),
        Cmd::Scenario(args) => Ok(cmd_compare::scenario(args)),
        Cmd::Kernel {
            command: KernelCmd::Fetch { release },
        } => terrace_lab::kernel::fetch(release.as_deref())
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
        Cmd::Probe { nodes } => cmd_calibrate::probe(nodes),
        Cmd::Mark { what } => {
            match what.as_str() {
                "start" => terrace_lab::lab_marker::start(),
                "stop" => terrace_lab::lab_marker::stop(),
                text => terrace_lab::lab_marker::mark(text),
            }
            Ok(ExitCode::SUCCESS)
        }
        Cmd::GuestInit => {
            if std::process::id() == 1 {
                terrace_lab::guest::main()
            }
            eprintln!("terrace-lab: guest-init is process 1 of the lab's guest; use `run`");
            Ok(ExitCode::from(2))
        }
    };
    result.unwrap_or_else(|error| {
        eprintln!("terrace-lab: {error:#}");
        // A mistake in a file that the user named is wrong usage.
        let usage = error
            .chain()
            .any(|cause| cause.is::<terrace_machine_spec::MachineError>());
        ExitCode::from(if usage { 2 } else { 1 })
    })
}
