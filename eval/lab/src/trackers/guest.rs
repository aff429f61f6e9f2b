// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side: runs all pairs and prints a [`Row`] of each as a line of JSON.

use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use terrace_core::Nanos;
use terrace_sys::clock;

use super::damon::Damon;
use super::heat::Heat;
use super::record::Row;
use super::record::Source;
use super::score::Score;
use super::target::Load;
use super::target::Target;
use super::translations;
use super::translations::own_time;
use super::watch::Bits;
use super::watch::Faults;
use super::watch::Samples;
use super::watch::Watch;

/// How often a tracker's news are taken: looking costs something, too.
const LOOK: Duration = Duration::from_secs(1);

/// What the guest is to do.
#[derive(Debug, Clone)]
pub struct Job {
    /// The workloads.
    pub loads: Vec<Load>,
    /// The trackers.
    pub sources: Vec<Source>,
    /// Shares of a processor, in thousandths.
    pub permille: Vec<u32>,
    /// How long each watches.
    pub time: Duration,
    /// What a sample of the PMU costs its processor, ns of the guest's time.
    pub sample_ns: f64,
}

/// Runs all of it.
pub fn main(job: &Job) {
    translations::start();
    for load in &job.loads {
        for source in &job.sources {
            for permille in &job.permille {
                let row = match run(job, load, *source, *permille) {
                    Ok(row) => row,
                    Err(error) => failed(load, *source, *permille, format!("{error:#}")),
                };
                let text = serde_json::to_string(&row).expect("plain data");
                let mut out = std::io::stdout().lock();
                // A host that is gone ends the guest anyway.
                let _ = writeln!(out, "{text}").and_then(|()| out.flush());
            }
        }
    }
}

fn failed(load: &Load, source: Source, permille: u32, why: String) -> Row {
    Row {
        workload: load.workload.clone(),
        source,
        permille,
        seconds: 0.0,
        own_s: 0.0,
        kernel_s: 0.0,
        program_s: 0.0,
        pages: 0,
        seen: 0,
        score: None,
        failed: Some(why),
        run: None,
    }
}

fn start(
    job: &Job,
    load: &Load,
    source: Source,
    permille: u32,
) -> anyhow::Result<(Target, Box<dyn Watch>)> {
    let scanner = match source {
        Source::HintFaults => Some(Faults::settings(load.program()?.bytes(), permille)?),
        _ => None,
    };
    let target = load.start()?;
    let (pid, range) = (target.pid(), target.range);
    let watch: Box<dyn Watch> = match (source, scanner) {
        (Source::HintFaults, Some(scanner)) => {
            Box::new(Faults::open(pid, Heat::new(range).len(), scanner)?)
        }
        (Source::HintFaults, None) => bail!("The scanner is not set"),
        (Source::Pmu, _) => Box::new(Samples::open(pid, permille, job.sample_ns)?),
        (Source::Damon(regions), _) => Box::new(Damon::open(pid, range, permille, regions)?),
        (Source::AccessedBits, _) => Box::new(Bits::open(pid, range, permille)?),
    };
    Ok((target, watch))
}

fn run(job: &Job, load: &Load, source: Source, permille: u32) -> anyhow::Result<Row> {
    let (mut target, mut watch) = start(job, load, source, permille)?;
    let mut heat = Heat::new(target.range);
    watch.drain(&mut heat)?;
    // What it saw while it was set up was at another price.
    if !matches!(source, Source::HintFaults | Source::AccessedBits) {
        heat.forget();
    }
    let (begin, own) = (clock::now(), own_time());
    let others = watch.others();
    let end = begin + Nanos::from(job.time);
    let mut row = failed(load, source, permille, String::new());
    while clock::now() < end {
        std::thread::sleep(LOOK);
        watch.drain(&mut heat)?;
        let now = watch.others();
        let seconds = |time: Nanos| Duration::from(time).as_secs_f64();
        row.seconds = seconds(clock::now().since(begin));
        row.own_s = seconds(own_time().since(own));
        row.kernel_s = seconds(now.kernel.since(others.kernel));
        row.program_s = seconds(now.program.since(others.program));
        watch.steer(row.overhead() * 1e3 / f64::from(permille))?;
        if !target.is_alive() {
            bail!("The workload ended before it was told to");
        }
    }
    watch.finish(&mut heat, clock::now().since(begin));
    let said = heat.said();
    row.pages = said.len();
    row.seen = said.iter().filter(|page| page.seen).count();
    row.score = Some(Score::of(&target.truth(begin, clock::now()), &said));
    row.failed = None;
    Ok(row)
}
