// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures that relations speak of: the simulator's metrics, and a few more that only claims
//! need, made from the same outcome.

use std::collections::BTreeMap;

use terrace_sim::Outcome;
use terrace_sim::outcome::Point;

/// The figures beyond [`Outcome::METRICS`]: name, and unit and meaning.
pub const OWN: [(&str, &str); 7] = [
    (
        "promoted_pages_first",
        "pages promoted in the first third of the run",
    ),
    (
        "promoted_pages_last",
        "pages promoted in the last third of the run",
    ),
    (
        "cit_threshold_ms",
        "CIT threshold at the end of the run, ms",
    ),
    (
        "program_fast_access_ratio_min",
        "share of fast accesses of the program that has the least",
    ),
    (
        "program_fast_access_ratio_max",
        "share of fast accesses of the program that has the most",
    ),
    (
        "program_ops_per_s_min",
        "visits a second of the slowest program",
    ),
    (
        "program_ops_per_s_max",
        "visits a second of the fastest program",
    ),
];

/// The figures of one program, over the whole run; a claim writes the program's name in front:
/// `kv.ops_per_s`.
pub const OF_PROGRAM: [(&str, &str); 2] = [
    ("ops_per_s", "visits a second of the program"),
    (
        "fast_access_ratio",
        "share of the program's accesses that the fast tier served",
    ),
];

/// The program that a figure is of, and the figure's own name; `None` where it is of the whole run.
#[must_use]
pub fn of_program(name: &str) -> Option<(&str, &str)> {
    name.rsplit_once('.')
}

/// All names but those of one program's figures.
#[must_use]
pub fn names() -> Vec<&'static str> {
    Outcome::METRICS
        .iter()
        .chain(&OWN)
        .map(|(name, _)| *name)
        .collect()
}

/// All figures of an outcome that it has.
#[must_use]
pub fn all(outcome: &Outcome) -> BTreeMap<String, f64> {
    let mut figures: BTreeMap<_, _> = names()
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), figure(outcome, name)?)))
        .collect();
    // The figures of a run's only program are the run's.
    if outcome.programs.len() > 1 {
        for program in &outcome.programs {
            for (name, _) in OF_PROGRAM {
                let value = match name {
                    "ops_per_s" => program.ops_per_s,
                    _ => program.fast_access_ratio,
                };
                figures.insert(format!("{}.{name}", program.name), value);
            }
        }
    }
    figures
}

fn figure(outcome: &Outcome, name: &str) -> Option<f64> {
    let fast = || outcome.programs.iter().map(|p| p.fast_access_ratio);
    let ops = || outcome.programs.iter().map(|p| p.ops_per_s);
    match name {
        "promoted_pages_first" => Some(promoted(&outcome.series, 0)),
        "promoted_pages_last" => Some(promoted(&outcome.series, 2)),
        "cit_threshold_ms" => counter(outcome, "cit_threshold").map(|us| us / 1e3),
        "program_fast_access_ratio_min" => fast().reduce(f64::min),
        "program_fast_access_ratio_max" => fast().reduce(f64::max),
        "program_ops_per_s_min" => ops().reduce(f64::min),
        "program_ops_per_s_max" => ops().reduce(f64::max),
        _ => outcome.metric(name),
    }
}

/// A figure that the policy tells of itself.
#[expect(clippy::cast_precision_loss, reason = "a figure below 2^53")]
fn counter(outcome: &Outcome, name: &str) -> Option<f64> {
    let mut told = outcome.policy_counters.iter();
    let found = told.find(|(of, _)| of == name);
    found.map(|(_, value)| *value as f64)
}

/// Pages promoted in a third of the run.
#[expect(
    clippy::cast_precision_loss,
    reason = "pages of a run are far below 2^53"
)]
fn promoted(series: &[Point], third: usize) -> f64 {
    let part = &series[series.len() * third / 3..series.len() * (third + 1) / 3];
    part.iter().map(|point| point.promoted_pages).sum::<u64>() as f64
}
