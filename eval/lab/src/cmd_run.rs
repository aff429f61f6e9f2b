// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab run`.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use terrace_experiment::RunInfo;
use terrace_lab::boot;
use terrace_lab::boot::Outcome;
use terrace_lab::boot::Sink;
use terrace_lab::boot::Spec;
use terrace_lab::job::Delays;
use terrace_lab::job::Job;
use terrace_lab::kernel::Kernel;
use terrace_lab::plugin::Pmu;
use terrace_machine_spec::Machine;

/// Which machine and which kernel.
#[derive(Debug, clap::Args)]
pub(crate) struct GuestArgs {
    /// Machine description
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: PathBuf,
    /// Kernel to boot: a fetched release (6.12, 7.3) or an image [default: 6.12]
    #[arg(long, value_name = "NAME|FILE")]
    kernel: Option<PathBuf>,
    /// Modules of that kernel [default: lib/modules/VERSION beside its boot directory]
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
}

impl GuestArgs {
    pub(crate) fn load(&self) -> anyhow::Result<(Machine, Kernel)> {
        let machine = Machine::load(&self.machine)?;
        let kernel = Kernel::find(self.kernel.as_deref(), self.modules.as_deref())?;
        Ok((machine, kernel))
    }
}

/// Options of `terrace-lab run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    guest: GuestArgs,
    /// Give up after this long, boot included
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// Take the guest for hung, and boot it again, when it is not ready after this long
    #[arg(long, value_name = "TIME", default_value = "3m", value_parser = humantime::parse_duration)]
    boot_timeout: Duration,
    /// When memory is counted and delayed
    #[arg(long, value_enum, default_value_t = Delays::On)]
    delays: Delays,
    /// Host directory that the guest may write to, at the same path (may be repeated)
    #[arg(long, value_name = "DIR")]
    share: Vec<PathBuf>,
    #[command(flatten)]
    pmu: Pmu,
    /// Write what came of it as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the time series: one JSON object a line
    #[arg(long, value_name = "FILE")]
    series: Option<PathBuf>,
    /// Say on standard error how the guest came up and what memory it used
    #[arg(long, short)]
    verbose: bool,
    /// Command and arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(crate) fn main(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let (machine, kernel) = args.guest.load()?;
    let spec = Spec {
        machine: &machine,
        kernel: &kernel,
        job: job(args, &machine)?,
        pmu: args.pmu,
        timeout: args.timeout,
        boot_timeout: args.boot_timeout,
        program: std::env::current_exe().context("Cannot find the running program")?,
        forward: None,
    };
    let outcome = boot::run(&spec, to_stdout(), to_stderr())?;
    if args.verbose {
        describe(&outcome);
    }
    if let Some(path) = &args.series {
        fs::write(path, &outcome.series_text)
            .with_context(|| format!("Cannot write {}", path.display()))?;
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&report(args, &machine, &outcome)?)?;
        fs::write(path, text + "\n").with_context(|| format!("Cannot write {}", path.display()))?;
    }
    Ok(ExitCode::from(
        u8::try_from(outcome.code & 0xff).unwrap_or(1),
    ))
}

fn job(args: &RunArgs, machine: &Machine) -> anyhow::Result<Job> {
    let mut job = Job::here(machine, args.command.clone(), args.delays)
        .context("Cannot tell the current directory")?;
    for (index, path) in args.share.iter().enumerate() {
        let path = fs::canonicalize(path)
            .with_context(|| format!("Cannot share {} with the guest", path.display()))?;
        job.shares
            .push((format!("share{index}"), path.to_string_lossy().into_owned()));
    }
    Ok(job)
}

fn to_stdout() -> Sink {
    Box::new(|bytes| {
        let mut out = std::io::stdout().lock();
        // A closed pipe must not end the guest in the middle.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    })
}

fn to_stderr() -> Sink {
    Box::new(|bytes| {
        let _ = std::io::stderr().lock().write_all(bytes);
    })
}

fn describe(outcome: &Outcome) {
    eprintln!(
        "terrace-lab: kernel {}, booted in {:.1} s, command took {:.1} s, exit code {}",
        outcome.kernel, outcome.boot_s, outcome.run_s, outcome.code
    );
    for node in &outcome.nodes {
        eprintln!(
            "terrace-lab: node {}: {} MiB, {} MiB free before the command, {}",
            node.id,
            node.total_kib >> 10,
            node.free_kib >> 10,
            if node.tier.is_empty() {
                "in no memory tier"
            } else {
                &node.tier
            }
        );
    }
    if let Some(totals) = outcome.series.totals() {
        for (id, node) in totals.nodes.iter().enumerate() {
            eprintln!(
                "terrace-lab: node {id}: {} loads, {} stores missed the cache ({} in streams); \
                 kernel copied {} KiB from it, {} KiB to it; written to it: {} KiB by programs, \
                 {} KiB by copies, {} KiB by clearing",
                node.loads,
                node.stores,
                node.stream,
                node.kernel_read_bytes >> 10,
                node.kernel_write_bytes >> 10,
                totals.bytes(node.writebacks_program()) >> 10,
                totals.bytes(node.writebacks_copy) >> 10,
                totals.bytes(node.writebacks_clear) >> 10,
            );
        }
    }
}

fn report(
    args: &RunArgs,
    machine: &Machine,
    outcome: &Outcome,
) -> anyhow::Result<serde_json::Value> {
    let made_by = (boot::emulator()?, outcome.kernel.clone());
    let machine_file = &args.guest.machine;
    let made_with = RunInfo::of_machine((&machine.name, machine), machine_file, made_by);
    let marks: Vec<_> = outcome.series.marks().map(|(_, line)| line).collect();
    let totals = outcome.series.totals();
    Ok(serde_json::json!({
        "run": made_with,
        "machine": machine.name,
        "kernel": outcome.kernel,
        "command": args.command,
        "exit_code": outcome.code,
        "boot_s": outcome.boot_s,
        "run_s": outcome.run_s,
        "nodes": outcome.nodes,
        "fast_access_ratio": totals.and_then(|line| line.share(machine.ranking(0)[0])),
        "totals": totals,
        "marks": marks,
    }))
}
