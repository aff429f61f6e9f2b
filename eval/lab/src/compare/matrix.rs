// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host's side: one boot for each workload and system, results written after each.
//!
//! A run that fails is a result that says so; the next one goes on. Stopping in the middle keeps
//! what is done.
//!
//! On a host that others share a run is as fast as they let it be, for minutes at a time. So all
//! systems may run in turns, several rounds of them: a pair's rate is the median of its runs, and two systems are judged
//! round by round ([`super::verdict`]). A round of a workload counts when all its
//! systems are through, and one that would not end within the time that the caller grants is not begun.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use terrace_machine_spec::Machine;

use super::analysis;
use super::case::Case;
use super::damon;
use super::damon::Mode;
use super::damon::Rate;
use super::one_run;
use super::page;
use super::record::RunRecord;
use super::record::System;
use super::setup;
use super::verdict;
use crate::kernel::Kernel;

/// A run this much slower than the fastest of the call was on a slower host.
const HOST_SLOW: f64 = 0.9;

/// All pairs to run.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Where it was read from.
    pub machine_file: &'a Path,
    /// The guest's kernel.
    pub kernel: &'a Kernel,
    /// The program `terrace-lab`.
    pub program: PathBuf,
    /// Where `terrace` and `terrace-bench` are.
    pub tools: PathBuf,
    /// Where the load generator's libraries are, or will be.
    pub python_path: PathBuf,
    /// What the systems run on.
    pub cases: Vec<Case>,
    /// Threads of a workload, over all its programs, where it takes a number of them.
    pub threads: u32,
    /// In the order of the runs.
    pub systems: Vec<System>,
    /// Measured time of a run.
    pub time: Duration,
    /// How often each pair runs, at least once.
    pub rounds: u32,
    /// No further round begins that would end later than this after the start.
    pub within: Option<Duration>,
    /// Of everything random.
    pub seed: u64,
    /// Free fast memory that the workloads are sized for; what is free in a workload's first run
    /// where absent.
    pub fast_free: Option<u64>,
    /// Whether workloads of `terrace-bench` ask for huge pages.
    pub huge: bool,
    /// Whether their threads stay on a socket each, in turn.
    pub bind: bool,
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
    let mut matrix = Matrix {
        plan,
        tell,
        started: Instant::now(),
        runs: Vec::new(),
        fast_free: BTreeMap::new(),
        took: BTreeMap::new(),
        taken: BTreeMap::new(),
        refused: BTreeMap::new(),
    };
    for round in 1..=plan.rounds.max(1) {
        for case in &plan.cases {
            if matrix.has_time_for(case) {
                matrix.round(case, round)?;
            }
        }
    }
    Ok(matrix.records())
}

/// What is done so far.
struct Matrix<'a> {
    plan: &'a Plan<'a>,
    tell: fn(&str),
    started: Instant,
    /// Every run that counts, in their order.
    runs: Vec<RunRecord>,
    /// What a workload's sizes are made from, the same from any start.
    fast_free: BTreeMap<&'a str, u64>,
    /// The longest round of a case.
    took: BTreeMap<&'a Case, Duration>,
    /// The rate at which DAMON was the fastest in a case's first round.
    taken: BTreeMap<&'a Case, Rate>,
    /// What this kernel cannot do, and why.
    refused: BTreeMap<System, String>,
}

impl<'a> Matrix<'a> {
    /// The first round always has.
    fn has_time_for(&self, case: &Case) -> bool {
        let took = self.took.get(case);
        match (self.plan.within, took) {
            (Some(within), Some(&took)) => self.started.elapsed() + took <= within,
            _ => true,
        }
    }

    /// All systems once. Of the later rounds nothing counts before all of it is there.
    fn round(&mut self, case: &'a Case, round: u32) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut later = Vec::new();
        for (index, &system) in self.plan.systems.iter().enumerate() {
            let label = self.label(case, system, index, round);
            let record = match system {
                System::Damon(Mode::Best) => self.best(case, &label),
                _ => self.one(case, system, &label),
            };
            if round == 1 {
                self.runs.push(record);
                self.write()?;
            } else {
                later.push(record);
            }
        }
        if round > 1 {
            self.runs.append(&mut later);
            self.write()?;
        }
        let took = self.took.entry(case).or_default();
        *took = begun.elapsed().max(*took);
        Ok(())
    }

    fn label(&self, case: &Case, system: System, index: usize, round: u32) -> String {
        let (all, system) = (self.plan.systems.len(), system.name());
        let cases = &self.plan.cases;
        if round > 1 {
            return format!("[again, {}/{all}] {case}, {system}", index + 1);
        }
        let before = cases.iter().position(|one| one == case);
        let number = before.unwrap_or(0) * all + index + 1;
        format!("[{number}/{}] {case}, {system}", cases.len() * all)
    }

