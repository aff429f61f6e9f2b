// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side: one boot for each workload and system, results written after each.
//!
//! A run that fails is a result that says so; the next one goes on. Stopping in the middle keeps
//! what is done.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use terrace_config::Machine;
use terrace_workload::Sizes;
use terrace_workload::Workload;

use super::analysis;
use super::client::Client;
use super::heard::Heard;
use super::heard::sinks;
use super::host_load::HostLoad;
use super::host_load::Pace;
use super::page;
use super::record::GuestLine;
use super::record::RunRecord;
use super::record::System;
use super::redis;
use super::scenario::REDIS;
use super::setup;
use crate::boot;
use crate::boot::Outcome;
use crate::job::Delays;
use crate::job::Job;
use crate::kernel::Kernel;
use crate::plugin::Pmu;

/// Boot, set-up, filling and checking, beyond the measured time: after that a run has hung.
const OVERHEAD: Duration = Duration::from_secs(240);
/// From here on other programs' share of the host is worth a line.
const HOST_BUSY: f64 = 0.1;
/// A run this much slower than the fastest of the call was on a slower host.
const HOST_SLOW: f64 = 0.9;
/// Misses for one sample of the emulated PMU.
const SAMPLE_PERIOD: u32 = 397;

/// All pairs to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The guest's kernel.
    pub kernel: &'a Kernel,
    /// The program `terrace-lab`.
    pub program: PathBuf,
    /// Where `terrace` and `terrace-bench` are.
    pub tools: PathBuf,
    /// Where the load generator's libraries are, or will be.
    pub python_path: PathBuf,
    /// By name.
    pub workloads: Vec<String>,
    /// In the order of the runs.
    pub systems: Vec<System>,
    /// Measured time of a run.
    pub time: Duration,
    /// Of everything random.
    pub seed: u64,
    /// Free fast memory that the workloads are sized for; what is free in a workload's first run
    /// where absent.
    pub fast_free: Option<u64>,
    /// More options for `terrace run`.
    pub terrace_options: Vec<String>,
    /// Where the results go as JSON.
    pub json: Option<PathBuf>,
    /// Where the page goes.
    pub html: Option<PathBuf>,
}

/// Runs all pairs. `tell` gets a line of progress now and then.
///
/// # Errors
///
/// Where something that all runs need is missing, or the results cannot be written.
pub fn run(plan: &Plan<'_>, tell: fn(&str)) -> anyhow::Result<Vec<RunRecord>> {
    set_up(plan)?;
    let count = plan.workloads.len() * plan.systems.len();
    let mut records: Vec<RunRecord> = Vec::new();
    let mut fast_free: BTreeMap<&str, u64> = BTreeMap::new();
    for workload in &plan.workloads {
        for &system in &plan.systems {
            let label = format!(
                "[{}/{count}] {workload}, {}",
                records.len() + 1,
                system.name()
            );
            tell(&format!("{label}: booting"));
            let begun = Instant::now();
            let size = plan
                .fast_free
                .or_else(|| fast_free.get(workload.as_str()).copied());
            let record = one(plan, workload, system, size, &label, tell);
            tell(&format!("{label}: {}, {}", verdict(&record), took(begun)));
            if let Some(bytes) = record.fast_free_bytes {
                fast_free.entry(workload).or_insert(bytes);
            }
            records.push(record);
            warn_of_pace(&records, &label, tell);
            analysis::relate(&mut records);
            write(plan, &records)?;
        }
    }
    Ok(records)
}

fn set_up(plan: &Plan<'_>) -> anyhow::Result<()> {
    if plan.systems.iter().any(|system| system.is_terrace()) {
        setup::program(&plan.tools.join("terrace"), "build it with make build")?;
    }
    if plan.workloads.iter().any(|workload| workload != REDIS) {
        setup::program(
            &plan.tools.join("terrace-bench"),
            "build it with make build",
        )?;
    }
    if plan.workloads.iter().any(|workload| workload == REDIS) {
        setup::program(Path::new("/usr/bin/redis-server"), "install redis-server")?;
        setup::program(Path::new("/usr/bin/migratepages"), "install numactl")?;
        setup::load_generator(&plan.python_path)?;
    }
    Ok(())
}

fn took(begun: Instant) -> String {
    format!("{} s", begun.elapsed().as_secs())
}

fn verdict(record: &RunRecord) -> String {
    match (&record.failed, record.ops_per_s) {
        (Some(why), _) => format!("FAILED: {why}"),
        (None, Some(rate)) => format!(
            "{rate:.0} ops/s, {:.0} % fast",
            record.fast_access_ratio.unwrap_or(0.0) * 100.0
        ),
        (None, None) => "no figures".to_owned(),
    }
}

