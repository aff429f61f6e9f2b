// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the runs that are not kept yet. The first one that is refused ends all: it is a mistake in a
//! claim file.

use std::collections::BTreeMap;

use terrace_claims::figure;
use terrace_experiment::Job;
use terrace_experiment::Kept;
use terrace_experiment::Progress;
use terrace_experiment::RunError;

use crate::Usage;

/// The figures of a run by name; those that are no number are left out.
pub(crate) type Figures = BTreeMap<String, f64>;

pub(crate) fn run_all(
    runs: BTreeMap<String, Job>,
    threads: usize,
    kept: &Kept,
) -> anyhow::Result<BTreeMap<String, Figures>> {
    let (keys, jobs): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let of = |_, outcome: &_| -> Figures {
        let figures = figure::all(outcome).into_iter();
        figures.filter(|(_, figure)| figure.is_finite()).collect()
    };
    let figures = terrace_experiment::make(&jobs, kept, threads, of, &Progress::default());
    let figures = figures.map_err(|error| match error {
        RunError::Refused { .. } => anyhow::Error::new(Usage(error.to_string())),
        RunError::Keep { .. } => error.into(),
    })?;
    Ok(keys.into_iter().zip(figures).collect())
}
