// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs simulations on several threads, with a progress bar on a terminal's standard error.
//!
//! Finished ones are kept ([`super::kept`]). A simulation does not depend on the others, so the figures are the same for any number of
//! threads. The first one that is refused ends all: it is a mistake in a claim file.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::PoisonError;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use terrace_claims::figure;
use terrace_sim::Setup;

use super::files::Planned;
use super::kept::Kept;
use crate::Usage;

/// The figures of a run by name.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Parts of a simulated second that the bar counts.
const STEPS: f64 = 10.0;

pub(crate) fn run_all(
    runs: BTreeMap<String, Planned>,
    jobs: usize,
    kept: &Kept,
) -> anyhow::Result<BTreeMap<String, Figures>> {
    let mut done = BTreeMap::new();
    let mut queue = Vec::new();
    for (key, planned) in runs {
        match kept.find(&planned.setup) {
            Some(figures) => _ = done.insert(key, figures),
            None => queue.push((key, planned)),
        }
    }
    let bar = bar(&queue);
    // Taken from the back: the longest first, so that none is left alone at the end.
    queue.sort_by(|a, b| weight(&a.1.setup).total_cmp(&weight(&b.1.setup)));
    let queue = Mutex::new(queue);
    let done = Mutex::new(done);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = locked(&queue).pop();
                    let Some((key, planned)) = next else { return };
                    match run(&planned.setup, &bar) {
                        Ok(figures) => {
                            if let Err(error) = kept.keep(&planned.setup, &figures) {
                                locked(&queue).clear();
                                locked(&failed).get_or_insert(error);
                            }
                            locked(&done).insert(key, figures);
                        }
                        Err(error) => {
                            locked(&queue).clear();
                            let text = format!("{}: {error}", planned.place);
                            locked(&failed).get_or_insert(Usage(text).into());
                        }
                    }
                }
            });
        }
    });
    bar.finish_and_clear();
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

fn run(setup: &Setup, bar: &ProgressBar) -> Result<Figures, terrace_sim::SimError> {
    let mut shown = 0;
    let outcome = terrace_sim::run(setup, &mut |seconds| {
        let steps = count(seconds);
        bar.inc(steps.saturating_sub(shown));
        shown = shown.max(steps);
    })?;
    bar.inc(count(setup.seconds).saturating_sub(shown));
    Ok(figure::all(&outcome))
}

fn bar(runs: &[(String, Planned)]) -> ProgressBar {
    let total: f64 = runs.iter().map(|(_, planned)| planned.setup.seconds).sum();
    let bar = ProgressBar::new(count(total));
    let style = ProgressStyle::with_template("{bar:40} {percent} %, {elapsed}, {eta} to go");
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// How long a run is likely to take, by the same measure for all.
fn weight(setup: &Setup) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let bytes = setup.workload.bytes() as f64;
    setup.seconds * bytes
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "simulated seconds are positive and below a million"
)]
fn count(seconds: f64) -> u64 {
    (seconds * STEPS) as u64
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
