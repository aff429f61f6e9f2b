// SPDX-License-Identifier: MIT OR Apache-2.0
//! What came of the claims: a table for a terminal, one in Markdown, and JSON.

use std::collections::BTreeMap;

use comfy_table::ContentArrangement;

use crate::out::say;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use serde::Serialize;
use terrace_claims::Cause;
use terrace_claims::Claim;
use terrace_claims::Finding;
use terrace_claims::Paper;
use terrace_claims::Run;
use terrace_claims::Status;
use terrace_claims::Verdict;
use terrace_claims::judge::describe;
use terrace_claims::relation;
use terrace_experiment::RunInfo;

use super::Judged;
use super::work::Figures;

/// Columns of the table where there is no terminal to ask.
const PLAIN_WIDTH: u16 = 160;

#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    paper: Paper,
    section: &'a str,
    says: &'a str,
    scaled: Option<&'a str>,
    status: Status,
    why: Option<String>,
    cause: Option<Cause>,
    /// What the runs that show the cause change.
    changes: Option<&'a str>,
    verdict: Verdict,
    finding: Finding,
    missing: &'a [String],
    checks: Vec<Check>,
    without_cause: Vec<Check>,
    /// With `none` in place of the paper's system: one of them must not hold.
    of_none: Vec<Check>,
    runs: BTreeMap<&'a str, Made<'a>>,
    changed: BTreeMap<&'a str, Made<'a>>,
}

/// A run: its figures, and what it was made with.
#[derive(Serialize)]
struct Made<'a> {
    run: &'a RunInfo,
    #[serde(flatten)]
    figures: &'a Figures,
}

/// What each run was made with, by [`terrace_claims::RunSpec::key`].
pub(crate) type MadeWith = BTreeMap<String, RunInfo>;

#[derive(Serialize)]
struct Check {
    relation: String,
    figures: Vec<Option<f64>>,
    holds: bool,
}

pub(crate) fn json(all: &[Judged], made_with: &MadeWith) -> anyhow::Result<()> {
    let rows: Vec<_> = all.iter().map(|judged| row(judged, made_with)).collect();
    say!("{}", serde_json::to_string_pretty(&rows)?);
    Ok(())
}

fn row<'a>(judged: &'a Judged, made_with: &'a MadeWith) -> Row<'a> {
    let (claim, judgement) = (&judged.loaded.claim, &judged.judgement);
    let changes = claim.counterfactual.as_ref();
    Row {
        id: &claim.id,
        paper: claim.paper,
        section: &claim.section,
        says: &claim.says,
        scaled: claim.scaled.as_deref(),
        status: claim.status,
        why: why(judged),
        cause: claim.cause,
        changes: changes.map(|other| other.changes.as_str()),
        verdict: judgement.verdict,
        finding: judgement.finding,
        missing: &judgement.missing,
        checks: checks(claim, &judgement.checks),
        without_cause: checks(claim, &judgement.without_cause),
        of_none: checks(claim, &judged.of_none),
        runs: made(&claim.runs, &judged.runs, made_with),
        changed: changes.map_or_else(BTreeMap::new, |other| {
            made(&other.runs, &judged.changed, made_with)
        }),
    }
}

/// Those of the runs that were made.
fn made<'a>(
    runs: &'a [Run],
    figures: &'a BTreeMap<String, Figures>,
    made_with: &'a MadeWith,
) -> BTreeMap<&'a str, Made<'a>> {
    let of = |run: &'a Run| {
        let made = Made {
            run: made_with.get(&run.spec.key())?,
            figures: figures.get(&run.name)?,
        };
        Some((run.name.as_str(), made))
    };
    runs.iter().filter_map(of).collect()
}

fn checks(claim: &Claim, of: &[relation::Check]) -> Vec<Check> {
    let each = claim.holds.iter().zip(of);
    each.map(|(relation, check)| Check {
        relation: relation.to_string(),
        figures: check.figures.clone(),
        holds: check.holds,
    })
    .collect()
}

/// The reason, with the figures of the claim's runs.
fn why(judged: &Judged) -> Option<String> {
    let figure = |run: &str, metric: &str| judged.runs.get(run)?.get(metric).copied();
    let why = judged.loaded.claim.why.as_ref()?;
    Some(why.said(&figure))
}

