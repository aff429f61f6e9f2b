// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the simulations that are not kept yet ([`Kept`]), on several threads.
//!
//! A simulation does not depend on the others, so what comes out is the same for any number of threads.
//! Progress goes to standard error: a bar on a terminal, a line a run elsewhere.

use std::io;
use std::io::IsTerminal;
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::time::Instant;

use indicatif::ProgressBar;
use indicatif::ProgressStyle;
use serde::Serialize;
use serde::de::DeserializeOwned;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_sim::SimError;
use thiserror::Error;

use crate::Kept;
use crate::Key;
use crate::parallel::in_parallel;

/// One simulation that is wanted.
#[derive(Debug, Clone)]
pub struct Job {
    /// What is simulated.
    pub setup: Setup,
    /// What it is in the user's words, for messages.
    pub place: String,
}

impl Job {
    /// What its result depends on.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::of_simulation(&self.setup)
    }
}

/// Why runs were not made.
#[derive(Debug, Error)]
pub enum RunError {
    /// A set-up that the simulator refuses.
    #[error("{place}: {error}")]
    Refused {
        /// The job's.
        place: String,
        /// Why.
        error: SimError,
    },
    /// A finished run that could not be kept.
    #[error("Cannot keep {place}: {error}")]
    Keep {
        /// The job's.
        place: String,
        /// Why.
        error: io::Error,
    },
}

/// What each job comes to, in their order: what is kept, else what `of` makes of the outcome.
///
/// # Errors
///
/// The first one; what has not been begun then is left.
pub fn make<T: Serialize + DeserializeOwned + Send>(
    jobs: &[Job],
    kept: &Kept,
    threads: usize,
    of: impl Fn(usize, &Outcome) -> T + Sync,
    progress: &Progress,
) -> Result<Vec<T>, RunError> {
    let mut made: Vec<Option<T>> = jobs.iter().map(|job| kept.find(&job.key())).collect();
    let mut queue: Vec<usize> = (0..jobs.len()).collect();
    queue.retain(|&index| made[index].is_none());
    // Taken from the back: the longest first, so that none is left alone at the end.
    queue.sort_by(|&a, &b| {
        let weight = |index: usize| weight(&jobs[index].setup);
        weight(a).total_cmp(&weight(b)).then(b.cmp(&a))
    });
    progress.begin(jobs.len(), queue.iter().map(|&index| &jobs[index].setup));
    let new = in_parallel(threads, queue, |index| {
        let job = &jobs[index];
        let result = of(index, &progress.run(job)?);
        let kept = kept.keep(&job.key(), &result);
        kept.map_err(|error| RunError::Keep {
            place: job.place.clone(),
            error,
        })?;
        Ok((index, result))
    });
    progress.clear();
    for (index, result) in new? {
        made[index] = Some(result);
    }
    let all: Option<Vec<T>> = made.into_iter().collect();
    Ok(all.expect("each was kept or has been made"))
}

/// How long a run is likely to take, by the same measure for all.
fn weight(setup: &Setup) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "only for an order")]
    let bytes = setup.workload.bytes() as f64;
    setup.seconds * bytes
}

/// Parts of a simulated second that a progress bar counts.
const STEPS: f64 = 10.0;

/// Simulated seconds in steps of a progress bar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "simulated seconds are positive and at most a million"
)]
fn steps(seconds: f64) -> u64 {
    (seconds * STEPS) as u64
}

/// What is shown while runs are made.
#[derive(Debug, Default)]
pub struct Progress {
    /// Empty where standard error is no terminal, and before the begin.
    bar: OnceLock<ProgressBar>,
    all: AtomicUsize,
    done: AtomicUsize,
}

impl Progress {
    fn begin<'a>(&self, all: usize, queue: impl ExactSizeIterator<Item = &'a Setup>) {
        let kept = all - queue.len();
        self.all.store(all, Ordering::SeqCst);
        self.done.store(kept, Ordering::SeqCst);
        if io::stderr().is_terminal() {
            let total = queue.map(|setup| steps(setup.seconds)).sum();
            let style = "{msg} {bar:30} {percent} %, {elapsed}, {eta} to go";
            let style = ProgressStyle::with_template(style);
            let bar = self.bar.get_or_init(|| {
                ProgressBar::new(total)
                    .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                    .with_message(format!("{kept}/{all} runs"))
            });
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        if kept > 0 {
            self.say(&format!("{kept} of {all} runs are kept from before"));
        }
    }

    fn run(&self, job: &Job) -> Result<Outcome, RunError> {
        let start = Instant::now();
        let mut shown = 0;
        let outcome = terrace_sim::run(&job.setup, &mut |seconds| {
            self.advance(&mut shown, seconds);
        })
        .map_err(|error| RunError::Refused {
            place: job.place.clone(),
            error,
        })?;
        self.advance(&mut shown, job.setup.seconds);
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        let all = self.all();
        match self.bar.get() {
            Some(bar) => bar.set_message(format!("{done}/{all} runs")),
            None => self.say(&format!(
                "{done}/{all} {}: {} s simulated, took {:.1} s",
                job.place,
                job.setup.seconds,
                start.elapsed().as_secs_f64()
            )),
        }
        Ok(outcome)
    }

    fn advance(&self, shown: &mut u64, seconds: f64) {
        let reached = steps(seconds);
        if let Some(bar) = self.bar.get() {
            bar.inc(reached.saturating_sub(*shown));
        }
        *shown = reached.max(*shown);
    }

    /// A line, beside the bar where there is one. What cannot be written is lost.
    fn say(&self, line: &str) {
        match self.bar.get() {
            Some(bar) => bar.println(line),
            None => _ = writeln!(io::stderr(), "{line}"),
        }
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    /// Runs that are wanted.
    #[must_use]
    pub fn all(&self) -> usize {
        self.all.load(Ordering::SeqCst)
    }

    /// Runs that are there.
    #[must_use]
    pub fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }
}
