// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the runs that are not kept yet.
//!
//! On SIGINT or SIGTERM the process ends at once and says how many runs are kept; those under way are
//! lost.

use std::sync::Arc;

use anyhow::Context;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;
use terrace_experiment::Job;
use terrace_experiment::Kept;
use terrace_experiment::Progress;

use super::matrix::Cell;
use super::record::Record;
use super::table;
use crate::out::note;

/// Runs what is not kept; gives all records in the order of the cells.
pub(crate) fn run(cells: Vec<Cell>, kept: &Kept, threads: usize) -> anyhow::Result<Vec<Record>> {
    let progress = Arc::new(Progress::default());
    let watch = watch(&progress)?;
    let (specs, jobs): (Vec<_>, Vec<_>) = cells
        .into_iter()
        .map(|Cell { spec, setup, .. }| {
            let place = table::label(&spec);
            (spec, Job { setup, place })
        })
        .unzip();
    let of = |index: usize, outcome: &_| Record::new(specs[index].clone(), outcome);
    let records = terrace_experiment::make(&jobs, kept, threads, of, &progress);
    watch.close();
    let records = records?.into_iter().zip(&specs);
    // What is kept may have been called otherwise.
    let named = records.map(|(record, spec)| Record {
        spec: spec.clone(),
        ..record
    });
    Ok(named.collect())
}

/// Ends the process on a signal, with a word about what is kept.
fn watch(progress: &Arc<Progress>) -> anyhow::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("Cannot wait for signals")?;
    let handle = signals.handle();
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            progress.clear();
            note!(
                "terrace: Interrupted with {} of {} runs kept; the same command goes on from there",
                progress.done(),
                progress.all(),
            );
            std::process::exit(128 + signal);
        }
    });
    Ok(handle)
}
