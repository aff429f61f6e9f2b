// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab calibrate`, and the `probe` it runs on both sides.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use terrace_bench::primitives;
use terrace_bench::primitives::Options;
use terrace_experiment::RunInfo;
use terrace_lab::boot;
use terrace_lab::boot::BOOT_TIMEOUT;
use terrace_lab::boot::Spec;
use terrace_lab::calibrate;
use terrace_lab::calibrate::Calibration;
use terrace_lab::job::Delays;
use terrace_lab::job::GUEST_DIR;
use terrace_lab::job::Job;
use terrace_lab::plugin::Pmu;

use crate::cmd_run::GuestArgs;

/// Options of `terrace-lab calibrate`.
#[derive(Debug, clap::Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn main(args: &CalibrateArgs) -> anyhow::Result<ExitCode> {
    let (machine, kernel) = args.guest.load()?;
    let program = format!("{GUEST_DIR}/terrace-lab");
    let nodes = machine.nodes.len().to_string();
    let command = [&program, "probe", "--nodes", &nodes]
        .map(str::to_owned)
        .to_vec();
    let spec = Spec {
        machine: &machine,
        kernel: &kernel,
        job: Job::here(&machine, command, Delays::On)
            .context("Cannot tell the current directory")?,
        pmu: Pmu::default(),
        timeout: Duration::from_secs(300),
        boot_timeout: BOOT_TIMEOUT,
        program: std::env::current_exe().context("Cannot find the running program")?,
        forward: None,
    };
    let (factors, outcome) = calibrate::calibrate(&spec)?;
    if args.json {
        let machine_file = args.guest.machine.as_path();
        let made_by = (boot::emulator()?, outcome.kernel);
        let calibration = Calibration {
            run: RunInfo::of_machine((&machine.name, &machine), machine_file, made_by),
            factors,
        };
        println!("{}", serde_json::to_string_pretty(&calibration)?);
    } else {
        print!("{}", calibrate::table(&machine, &factors));
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn probe(nodes: u16) -> anyhow::Result<ExitCode> {
    let figures = primitives::measure(&Options::small(nodes));
    for figure in &figures {
        if let Some(why) = &figure.why {
            eprintln!("terrace-lab: {} was not measured: {why}", figure.what);
        }
    }
    println!("{}", serde_json::to_string(&figures)?);
    Ok(ExitCode::SUCCESS)
}