/// One boot.
fn one(
    plan: &Plan<'_>,
    workload: &str,
    system: System,
    fast_free: Option<u64>,
    label: &str,
    tell: fn(&str),
) -> RunRecord {
    let client = match (workload == REDIS)
        .then(|| Client::new(&plan.python_path, redis::PORT))
        .transpose()
    {
        Ok(client) => client,
        Err(error) => return RunRecord::failed(workload, system, format!("{error:#}")),
    };
    let forward = client.as_ref().map(Client::forward);
    let heard = Arc::new(Mutex::new(Heard::with(client)));
    let (out, err) = sinks(&heard, label, tell);
    let load = HostLoad::now();
    let pace = Pace::measure();
    let result = job(plan, workload, system, fast_free).and_then(|job| {
        let spec = boot::Spec {
            machine: plan.machine,
            kernel: plan.kernel,
            job,
            pmu: Pmu::default(),
            timeout: plan.time + OVERHEAD,
            program: plan.program.clone(),
            forward,
        };
        Ok(boot::run(&spec, out, err)?)
    });
    let mut heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    heard.end();
    let fast_node = plan.machine.ranking(0)[0];
    let mut record = match result {
        Ok(outcome) => record(workload, system, &outcome, &heard, fast_node),
        Err(error) => RunRecord::failed(workload, system, format!("{error:#}")),
    };
    record.host_pace = pace.end();
    record.host_busy_ratio = load.and_then(HostLoad::others_since);
    if let Some(busy) = record.host_busy_ratio.filter(|&busy| busy > HOST_BUSY) {
        let percent = busy * 100.0;
        tell(&format!(
            "{label}: other programs used {percent:.0} % of this host meanwhile; rates suffer"
        ));
    }
    if record.failed.is_some() {
        tell(&format!(
            "{label}: the guest said last:\n{}",
            tail(&heard.log)
        ));
    }
    record
}

/// Says so where the host was slower in the last run than in another.
fn warn_of_pace(records: &[RunRecord], label: &str, tell: fn(&str)) {
    let paces = || records.iter().filter_map(|record| record.host_pace);
    let fastest = paces().fold(0.0, f64::max);
    let last = records.last().and_then(|record| record.host_pace);
    if let Some(pace) = last.filter(|pace| *pace < fastest * HOST_SLOW) {
        let percent = pace / fastest * 100.0;
        tell(&format!(
            "{label}: this host was at {percent:.0} % of the pace of another run; rates suffer"
        ));
    }
}

/// The last lines of what programs said.
fn tail(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}

fn record(
    workload: &str,
    system: System,
    outcome: &Outcome,
    heard: &Heard,
    fast_node: usize,
) -> RunRecord {
    let series = analysis::points(&outcome.series, fast_node);
    let mut record = RunRecord {
        ops_per_s: analysis::final_rate(&series),
        fast_access_ratio: analysis::final_share(&outcome.series, fast_node),
        kernel: outcome.kernel.clone(),
        nodes: outcome.nodes.clone(),
        failed: None,
        series,
        ..RunRecord::failed(workload, system, String::new())
    };
    let mut moves = None;
    for line in &heard.lines {
        match line {
            GuestLine::Sized(bytes) => record.fast_free_bytes = Some(*bytes),
            GuestLine::Moves(counted) => moves = Some(*counted),
            GuestLine::Terrace(status) => record.terrace = Some(status.clone()),
            GuestLine::Failed(why) => record.failed = Some(why.clone()),
            GuestLine::Load(_)
            | GuestLine::EndLoad
            | GuestLine::Workload(_)
            | GuestLine::Note(_) => {}
        }
    }
    if record.failed.is_none() {
        record.failed.clone_from(&heard.client_failed);
    }
    record.moves = moves.unwrap_or_default();
    record.written = analysis::written(&outcome.series);
    record.moved_at = record
        .fast_free_bytes
        .and_then(|bytes| moves_at(workload, bytes));
    record.seconds_to_90pct_after_move = record
        .moved_at
        .and_then(|at| analysis::recovery(&record.series, at));
    if record.failed.is_none() && (outcome.code != 0 || moves.is_none()) {
        record.failed = Some(format!(
            "The scenario ended with exit code {}",
            outcome.code
        ));
    }
    if record.failed.is_none() && record.ops_per_s.is_none() {
        record.failed = Some("The emulator's time series has no seconds of the run".to_owned());
    }
    record
}

fn job(
    plan: &Plan<'_>,
    workload: &str,
    system: System,
    fast_free: Option<u64>,
) -> anyhow::Result<Job> {
    let ranking = plan.machine.ranking(0);
    let (fast, slow) = (ranking[0], ranking[ranking.len() - 1]);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![text(&plan.program), "scenario".to_owned()];
    command.extend([
        format!("--workload={workload}"),
        format!("--system={}", system.name()),
        format!("--seconds={}", plan.time.as_secs()),
        format!("--fast-node={fast}"),
        format!("--slow-node={slow}"),
        format!("--tools={}", plan.tools.display()),
        format!("--seed={}", plan.seed),
    ]);
    command.extend(fast_free.map(|bytes| format!("--fast-free={bytes}")));
    let preset = match system {
        System::Hemem => hemem_options(plan.machine),
        _ => Vec::new(),
    };
    for option in preset.iter().chain(&plan.terrace_options) {
        command.push(format!("--terrace-option={option}"));
    }
    // Nothing of the caller's environment: a comparison is the same wherever it is started.
    let environment = [
        ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/root"),
        ("LANG", "C.UTF-8"),
    ];
    Ok(Job {
        command,
        directory: text(&std::env::current_dir().context("Cannot tell the current directory")?),
        environment: environment
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        delays: Delays::Mark,
        lab_node: slow,
        fast_node: fast,
        shares: Vec::new(),
        network: workload == REDIS,
    })
}

