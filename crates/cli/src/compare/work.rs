// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the runs that are not kept yet, on several threads.
//!
//! Progress goes to standard error: a bar on a terminal, a line a run elsewhere. On SIGINT or SIGTERM
//! the process ends at once and says how many runs are kept; those under way are lost.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;
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

/// Parts of a simulated second that the bar counts.
const STEPS: f64 = 10.0;

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
    queue.sort_by(|a, b| weight(&a.1).total_cmp(&weight(&b.1)).then(b.0.cmp(&a.0)));
    let progress = Arc::new(Progress::new(&queue, records.len()));
    let watch = watch(&progress)?;
    let (queue, made) = (Mutex::new(queue), Mutex::new(Vec::new()));
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = locked(&queue).pop();
                    let Some((index, cell)) = next else { return };
                    match one(&cell, store, &progress) {
                        Ok(record) => locked(&made).push((index, record)),
                        Err(error) => {
                            locked(&queue).clear();
                            locked(&failed).get_or_insert(error);
                        }
                    }
                }
            });
        }
    });
    watch.close();
    if let Some(bar) = &progress.bar {
        bar.finish_and_clear();
    }
    if let Some(error) = locked(&failed).take() {
        return Err(error);
    }
    for (index, record) in locked(&made).drain(..) {
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
            eprintln!(
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
            let steps = queue
                .iter()
                .map(|(_, cell)| count(cell.setup.seconds))
                .sum();
            let style = "{msg} {bar:30} {percent} %, {elapsed}, {eta} to go";
            let style = ProgressStyle::with_template(style);
            ProgressBar::new(steps)
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
                None => eprintln!("{line}"),
            }
        }
        Self {
            bar,
            all,
            done: AtomicUsize::new(kept),
        }
    }

    fn advance(&self, shown: &mut u64, seconds: f64) {
        let steps = count(seconds);
        if let Some(bar) = &self.bar {
            bar.inc(steps.saturating_sub(*shown));
        }
        *shown = steps.max(*shown);
    }

    fn finished(&self, record: &Record, took: Duration) {
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        match &self.bar {
            Some(bar) => bar.set_message(format!("{done}/{} runs", self.all)),
            None => eprintln!(
                "{done}/{} {}: {} visits/s, took {:.1} s",
                self.all,
                table::label(&record.spec),
                table::rate(record),
                took.as_secs_f64(),
            ),
        }
    }
}

/// How long a run is likely to take, by the same measure for all.
fn weight(cell: &Cell) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let bytes = cell.setup.workload.bytes() as f64;
    cell.setup.seconds * bytes
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "simulated seconds are positive and at most a million"
)]
fn count(seconds: f64) -> u64 {
    (seconds * STEPS) as u64
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
