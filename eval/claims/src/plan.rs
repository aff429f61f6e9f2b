// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which runs a set of claims needs, each once, and which cannot be made yet.
//!
//! A run can be made if its system exists. A system that exists nowhere and is not planned either
//! is a mistake in the file. A metric that does not exist yet keeps a claim open in the same way.

use std::collections::BTreeMap;
use std::path::Path;

use terrace_workload::Workload;

use crate::claim::Claim;
use crate::claim::ClaimError;
use crate::claim::RunSpec;
use crate::claim::Status;
use crate::figure;
use crate::reason::Reason;
use crate::relation::Relation;

/// Systems of the papers that are not built yet. One that is built is taken from
/// [`Known::systems`], whether it stands here or not.
pub use terrace_sim::PLANNED;

/// What the simulator has.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// Presets and baselines.
    pub systems: &'a [&'a str],
    /// Metrics of an outcome.
    pub metrics: &'a [&'a str],
}

/// A claim with its file, ready to plan.
#[derive(Debug)]
pub struct Filed<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// Its file, for errors.
    pub path: &'a Path,
}

/// What is missing for a claim to be judged; empty if nothing is.
///
/// # Errors
///
/// A system that is neither built nor planned, and a metric that does not exist in a claim that is
/// not open.
pub fn missing(filed: &Filed<'_>, known: Known<'_>) -> Result<Vec<String>, ClaimError> {
    let claim = filed.claim;
    let refuse = |line: usize, what: String| ClaimError {
        path: filed.path.to_owned(),
        line,
        what,
    };
    let mut missing = Vec::new();
    for run in claim.all_runs() {
        let system = run.spec.system.as_str();
        if known.systems.contains(&system) {
            continue;
        }
        if !PLANNED.contains(&system) {
            let what = format!(
                "run '{}': no policy '{system}'; there are {}, and planned {}",
                run.name,
                known.systems.join(", "),
                PLANNED.join(", ")
            );
            return Err(refuse(run.line, what));
        }
        add(&mut missing, format!("preset {system}"));
    }
    let told = claim.why.iter().flat_map(Reason::names);
    let asked = claim.holds.iter().flat_map(Relation::names);
    for (run, metric) in asked.chain(told) {
        let known = match figure::of_program(metric) {
            Some((_, own)) => figure::OF_PROGRAM.iter().any(|(name, _)| *name == own),
            None => known.metrics.contains(&metric),
        };
        if known {
            continue;
        }
        if claim.status != Status::Open {
            let line = claim.run(run).map_or(1, |run| run.line);
            return Err(refuse(line, format!("no metric '{metric}' (run '{run}')")));
        }
        add(&mut missing, format!("metric {metric}"));
    }
    if claim.status != Status::Open
        && let Some(first) = missing.first()
    {
        let what = format!("status is '{}', but {first} is missing", claim.status.key());
        return Err(refuse(claim.runs[0].line, what));
    }
    Ok(missing)
}

/// The first figure in the claim's relations that is of a program which that run's workload does not
/// have, in words; figures of programs are those of workloads of several.
#[must_use]
pub fn stranger(claim: &Claim, run: &str, workload: &Workload) -> Option<String> {
    let names = claim
        .holds
        .iter()
        .flat_map(Relation::names)
        .filter(|(of, _)| *of == run)
        .filter_map(|(_, metric)| figure::of_program(metric));
    let programs: Vec<&str> = workload.programs.iter().map(|p| p.name.as_str()).collect();
    let known = |program: &str| programs.len() > 1 && programs.contains(&program);
    let (program, metric) = names.into_iter().find(|(program, _)| !known(program))?;
    Some(match programs[..] {
        [_] => format!("'{program}.{metric}': the workload has one program; write {metric}"),
        _ => format!(
            "'{program}.{metric}': no program '{program}'; there are {}",
            programs.join(", ")
        ),
    })
}

fn add(list: &mut Vec<String>, item: String) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// The runs of these claims, equal ones once; by key, so the order does not depend on the files'.
#[must_use]
pub fn runs<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> BTreeMap<String, RunSpec> {
    claims
        .into_iter()
        .flat_map(Claim::all_runs)
        .map(|run| (run.spec.key(), run.spec.clone()))
        .collect()
}
