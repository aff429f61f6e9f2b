// SPDX-License-Identifier: MIT OR Apache-2.0
//! One boot: one workload under one system, from the command for the guest to the record.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use terrace_experiment::RunInfo;
use terrace_machine_spec::Machine;
use terrace_policy::Capabilities;
use terrace_policy::Preset;

use super::analysis;
use super::case;
use super::case::Case;
use super::client::Client;
use super::guest_output::Heard;
use super::guest_output::sinks;
use super::host_load::HostLoad;
use super::matrix::Plan;
use super::pace::Pace;
use super::pace::Paces;
use super::record::GuestLine;
use super::record::Point;
use super::record::RunRecord;
use super::record::System;
use super::redis;
use crate::boot;
use crate::boot::Outcome;
use crate::job::Delays;
use crate::job::Job;
use crate::plugin::Pmu;

/// Boot, set-up, filling and checking, beyond the measured time: after that a run has hung.
const OVERHEAD: Duration = Duration::from_secs(240);
/// From here on other programs' share of the host is worth a line.
const HOST_BUSY: f64 = 0.1;
/// Misses for one sample of the emulated PMU.
const SAMPLE_PERIOD: u32 = 397;

/// Boots, runs and reads what came of it; a run that fails is a record that says so.
pub(super) fn run(
    plan: &Plan<'_>,
    case: &Case,
    system: System,
    fast_free: Option<u64>,
    label: &str,
    tell: fn(&str),
) -> RunRecord {
    let name = &case.to_string();
    let client = match case
        .is_redis()
        .then(|| Client::new(&plan.python_path, redis::PORT))
        .transpose()
    {
        Ok(client) => client,
        Err(error) => return RunRecord::failed(name, system, format!("{error:#}")),
    };
    let forward = client.as_ref().map(Client::forward);
    let heard = Arc::new(Mutex::new(Heard::with(client)));
    let (out, err) = sinks(&heard, label, tell);
    let load = HostLoad::now();
    let pace = Pace::measure();
    let result = job(plan, case, system, fast_free).and_then(|job| {
        let spec = boot::Spec {
            machine: plan.machine,
            kernel: plan.kernel,
            job,
            pmu: Pmu::default(),
            timeout: plan.time + OVERHEAD,
            boot_timeout: boot::BOOT_TIMEOUT,
            program: plan.program.clone(),
            forward,
        };
        Ok(boot::run(&spec, out, err)?)
    });
    let mut heard = std::mem::take(&mut *heard.lock().unwrap_or_else(PoisonError::into_inner));
    heard.end();
    let fast_node = plan.machine.ranking(0)[0];
    let mut record = match result {
        Ok(outcome) => record(name, system, &outcome, &heard, fast_node),
        Err(error) => RunRecord::failed(name, system, format!("{error:#}")),
    };
    record.threads = plan.threads;
    record.run = boot::emulator().ok().map(|emulator| {
        let made_by = (emulator, record.kernel.clone());
        Box::new(made_with(plan, system, made_by))
    });
    record.moved_at = record
        .fast_free_bytes
        .and_then(|bytes| moves_at(&case.workload, bytes));
    record.seconds_to_90pct_after_move = record
        .moved_at
        .and_then(|at| analysis::recovery(&record.series, at));
    with_pace(&mut record.series, &heard.seconds, &pace.end());
    record.host_pace = analysis::final_pace(&record.series);
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

/// How fast the host was in each second of a run. The guest tells when one ends; a server's first line is
/// its begin.
fn with_pace(points: &mut [Point], ends: &[Instant], paces: &Paces) {
    let Some(first) = ends.len().checked_sub(points.len()) else {
        return;
    };
    let mut begin = 0.0;
    for (point, &end) in points.iter_mut().zip(&ends[first..]) {
        let length = Duration::from_secs_f64((point.t - begin).max(0.0));
        begin = point.t;
        point.host_pace = end
            .checked_sub(length)
            .and_then(|from| paces.between(from, end));
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
    let last = analysis::last(&outcome.series, fast_node);
    let mut record = RunRecord {
        ops_per_s: last.map(|last| last.ops_per_s),
        fast_access_ratio: last.and_then(|last| last.fast_access_ratio),
        kernel: outcome.kernel.clone(),
        nodes: outcome.nodes.clone(),
        failed: None,
        series: analysis::points(&outcome.series, fast_node),
        ..RunRecord::failed(workload, system, String::new())
    };
    let mut moves = None;
    for line in &heard.lines {
        match line {
            GuestLine::Sized(bytes) => record.fast_free_bytes = Some(*bytes),
            GuestLine::Moves(counted) => moves = Some(*counted),
            GuestLine::Terrace(status) => record.terrace = Some(status.clone()),
            GuestLine::Failed(why) => record.failed = Some(why.clone()),
            GuestLine::Skipped(why) => {
                return RunRecord {
                    kernel: outcome.kernel.clone(),
                    ..RunRecord::skipped(workload, system, why.clone())
                };
            }
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
    case: &Case,
    system: System,
    fast_free: Option<u64>,
) -> anyhow::Result<Job> {
    let ranking = plan.machine.ranking(0);
    let (fast, slow) = (ranking[0], ranking[ranking.len() - 1]);
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let mut command = vec![text(&plan.program), "scenario".to_owned()];
    command.extend([
        format!("--case={case}"),
        format!("--system={}", system.name()),
        format!("--threads={}", plan.threads),
        format!("--seconds={}", plan.time.as_secs()),
        format!("--fast-node={fast}"),
        format!("--slow-node={slow}"),
        format!("--tools={}", plan.tools.display()),
        format!("--seed={}", plan.seed),
    ]);
    command.extend((0..plan.machine.sockets.len()).map(|socket| {
        let nodes = plan.machine.ranking(socket);
        let nodes: Vec<String> = nodes.iter().map(usize::to_string).collect();
        format!("--order={}", nodes.join(","))
    }));
    command.extend(plan.bind.then(|| "--bind".to_owned()));
    command.extend(fast_free.map(|bytes| format!("--fast-free={bytes}")));
    command.extend(plan.huge.then(|| "--huge".to_owned()));
    for option in terrace_options(plan, system) {
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
        network: case.is_redis(),
    })
}

/// What a run was made with, by which emulator and kernel.
fn made_with(plan: &Plan<'_>, system: System, made_by: (String, String)) -> RunInfo {
    let machine = (plan.machine.name.as_str(), plan.machine);
    let info = RunInfo::of_machine(machine, plan.machine_file, made_by);
    let options = terrace_options(plan, system);
    let given: BTreeMap<_, _> = options
        .iter()
        .filter_map(|option| option.strip_prefix("--param=")?.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect();
    RunInfo {
        seed: Some(plan.seed),
        seconds: Some(plan.time.as_secs_f64()),
        ..info.with_parameters(system.policy(), given)
    }
}

/// What `terrace run` is told besides the preset's name.
fn terrace_options(plan: &Plan<'_>, system: System) -> Vec<String> {
    let preset = system.preset();
    let mut options = preset.map_or_else(Vec::new, |preset| preset_options(preset, plan.machine));
    options.extend(system.parameters().map(|own| format!("--param={own}")));
    options.extend_from_slice(&plan.terrace_options);
    options
}

/// When a workload's accesses change, seconds from its begin; `None` where they do not.
fn moves_at(workload: &str, fast_free: u64) -> Option<f64> {
    let workload = case::sized(workload, fast_free, &[]).ok()?;
    let phases = &workload.programs.first()?.phases;
    let lasts = phases.first().filter(|_| phases.len() > 1)?.lasts?;
    Some(lasts.as_secs_f64())
}

/// What a preset is told of the machine: its parameters that follow the dilation. One in [`SAMPLE_PERIOD`]
/// misses keeps sampling at some percent of a processor.
///
/// What else HeMem's paper gives stays:
/// * thresholds (8, 4, 18), `swap_ratio` and `copy_threads` are numbers, not times; the period counts
///   accesses, and memory a thousandth as large needs fewer of them to know a page as well;
/// * `free_reserve` and `managed_threshold` are shares of the fast tier (of a page at least);
/// * `inflight_bytes` is about what may be moved in a tick, whose time is longer as the rate is lower:
///   100 MB either way. That is much for the lab's memory; simulated with the lab's costs, 4 and 8 MiB
///   take some seconds longer to settle and end where 128 MiB does (docs/papers/hemem.md);
/// * `inventory_interval` spaces work of the kernel in proportion to memory, which is small here.
fn preset_options(preset: &Preset, machine: &Machine) -> Vec<String> {
    let period = sample_period(preset);
    let period = period.map(|period| format!("--sample-period={period}"));
    let dilated = dilated(preset, machine).into_iter();
    let dilated = dilated.map(|(name, value)| format!("--param={name}={value}"));
    period.into_iter().chain(dilated).collect()
}

/// Misses for one sample, where the preset decides by samples.
pub(crate) fn sample_period(preset: &Preset) -> Option<u32> {
    let samples = preset.needs.contains(Capabilities::SAMPLES);
    samples.then_some(SAMPLE_PERIOD)
}

/// The preset's parameters that follow the machine's dilation.
pub(crate) fn dilated(preset: &Preset, machine: &Machine) -> Vec<(&'static str, String)> {
    (preset.dilated)(machine.lab.map_or(1.0, |lab| lab.dilation))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

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
    fn times_are_as_long_as_the_machine_is_slow() {
        let machine = |text: &str| Machine::parse(text, Path::new("m.toml")).expect("checked");
        let slow = machine(include_str!("../../../../machines/hemem-2cpu.toml"));
        assert_eq!(slow.lab.map(|lab| lab.dilation), Some(20.0));
        let told = |name| preset_options(Preset::of(name).expect("a preset"), &slow);
        assert_eq!(
            told("hemem"),
            [
                "--sample-period=397",
                "--param=policy_interval=200000000",
                "--param=max_migration_rate=500000000"
            ]
        );
        assert_eq!(told("adaptive"), ["--param=sample_period=25000"]);
        assert_eq!(told("none"), [""; 0]);
    }

    #[test]
    fn a_run_says_with_which_parameters() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        let machine = Machine::load(&path).expect("a machine");
        let kernel = crate::kernel::Kernel {
            image: PathBuf::new(),
            modules: PathBuf::new(),
        };
        let plan = Plan {
            machine: &machine,
            machine_file: &path,
            kernel: &kernel,
            program: PathBuf::new(),
            tools: PathBuf::new(),
            python_path: PathBuf::new(),
            cases: vec!["gups:full".parse().expect("a case")],
            threads: 2,
            systems: Vec::new(),
            time: Duration::from_secs(9),
            rounds: 1,
            within: None,
            seed: 7,
            fast_free: None,
            huge: true,
            bind: true,
            terrace_options: vec!["--param=hot_read_threshold=5".to_owned()],
            json: None,
            html: None,
        };
        let of = |system| made_with(&plan, system, ("QEMU 1".to_owned(), "6.12".to_owned()));
        let info = of(System::Preset("hemem"));
        assert_eq!((info.seed, info.seconds), (Some(7), Some(9.0)));
        assert_eq!(info.parameters["policy_interval"], "200000000", "dilated");
        assert_eq!(info.parameters["hot_read_threshold"], "5", "as given");
        assert!(info.parameters.contains_key("cooling_threshold"), "default");
        let job = job(&plan, &plan.cases[0], System::None, None).expect("a job");
        for wanted in [
            "--case=gups:full",
            "--threads=2",
            "--huge",
            "--order=0,1",
            "--bind",
        ] {
            assert!(
                job.command.iter().any(|option| option == wanted),
                "{wanted}"
            );
        }
    }

    #[test]
    fn each_second_has_its_pace() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs_f64(seconds);
        let paces = Paces(vec![(at(0.5), 1.0), (at(1.5), 2.0), (at(2.5), 3.0)]);
        let point = |t| Point {
            t,
            ops_per_s: 1.0,
            fast_access_ratio: None,
            host_pace: None,
        };
        for ends in [vec![at(1.0), at(2.0)], vec![at(0.0), at(1.0), at(2.0)]] {
            let mut points = [point(1.0), point(2.0)];
            with_pace(&mut points, &ends, &paces);
            let told = points.map(|point| point.host_pace);
            assert_eq!(told, [Some(1.0), Some(2.0)]);
        }
        let mut points = [point(1.0)];
        with_pace(&mut points, &[], &paces);
        assert_eq!(points[0].host_pace, None);
    }

    #[test]
    fn only_a_workload_of_several_phases_moves() {
        assert_eq!(moves_at("gups-moving", 100 << 20), Some(30.0));
        assert_eq!(moves_at("gups", 100 << 20), None);
        assert_eq!(moves_at("redis", 100 << 20), None);
    }

    #[test]
    fn what_the_kernel_cannot_do_is_no_failure() {
        let mut heard = Heard::default();
        heard.take(b"{\"skipped\":\"the guest's kernel lacks goals\"}\n");
        let run = record("gups", System::None, &outcome(0), &heard, 0);
        assert_eq!((run.failed, run.kernel.as_str()), (None, "6.12"));
        assert_eq!(
            run.skipped.as_deref(),
            Some("the guest's kernel lacks goals")
        );
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