pub(crate) fn table(all: &[Judged]) {
    let mut table = Table::new();
    table
        .load_preset(UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["claim", "section", "says", "got", "holds", "status"]);
    if !table.is_tty() {
        table.set_width(PLAIN_WIDTH);
    }
    for judged in all {
        let claim = &judged.loaded.claim;
        table.add_row([
            &claim.id,
            &claim.section,
            &claim.says,
            &got(judged).join("\n"),
            verdict(judged),
            &status(judged),
        ]);
    }
    say!("{table}");
    say!("{}", summary(all));
}

pub(crate) fn markdown(all: &[Judged]) {
    say!("{}", summary(all));
    for paper in Paper::ALL {
        let rows: Vec<_> = all
            .iter()
            .filter(|judged| judged.loaded.claim.paper == paper)
            .collect();
        if rows.is_empty() {
            continue;
        }
        say!("\n## {}\n", paper.title());
        say!("| claim | where | what it says | what we got | holds | status |");
        say!("|---|---|---|---|---|---|");
        for judged in rows {
            let claim = &judged.loaded.claim;
            let cells = [
                claim.id.split('/').next_back().unwrap_or(&claim.id),
                &claim.section,
                &claim.says,
                &got(judged).join("<br>"),
                verdict(judged),
                &status(judged),
            ];
            let cells = cells.map(|cell| cell.replace('|', "\\|"));
            say!("| {} |", cells.join(" | "));
        }
    }
}

/// The figures, or what is missing.
fn got(judged: &Judged) -> Vec<String> {
    match judged.judgement.verdict {
        Verdict::NotRun => vec![format!("needs {}", judged.judgement.missing.join(", "))],
        _ => describe(&judged.loaded.claim, &judged.judgement.checks),
    }
}

const fn verdict(judged: &Judged) -> &'static str {
    match judged.judgement.verdict {
        Verdict::Holds => "yes",
        Verdict::DoesNotHold => "no",
        Verdict::NotRun => "-",
    }
}

/// The status, what contradicts it, and the reason where one is needed.
fn status(judged: &Judged) -> String {
    let claim = &judged.loaded.claim;
    let mut text = claim.status.key().to_owned();
    text.push_str(match judged.judgement.finding {
        Finding::AsMarked => "",
        Finding::Broken => ", BUT DOES NOT HOLD",
        Finding::HoldsNow => ", BUT HOLDS NOW",
        Finding::CanBeRun => ", BUT CAN BE RUN NOW",
        Finding::NotTheCause => ", BUT NOT FOR THIS CAUSE",
    });
    if judged.holds_of_none() {
        text.push_str(", BUT IT HOLDS OF NONE, TOO");
    }
    if let Some(cause) = claim.cause {
        text.push_str(&format!(" ({})", cause.key()));
    }
    if claim.status == Status::Refuted
        && let Some(why) = why(judged)
    {
        text.push_str(": ");
        text.push_str(&why);
    }
    if let Some(other) = &claim.counterfactual {
        let got = describe(claim, &judged.judgement.without_cause).join("; ");
        text.push_str(&format!(" Shown by {}: {got}", other.changes));
    }
    text
}

fn summary(all: &[Judged]) -> String {
    let of = |status: Status| {
        all.iter()
            .filter(|judged| judged.loaded.claim.status == status)
            .count()
    };
    let finding = |finding: Finding| {
        all.iter()
            .filter(|judged| judged.judgement.finding == finding)
            .count()
    };
    let mut text = format!(
        "{} claims: {} held, {} refuted ({} with a cause that a run shows), {} open.",
        all.len(),
        of(Status::Held),
        of(Status::Refuted),
        all.iter()
            .filter(|judged| judged.loaded.claim.cause.is_some())
            .count(),
        of(Status::Open)
    );
    let odd = [
        (Finding::Broken, "marked held do not hold"),
        (Finding::HoldsNow, "marked refuted hold now"),
        (Finding::CanBeRun, "marked open can be run now"),
        (
            Finding::NotTheCause,
            "do not hold without what is named as the cause either",
        ),
    ];
    for (which, what) in odd {
        match finding(which) {
            0 => {}
            count => text.push_str(&format!(" {count} {what}.")),
        }
    }
    match all.iter().filter(|judged| judged.holds_of_none()).count() {
        0 => {}
        count => text.push_str(&format!(" {count} hold of none, too.")),
    }
    text
}
