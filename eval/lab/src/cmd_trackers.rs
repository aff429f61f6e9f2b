// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-lab trackers`, and `terrace-lab watch`, which it runs in the guest.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::Context;
use anyhow::ensure;
use terrace_experiment::RunInfo;
use terrace_lab::boot;
use terrace_lab::boot::Sink;
use terrace_lab::boot::Spec;
use terrace_lab::job::Delays;
use terrace_lab::job::Job;
use terrace_lab::plugin::Pmu;
use terrace_lab::trackers::guest;
use terrace_lab::trackers::plot;
use terrace_lab::trackers::record::Row;
use terrace_lab::trackers::record::Source;
use terrace_lab::trackers::table;
use terrace_lab::trackers::target::Load;

use crate::cmd_run::GuestArgs;

/// What it takes to start a workload, a tracker, and to fill memory, beyond the time that it watches.
const OVERHEAD: Duration = Duration::from_secs(30);

/// What is watched by what, for how long, at which price.
#[derive(Debug, clap::Args)]
struct WhatArgs {
    /// Workloads of one program each; `terrace-bench list` names them
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "gups,zipf,scan,phases,ycsb-a"
    )]
    workloads: Vec<String>,
    /// Trackers: hint-faults, pmu, damon-N with N regions at most, accessed-bits
    #[arg(long, value_delimiter = ',', default_value = Source::ALL)]
    trackers: Vec<Source>,
    /// Shares of a processor that each may take, in percent
    #[arg(long, value_delimiter = ',', default_value = "0.5,1,5", value_parser = permille)]
    budgets: Vec<u32>,
    /// How long each watches
    #[arg(long, value_name = "TIME", default_value = "8s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Free fast memory that the workloads are sized for
    #[arg(long, value_name = "SIZE", default_value = "12MiB", value_parser = terrace_core::parse_bytes)]
    fast_free: u64,
    /// How long a phase of `phases` is
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = terrace_core::parse_duration)]
    phase_time: terrace_core::Nanos,
    /// Which node all memory is on; hint faults leave out the fast one where a program has one thread
    #[arg(long, value_name = "NODE", default_value = "slow", value_parser = ["slow", "fast"])]
    place: String,
    /// Seed of the workloads
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Options of `terrace-lab trackers`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrackersArgs {
    #[command(flatten)]
    guest: GuestArgs,
    #[command(flatten)]
    what: WhatArgs,
    /// Show figures that an earlier run has written (`--json`) too; what runs now replaces what is there
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Write the figures as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a picture of them
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Options of `terrace-lab watch`.
#[derive(Debug, clap::Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    what: WhatArgs,
    /// What a sample costs its processor, ns of the guest's time
    #[arg(long)]
    sample_ns: f64,
}

/// Tenths of a percent, which are the finest steps of a budget.
fn permille(text: &str) -> Result<u32, String> {
    let tenths = text.parse::<f64>().map(|percent| percent * 10.0);
    match tenths {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within 1 and 1000"
        )]
        Ok(tenths)
            if (1.0..=1000.0).contains(&tenths) && (tenths - tenths.round()).abs() < 1e-6 =>
        {
            Ok(tenths.round() as u32)
        }
        _ => Err(format!(
            "'{text}' is not a percentage from 0.1 to 100 in steps of 0.1"
        )),
    }
}

impl WhatArgs {
    fn loads(&self) -> anyhow::Result<Vec<Load>> {
        let program = std::env::current_exe().context("Cannot find the running program")?;
        let bench = program
            .parent()
            .unwrap_or(Path::new("/"))
            .join("terrace-bench");
        ensure!(
            bench.exists(),
            "No {}; build it with make build",
            bench.display()
        );
        let load = |workload: &String| {
            let phases = workload == "phases";
            let load = Load {
                bench: bench.clone(),
                workload: workload.clone(),
                settings: phases
                    .then(|| format!("phase_time={}ns", self.phase_time.0))
                    .into_iter()
                    .collect(),
                fast_free: self.fast_free,
                seed: self.seed,
                place: if self.place == "fast" { "fast" } else { "slow" },
            };
            load.program().map(|_| load)
        };
        self.workloads.iter().map(load).collect()
    }

    /// As the guest is told.
    fn to_args(&self) -> Vec<String> {
        let list = |names: Vec<String>| names.join(",");
        let shares = self
            .budgets
            .iter()
            .map(|tenths| (f64::from(*tenths) / 10.0).to_string());
        vec![
            format!("--workloads={}", list(self.workloads.clone())),
            format!(
                "--trackers={}",
                list(self.trackers.iter().map(Source::to_string).collect())
            ),
            format!("--budgets={}", list(shares.collect())),
            format!("--time={}ms", self.time.as_millis()),
            format!("--fast-free={}", self.fast_free),
            format!("--phase-time={}ns", self.phase_time.0),
            format!("--place={}", self.place),
            format!("--seed={}", self.seed),
        ]
    }
}

