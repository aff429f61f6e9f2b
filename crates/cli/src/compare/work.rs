// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the runs that are not kept yet, on several threads.
//!
//! Progress goes to standard error: a bar on a terminal, a line a run elsewhere. On SIGINT or SIGTERM
//! the process ends at once and says how many runs are kept; those under way are lost.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use signal_hook::consts::SIGINT;
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

use super::matrix::Cell;
use super::record::Record;
use super::record::Store;
use super::table;
use crate::out::note;
use crate::parallel::in_parallel;
use crate::parallel::steps;
use crate::parallel::weight;

/// What is shown while it runs.
struct Progress {
    /// None where standard error is no terminal.
    bar: Option<ProgressBar>,
    all: usize,
    done: AtomicUsize,
}

/// Runs what is not kept; gives all records in the order of the cells.
pub(crate) fn run(cells: Vec<Cell>, store: &Store, jobs: usize) -> anyhow::Result<Vec<Record>> {
    let mut records: Vec<Option<Record>> = cells.iter().map(|cell| store.get(cell)).collect();
    let mut queue: Vec<(usize, Cell)> = cells.into_iter().enumerate().collect();
    queue.retain(|(index, _)| records[*index].is_none());
    // Taken from the back: the longest first, so that none is left alone at the end.
    queue.sort_by(|a, b| {
        weight(&a.1.setup)
            .total_cmp(&weight(&b.1.setup))
            .then(b.0.cmp(&a.0))
    });
    let progress = Arc::new(Progress::new(&queue, records.len()));
    let watch = watch(&progress)?;
    let made = in_parallel(jobs, queue, |(index, cell)| {
        one(&cell, store, &progress).map(|record| (index, record))
    });
    watch.close();
    if let Some(bar) = &progress.bar {
        bar.finish_and_clear();
    }
    for (index, record) in made? {
        records[index] = Some(record);
    }
    let all: Option<Vec<Record>> = records.into_iter().collect();
    Ok(all.expect("each was kept or has been made"))
}

fn one(cell: &Cell, store: &Store, progress: &Progress) -> anyhow::Result<Record> {
    let start = Instant::now();
    let mut shown = 0;
    let outcome = terrace_sim::run(&cell.setup, &mut |seconds| {
        progress.advance(&mut shown, seconds);
    })
    .with_context(|| table::label(&cell.spec))?;
    progress.advance(&mut shown, cell.setup.seconds);
    let record = Record::new(cell.spec.clone(), &outcome);
    store.keep(cell, &record)?;
    progress.finished(&record, start.elapsed());
    Ok(record)
}

/// Ends the process on a signal, with a word about what is kept.
fn watch(progress: &Arc<Progress>) -> anyhow::Result<signal_hook::iterator::Handle> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("Cannot wait for signals")?;
    let handle = signals.handle();
    let progress = Arc::clone(progress);
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            if let Some(bar) = &progress.bar {
                bar.finish_and_clear();
            }
            note!(
                "terrace: Interrupted with {} of {} runs kept; the same command goes on from there",
                progress.done.load(Ordering::SeqCst),
                progress.all,
            );
            std::process::exit(128 + signal);
        }
    });
    Ok(handle)
}

impl Progress {
    fn new(queue: &[(usize, Cell)], all: usize) -> Self {
        let kept = all - queue.len();
        let bar = std::io::stderr().is_terminal().then(|| {
            let total = queue.iter().map(|(_, cell)| steps(cell.setup.seconds));
            let style = "{msg} {bar:30} {percent} %, {elapsed}, {eta} to go";
            let style = ProgressStyle::with_template(style);
            ProgressBar::new(total.sum())
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_message(format!("{kept}/{all} runs"))
        });
        if let Some(bar) = &bar {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        if kept > 0 {
            let line = format!("{kept} of {all} runs are kept from before");
            match &bar {
                Some(bar) => bar.println(line),
                None => note!("{line}"),
            }
        }
        Self {
            bar,
            all,
            done: AtomicUsize::new(kept),
        }
    }

    fn advance(&self, shown: &mut u64, seconds: f64) {
        let reached = steps(seconds);
        if let Some(bar) = &self.bar {
            bar.inc(reached.saturating_sub(*shown));
        }
        *shown = reached.max(*shown);
    }

    fn finished(&self, record: &Record, took: Duration) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        match &self.bar {
            Some(bar) => bar.set_message(format!("{done}/{} runs", self.all)),
            None => note!(
                "{done}/{} {}: {} visits/s, took {:.1} s",
                self.all,
                table::label(&record.spec),
                table::rate(record),
                took.as_secs_f64(),
            ),
        }
    }
}
