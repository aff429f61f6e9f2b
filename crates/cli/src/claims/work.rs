// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the runs that are not kept yet ([`super::kept`]), on several threads.
//!
//! Progress goes to standard error: a bar on a terminal, a line a run elsewhere. A simulation does not
//! depend on the others, so the figures are the same for any number of threads. The first one that is
//! refused ends all: it is a mistake in a claim file.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Instant;

use indicatif::ProgressBar;
use indicatif::ProgressDrawTarget;
use indicatif::ProgressStyle;
use terrace_claims::figure;
use terrace_sim::Setup;

use super::files::Planned;
use super::kept::Kept;
use crate::Usage;
use crate::out::note;
use crate::parallel::in_parallel;
use crate::parallel::steps;
use crate::parallel::weight;

/// The figures of a run by name.
pub(crate) type Figures = BTreeMap<String, f64>;

pub(crate) fn run_all(
    runs: BTreeMap<String, Planned>,
    jobs: usize,
    kept: &Kept,
) -> anyhow::Result<BTreeMap<String, Figures>> {
    let mut figures = BTreeMap::new();
    let mut queue = Vec::new();
    for (key, planned) in runs {
        match kept.find(&planned.setup) {
            Some(found) => _ = figures.insert(key, found),
            None => queue.push((key, planned)),
        }
    }
    // Taken from the back: the longest first, so that none is left alone at the end.
    queue.sort_by(|a, b| weight(&a.1.setup).total_cmp(&weight(&b.1.setup)));
    let progress = Progress::new(&queue);
    let made = in_parallel(jobs, queue, |(key, planned)| {
        let figures = progress.run(&planned)?;
        kept.keep(&planned.setup, &figures)?;
        anyhow::Ok((key, figures))
    });
    progress.bar.finish_and_clear();
    figures.extend(made?);
    Ok(figures)
}

/// What is shown while it runs.
struct Progress {
    /// Hidden where standard error is no terminal.
    bar: ProgressBar,
    all: usize,
    done: AtomicUsize,
}

impl Progress {
    fn new(queue: &[(String, Planned)]) -> Self {
        let total = queue.iter().map(|(_, run)| steps(run.setup.seconds)).sum();
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:40} {percent} %, {elapsed}, {eta} to go");
        Self {
            bar: bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())),
            all: queue.len(),
            done: AtomicUsize::new(0),
        }
    }

    fn run(&self, planned: &Planned) -> anyhow::Result<Figures> {
        let start = Instant::now();
        let setup: &Setup = &planned.setup;
        let mut shown = 0;
        let outcome = terrace_sim::run(setup, &mut |seconds| {
            self.bar.inc(steps(seconds).saturating_sub(shown));
            shown = shown.max(steps(seconds));
        })
        .map_err(|error| Usage(format!("{}: {error}", planned.place)))?;
        self.bar.inc(steps(setup.seconds).saturating_sub(shown));
        let done = self.done.fetch_add(1, Ordering::SeqCst) + 1;
        if !std::io::stderr().is_terminal() {
            note!(
                "{done}/{} {}: {} s simulated in {:.1} s",
                self.all,
                planned.place,
                setup.seconds,
                start.elapsed().as_secs_f64(),
            );
        }
        Ok(figure::all(&outcome))
    }
}