    /// DAMON at each of its rates in the first round, and at the fastest of them from then on.
    fn best(&mut self, case: &'a Case, label: &str) -> RunRecord {
        let before = self.taken.get(case).copied();
        let rates = before.map_or_else(|| damon::RATES.to_vec(), |rate| vec![rate]);
        let mut runs = Vec::new();
        for rate in rates {
            let record = self.one(
                case,
                System::Damon(Mode::At(rate)),
                &format!("{label} at {rate}"),
            );
            let skipped = record.skipped.is_some();
            runs.push((rate, record));
            if skipped {
                break;
            }
        }
        let mut record = damon::fastest(&runs).expect("there are rates");
        if let Some(tried) = record.tried.iter().find(|tried| tried.taken) {
            self.taken.insert(case, tried.sample_ms);
        }
        if before.is_some() {
            record.tried.clear();
        }
        record
    }

    fn one(&mut self, case: &'a Case, system: System, label: &str) -> RunRecord {
        if let Some(why) = self.refused.get(&system) {
            (self.tell)(&format!("{label}: skipped"));
            return RunRecord::skipped(&case.to_string(), system, why.clone());
        }
        (self.tell)(&format!("{label}: booting"));
        let begun = Instant::now();
        let size = self.plan.fast_free;
        let size = size.or_else(|| self.fast_free.get(case.workload.as_str()).copied());
        let record = one_run::run(self.plan, case, system, size, label, self.tell);
        let (came_to, took) = (came_to(&record), begun.elapsed().as_secs());
        (self.tell)(&format!("{label}: {came_to}, {took} s"));
        if let Some(why) = &record.skipped {
            self.refused.insert(system, why.clone());
        }
        if let Some(bytes) = record.fast_free_bytes {
            self.fast_free.entry(&case.workload).or_insert(bytes);
        }
        warn_of_pace(&record, &self.runs, label, self.tell);
        record
    }

    fn write(&self) -> anyhow::Result<()> {
        write(self.plan, &self.records())
    }

    /// A record for each pair.
    fn records(&self) -> Vec<RunRecord> {
        let mut pairs: Vec<Vec<RunRecord>> = Vec::new();
        for run in &self.runs {
            let same = |pair: &&mut Vec<RunRecord>| {
                pair[0].workload == run.workload && pair[0].system == run.system
            };
            match pairs.iter_mut().find(same) {
                Some(pair) => pair.push(run.clone()),
                None => pairs.push(vec![run.clone()]),
            }
        }
        let records = pairs.iter().filter_map(|pair| RunRecord::of_all(pair));
        let mut records: Vec<RunRecord> = records.collect();
        analysis::relate(&mut records);
        verdict::note_model_errors(&mut records);
        records
    }
}

fn set_up(plan: &Plan<'_>) -> anyhow::Result<()> {
    if plan.systems.iter().any(|system| system.is_terrace()) {
        setup::program(&plan.tools.join("terrace"), "build it with make build")?;
    }
    if !plan.cases.iter().all(Case::is_redis) {
        setup::program(
            &plan.tools.join("terrace-bench"),
            "build it with make build",
        )?;
    }
    if plan.cases.iter().any(Case::is_redis) {
        setup::program(Path::new("/usr/bin/redis-server"), "install redis-server")?;
        setup::program(Path::new("/usr/bin/migratepages"), "install numactl")?;
        setup::load_generator(&plan.python_path)?;
    }
    Ok(())
}

fn came_to(record: &RunRecord) -> String {
    if let Some(why) = &record.skipped {
        return format!("skipped: {why}");
    }
    match (&record.failed, record.ops_per_s) {
        (Some(why), _) => format!("FAILED: {why}"),
        (None, Some(rate)) => format!(
            "{rate:.0} ops/s, {:.0} % fast",
            record.fast_access_ratio.unwrap_or(0.0) * 100.0
        ),
        (None, None) => "no figures".to_owned(),
    }
}

/// Says so where the host was slower in this run than in another.
fn warn_of_pace(record: &RunRecord, others: &[RunRecord], label: &str, tell: fn(&str)) {
    let paces = others.iter().filter_map(|record| record.host_pace);
    let fastest = paces.fold(0.0, f64::max);
    if let Some(pace) = record.host_pace.filter(|pace| *pace < fastest * HOST_SLOW) {
        let percent = pace / fastest * 100.0;
        tell(&format!(
            "{label}: this host was at {percent:.0} % of the pace of another run; rates suffer"
        ));
    }
}

/// Writes what there is so far.
fn write(plan: &Plan<'_>, records: &[RunRecord]) -> anyhow::Result<()> {
    if let Some(path) = &plan.json {
        replace(path, &(serde_json::to_string_pretty(records)? + "\n"))?;
    }
    if let Some(path) = &plan.html {
        let title = format!("Terrace on {}", plan.machine.name);
        replace(path, &page::render(&title, plan.machine, records)?)?;
    }
    Ok(())
}

/// Writes a file so that a reader never sees half of it.
///
/// # Errors
///
/// Where it cannot be written.
pub fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    terrace_sys::atomic_write::replace(path, text.as_bytes())
        .with_context(|| format!("Cannot write {}", path.display()))
}