/// When a workload's accesses change, seconds from its begin; `None` where they do not.
fn moves_at(workload: &str, fast_free: u64) -> Option<f64> {
    let workload = Workload::named(workload, &Sizes::fast_free(fast_free)).ok()?;
    let phases = &workload.programs.first()?.phases;
    let lasts = phases.first().filter(|_| phases.len() > 1)?.lasts?;
    Some(lasts.as_secs_f64())
}

/// HeMem in the lab. The machine's times are longer by the dilation, so are the paper's: a policy
/// tick of 10 ms, 10 GB/s. One in [`SAMPLE_PERIOD`] misses keeps sampling at some percent of a
/// processor. The preset's other amounts stay:
/// * thresholds (8, 4, 18), `swap_ratio` and `copy_threads` are numbers, not times; the period counts
///   accesses, and memory a thousandth as large needs fewer of them to know a page as well;
/// * `free_reserve` and `managed_threshold` are shares of the fast tier (of a page at least);
/// * `inflight_bytes` is about what may be moved in a tick, whose time is longer as the rate is lower:
///   100 MB either way. That is much for the lab's memory; simulated with the lab's costs, 4 and 8 MiB
///   take some seconds longer to settle and end where 128 MiB does (docs/papers/hemem.md);
/// * `inventory_interval` spaces work of the kernel in proportion to memory, which is small here.
fn hemem_options(machine: &Machine) -> Vec<String> {
    let dilation = machine.lab.map_or(1.0, |lab| lab.dilation);
    vec![
        format!("--sample-period={SAMPLE_PERIOD}"),
        format!("--param=policy_interval={:.0}us", 10_000.0 * dilation),
        format!("--param=max_migration_rate={:.0}", 1e10 / dilation),
    ]
}

/// Writes what there is so far. A reader never sees half a file.
fn write(plan: &Plan<'_>, records: &[RunRecord]) -> anyhow::Result<()> {
    if let Some(path) = &plan.json {
        replace(path, &(serde_json::to_string_pretty(records)? + "\n"))?;
    }
    if let Some(path) = &plan.html {
        let title = format!("Terrace on {}", plan.machine.name);
        replace(path, &page::render(&title, records)?)?;
    }
    Ok(())
}

fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let fail = || format!("Cannot write {}", path.display());
    if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(fail)?;
    }
    let beside = path.with_extension("new");
    fs::write(&beside, text).with_context(fail)?;
    fs::rename(&beside, path).with_context(fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Series;

    fn outcome(code: i32) -> Outcome {
        Outcome {
            code,
            kernel: "6.12".to_owned(),
            uptime_s: 1.0,
            nodes: Vec::new(),
            boot_s: 1.0,
            run_s: 1.0,
            series: Series::default(),
            series_text: String::new(),
        }
    }

    #[test]
    fn hemems_times_are_as_long_as_the_machine_is_slow() {
        let machine = |text: &str| Machine::parse(text, Path::new("m.toml")).expect("checked");
        let slow = machine(include_str!("../../../machines/hemem-2cpu.toml"));
        assert_eq!(slow.lab.map(|lab| lab.dilation), Some(20.0));
        let options = hemem_options(&slow);
        let has = |option: &str| options.iter().any(|o| o == option);
        assert!(has("--param=policy_interval=200000us"), "{options:?}");
        assert!(has("--param=max_migration_rate=500000000"), "{options:?}");
    }

    #[test]
    fn only_a_workload_of_several_phases_moves() {
        assert_eq!(moves_at("gups-moving", 100 << 20), Some(30.0));
        assert_eq!(moves_at("gups", 100 << 20), None);
        assert_eq!(moves_at(REDIS, 100 << 20), None);
    }

    #[test]
    fn a_run_without_its_end_is_a_failure() {
        let heard = Heard::default();
        let run = |code, heard: &Heard| record("gups", System::None, &outcome(code), heard, 0);
        let failed = run(1, &heard).failed.unwrap();
        assert!(failed.contains("exit code 1"), "{failed}");
        assert!(
            run(0, &heard).failed.is_some(),
            "it never said that it was done"
        );
        let mut wrong = Heard::default();
        wrong.take(b"{\"failed\":\"Memory is wrong\"}\n");
        assert_eq!(run(1, &wrong).failed.as_deref(), Some("Memory is wrong"));
    }
}
