// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim and the figures of its runs: what holds, and whether that is as marked.

use serde::Serialize;

use crate::claim::Claim;
use crate::claim::Status;
use crate::relation::Check;
use crate::relation::Lookup;
use crate::relation::Relation;
use crate::relation::Term;

/// What the runs say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All relations hold.
    Holds,
    /// At least one does not.
    DoesNotHold,
    /// Something is missing, see [`Judgement::missing`].
    NotRun,
}

/// The verdict against the claim's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Held and holds; refuted and does not hold; open and cannot be run.
    AsMarked,
    /// Marked held, does not hold. This and [`Finding::NotTheCause`] fail the command.
    Broken,
    /// Marked refuted, but it holds now: look at it again.
    HoldsNow,
    /// Marked open, but it can be run now: mark what was found.
    CanBeRun,
    /// Marked refuted, and what is named as the cause is not: without it the claim does not hold either.
    NotTheCause,
}

/// A claim, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    /// What the runs say.
    pub verdict: Verdict,
    /// Whether that is as marked.
    pub finding: Finding,
    /// What is missing, if it was not run.
    pub missing: Vec<String>,
    /// One for each relation, in the file's order; empty if not run.
    pub checks: Vec<Check>,
    /// The same without what is named as the cause; empty where none is.
    pub without_cause: Vec<Check>,
}

/// Judges a claim. `missing` is what [`crate::plan::missing`] gave; `lookup` gives `run.metric`, `changed` that
/// of the runs which show the cause.
#[must_use]
pub fn judge(
    claim: &Claim,
    missing: &[String],
    lookup: &Lookup<'_>,
    changed: &Lookup<'_>,
) -> Judgement {
    if !missing.is_empty() {
        return Judgement {
            verdict: Verdict::NotRun,
            finding: finding(claim.status, Verdict::NotRun),
            missing: missing.to_vec(),
            checks: Vec::new(),
            without_cause: Vec::new(),
        };
    }
    let all = |lookup| -> Vec<Check> {
        let relations = claim.holds.iter();
        relations.map(|relation| relation.check(lookup)).collect()
    };
    let hold = |checks: &[Check]| checks.iter().all(|check| check.holds);
    let checks = all(lookup);
    let verdict = if hold(&checks) {
        Verdict::Holds
    } else {
        Verdict::DoesNotHold
    };
    let shown = claim.counterfactual.is_some();
    let without_cause = if shown { all(changed) } else { Vec::new() };
    Judgement {
        verdict,
        finding: match finding(claim.status, verdict) {
            Finding::AsMarked if !hold(&without_cause) => Finding::NotTheCause,
            found => found,
        },
        missing: Vec::new(),
        checks,
        without_cause,
    }
}

const fn finding(status: Status, verdict: Verdict) -> Finding {
    match (status, verdict) {
        (Status::Held, Verdict::Holds)
        | (Status::Refuted, Verdict::DoesNotHold)
        | (Status::Open, Verdict::NotRun) => Finding::AsMarked,
        (Status::Held, _) => Finding::Broken,
        (Status::Refuted, _) => Finding::HoldsNow,
        (Status::Open, _) => Finding::CanBeRun,
    }
}

/// What came out, short: one line for each relation, "nomad.ops_per_s 1.9M, tpp.ops_per_s 1.2M:
/// 1.58 (>= 1)".
#[must_use]
pub fn describe(claim: &Claim, checks: &[Check]) -> Vec<String> {
    claim
        .holds
        .iter()
        .zip(checks)
        .map(|(relation, check)| line(relation, check))
        .collect()
}

fn line(relation: &Relation, check: &Check) -> String {
    let figures: Vec<_> = check.figures.iter().map(|figure| short(*figure)).collect();
    let mark = if check.holds { "" } else { " ✗" };
    match relation {
        Relation::Compare { right, .. } => {
            let quotient = match (right, check.figures.as_slice()) {
                (Term::Number(_), _) => String::new(),
                (_, [Some(left), Some(right)]) => format!(" ({} x)", short(Some(left / right))),
                _ => String::new(),
            };
            format!("{relation}: {}{quotient}{mark}", figures.join(" to "))
        }
        Relation::Trend { .. } => format!("{relation}: {}{mark}", figures.join(", ")),
    }
}

/// Three digits and a unit prefix: 1.23M, 45.6k, 0.789; "-" for none.
#[must_use]
pub fn short(figure: Option<f64>) -> String {
    let Some(value) = figure else {
        return "-".to_owned();
    };
    if !value.is_finite() {
        return value.to_string();
    }
    let (scaled, unit) = match value.abs() {
        size if size >= 1e12 => (value / 1e12, "T"),
        size if size >= 1e9 => (value / 1e9, "G"),
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        0.0 => 0,
        size if size >= 0.001 => 3,
        _ => 6,
    };
    format!("{scaled:.digits$}{unit}")
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