/// The guest's side.
pub(crate) fn watch(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    guest::main(&guest::Job {
        loads: args.what.loads()?,
        sources: args.what.trackers.clone(),
        permille: args.what.budgets.clone(),
        time: args.what.time,
        sample_ns: args.sample_ns,
    });
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn main(args: &TrackersArgs) -> anyhow::Result<ExitCode> {
    let (machine, kernel) = args.guest.load()?;
    let pairs = args.what.loads()?.len() * args.what.trackers.len() * args.what.budgets.len();
    let program = std::env::current_exe().context("Cannot find the running program")?;
    let pmu = Pmu::default();
    let dilation = machine.lab.map_or(1.0, |lab| lab.dilation);
    #[expect(
        clippy::cast_precision_loss,
        reason = "a charge of at most a millisecond"
    )]
    let sample_ns = pmu.charge_ns as f64 * dilation;
    let mut command = vec![program.to_string_lossy().into_owned(), "watch".to_owned()];
    command.extend(args.what.to_args());
    command.push(format!("--sample-ns={sample_ns}"));
    let heard = Arc::new(Mutex::new(Vec::new()));
    let spec = Spec {
        machine: &machine,
        kernel: &kernel,
        job: Job::here(&machine, command, Delays::Mark)
            .context("Cannot tell the current directory")?,
        pmu,
        timeout: boot::BOOT_TIMEOUT + (args.what.time + OVERHEAD) * u32::try_from(pairs)?,
        boot_timeout: boot::BOOT_TIMEOUT,
        program,
        forward: None,
    };
    let outcome = boot::run(&spec, to_both(Arc::clone(&heard)), to_stderr())?;
    let heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    let text = String::from_utf8_lossy(&heard);
    let machine_file = &args.guest.machine;
    let made_by = (boot::emulator()?, outcome.kernel.clone());
    let made_with = RunInfo {
        seed: Some(args.what.seed),
        seconds: Some(args.what.time.as_secs_f64()),
        ..RunInfo::of_machine((&machine.name, &machine), machine_file, made_by)
    };
    let rows = rows(&text, &made_with);
    let good =
        outcome.code == 0 && rows.len() == pairs && rows.iter().all(|row| row.failed.is_none());
    let rows = match &args.with {
        Some(path) => with(rows, path)?,
        None => rows,
    };
    write(args, &rows)?;
    println!("{}", table::render(&rows));
    Ok(ExitCode::from(u8::from(!good)))
}

/// What the guest found, with what it was made with.
fn rows(text: &str, made_with: &RunInfo) -> Vec<Row> {
    let rows = text.lines().filter_map(|line| {
        let row: Row = serde_json::from_str(line).ok()?;
        let run = Some(Box::new(made_with.clone()));
        Some(Row { run, ..row })
    });
    rows.collect()
}

/// Those of an earlier run that none of these replaces, and these, by workload and tracker.
fn with(rows: Vec<Row>, path: &Path) -> anyhow::Result<Vec<Row>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("Cannot read {}", path.display()))?;
    let earlier: Vec<Row> = serde_json::from_str(&text)
        .with_context(|| format!("{} was not written by trackers --json", path.display()))?;
    let key = |row: &Row| (row.workload.clone(), row.source, row.permille);
    let new: Vec<_> = rows.iter().map(key).collect();
    let kept = earlier.into_iter().filter(|row| !new.contains(&key(row)));
    let mut all: Vec<Row> = kept.chain(rows).collect();
    all.sort_by_key(key);
    Ok(all)
}

fn write(args: &TrackersArgs, rows: &[Row]) -> anyhow::Result<()> {
    let results = [
        (&args.json, serde_json::to_string_pretty(rows)? + "\n"),
        (&args.svg, plot::render(rows)),
    ];
    for (path, text) in results {
        if let Some(path) = path {
            fs::write(path, text).with_context(|| format!("Cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Kept, and shown as it comes.
fn to_both(heard: Arc<Mutex<Vec<u8>>>) -> Sink {
    Box::new(move |bytes| {
        heard
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        let _ = std::io::stderr().lock().write_all(bytes);
    })
}

fn to_stderr() -> Sink {
    Box::new(|bytes| {
        let _ = std::io::stderr().lock().write_all(bytes);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, permille: u32, seen: usize) -> Row {
        Row {
            workload: workload.to_owned(),
            source: Source::Pmu,
            permille,
            seconds: 1.0,
            own_s: 0.0,
            kernel_s: 0.0,
            program_s: 0.0,
            pages: 9,
            seen,
            score: None,
            failed: None,
            run: None,
        }
    }

    #[test]
    fn every_row_says_what_it_was_made_with() {
        let line = serde_json::to_string(&row("zipf", 5, 1)).expect("data");
        let made_by = ("QEMU 1".to_owned(), "6.12".to_owned());
        let made_with = RunInfo::of_machine(("m", &0), Path::new("m.toml"), made_by);
        let rows = rows(&format!("{line}\nno row\n{line}\n"), &made_with);
        assert_eq!(rows.len(), 2);
        assert!(
            rows.iter()
                .all(|row| row.run.as_deref() == Some(&made_with))
        );
    }

    #[test]
    fn what_ran_now_replaces_what_ran_before() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let before = vec![row("zipf", 5, 1), row("gups", 5, 2)];
        fs::write(file.path(), serde_json::to_string(&before).expect("data")).expect("written");
        let all = with(vec![row("zipf", 5, 3), row("gups", 10, 4)], file.path()).expect("rows");
        let seen: Vec<usize> = all.iter().map(|row| row.seen).collect();
        assert_eq!(seen, [2, 4, 3]);
        assert!(with(Vec::new(), Path::new("/nowhere")).is_err());
    }

    #[test]
    fn a_budget_is_a_percentage_with_one_digit() {
        assert_eq!(permille("0.5"), Ok(5));
        assert_eq!(permille("5"), Ok(50));
        for wrong in ["0", "0.05", "101", "x", "-1", "NaN"] {
            assert!(permille(wrong).is_err(), "{wrong}");
        }
    }
}
