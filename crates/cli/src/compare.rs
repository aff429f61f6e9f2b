// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace sim compare`: a matrix of machines, workloads and policies, side by side.
//!
//! Every mistake is found before anything is run or written. Then the runs that are not kept already
//! are made on several threads; each is kept as it ends, so that an interrupted matrix goes on where it
//! was. At the end come `results.json`, `results.csv`, `index.html` and a table on standard output.
//!
//! [`matrix`] makes the list of runs, [`work`] runs them, [`record`] is what is kept of each; [`table`] and [`page`]
//! show them.

mod matrix;
mod page;
mod record;
mod table;
mod work;

use std::num::NonZero;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use terrace_experiment::Kept;
use terrace_experiment::RunInfo;
use terrace_policy::UNMANAGED;
use terrace_sim::ORACLE;

use crate::Usage;
use crate::args::CompareArgs;
use crate::out::say;
use record::Record;

pub(crate) fn compare(args: &CompareArgs) -> anyhow::Result<u8> {
    let cells = matrix::cells(args).map_err(Usage)?;
    let runs = args.out.join("runs");
    std::fs::create_dir_all(&runs)
        .map_err(|error| Usage(format!("Cannot make {}: {error}", runs.display())))?;
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get);
    let made_with: Vec<RunInfo> = cells.iter().map(|cell| cell.run.clone()).collect();
    let records = work::run(cells, &Kept::new(runs), jobs)?;
    write_json(&args.out.join("results.json"), &records, &made_with)?;
    write_csv(&args.out.join("results.csv"), &records)?;
    let page = page::render(args, &records)?;
    record::write(&args.out.join("index.html"), page.as_bytes())?;
    say!("{}", table::text(&records));
    say!("Plots: {}", args.out.join("index.html").display());
    Ok(0)
}

/// A run with what needs the others of its group.
#[derive(Serialize)]
struct Entry<'a> {
    run: &'a RunInfo,
    #[serde(flatten)]
    record: &'a Record,
    of_none: Option<f64>,
    of_oracle: Option<f64>,
}

fn write_json(path: &Path, records: &[Record], made_with: &[RunInfo]) -> anyhow::Result<()> {
    let entry = |(record, run)| Entry {
        run,
        record,
        of_none: table::of(record, records, UNMANAGED.name),
        of_oracle: table::of(record, records, ORACLE.name),
    };
    let entries: Vec<_> = records.iter().zip(made_with).map(entry).collect();
    record::write(path, serde_json::to_string_pretty(&entries)?.as_bytes())
}

/// One line a run: what it was, all metrics. A metric that was not measured is empty.
fn write_csv(path: &Path, records: &[Record]) -> anyhow::Result<()> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let what = [
        "machine",
        "workload",
        "fast_free",
        "page_size",
        "policy",
        "seconds",
        "seed",
        "of_none",
    ];
    let metrics = terrace_sim::Outcome::METRICS.iter().map(|(name, _)| *name);
    writer.write_record(what.into_iter().chain(metrics.clone()))?;
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for record in records {
        let spec = &record.spec;
        let mut line = vec![
            spec.machine.clone(),
            spec.workload.clone(),
            spec.fast_free.map_or_else(String::new, |b| b.to_string()),
            spec.page_size.clone(),
            spec.policy.clone(),
            spec.seconds.to_string(),
            spec.seed.to_string(),
            number(table::of(record, records, UNMANAGED.name)),
        ];
        for name in metrics.clone() {
            line.push(number(match name {
                "of_oracle" => table::of(record, records, ORACLE.name),
                _ => record.metric(name),
            }));
        }
        writer.write_record(&line)?;
    }
    let text = writer.into_inner().context("Cannot make results.csv")?;
    record::write(path, &text)
}
