// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a claim that is marked held would hold of `none`, too. Then it says nothing of the paper's system: a
//! relation is missing that only a system which does something can meet.

use std::collections::BTreeMap;

use terrace_claims::Claim;
use terrace_claims::Run;
use terrace_claims::Status;
use terrace_claims::relation::Check;
use terrace_policy::UNMANAGED;
use terrace_sim::Mover;
use terrace_sim::TrackerKind;

use super::work::Figures;

/// The claim's runs with `none` in place of the paper's system; where that is in none of them, of all systems.
/// Nothing for a claim that is not marked held.
pub(crate) fn runs(claim: &Claim) -> Vec<Run> {
    if claim.status != Status::Held {
        return Vec::new();
    }
    let papers = |run: &&Run| run.spec.system == claim.paper.key();
    let has_papers = claim.runs.iter().any(|run| papers(&run));
    let replaced = claim
        .runs
        .iter()
        .filter(|run| papers(run) || !has_papers && run.spec.system != UNMANAGED.name);
    replaced.cloned().map(with_none).collect()
}

fn with_none(mut run: Run) -> Run {
    run.spec.system = UNMANAGED.name.to_owned();
    run.spec.params = toml::Table::new();
    run.spec.priorities = BTreeMap::new();
    run.spec.trackers = vec![TrackerKind::Auto];
    run.spec.mover = Mover::Auto;
    run
}

/// What the relations come to with those runs in place of the claim's of the same name. Empty where there are none.
pub(crate) fn checks(
    claim: &Claim,
    runs: &BTreeMap<String, Figures>,
    of_none: &BTreeMap<String, Figures>,
) -> Vec<Check> {
    if of_none.is_empty() {
        return Vec::new();
    }
    let figure = |run: &str, metric: &str| {
        let figures = of_none.get(run).or_else(|| runs.get(run));
        figures?.get(metric).copied()
    };
    let relations = claim.holds.iter();
    relations.map(|relation| relation.check(&figure)).collect()
}
