// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table, as Markdown: for people, and for `docs/validation.md` below its marker. Pure.

use std::fmt::Write as _;

use anyhow::Context;
use terrace_chart::thousands;

use super::judge;
use super::judge::Pair;
use super::judge::Share;
use super::judge::Verdict;
use super::results::CaseResult;
use super::results::Figures;
use super::results::Results;
use super::results::SystemResult;
use crate::compare::record::System;

/// Below this line the document is written anew.
pub const MARKER: &str = "<!-- results: everything below is written by make validate -->";

/// All cases as a table, a line on each, and what the null came to.
#[must_use]
pub fn markdown(results: &Results, fast_node: usize) -> String {
    let mut text = String::from(
        "| workload, fast tier | system | lab: ops/s (rounds), × none | fast | promoted | \
         simulated: ops/s, × none | off | fast | promoted | real costs: × none | fast |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for case in &results.cases {
        for (at, of) in case.systems.iter().enumerate() {
            let name = if at == 0 {
                let free = case.fast_free_bytes(fast_node) >> 20;
                format!("{}, {free} free", name(case))
            } else {
                String::new()
            };
            row(&mut text, &name, of, case);
        }
    }
    text.push('\n');
    for case in &results.cases {
        let _ = writeln!(text, "- {}", verdict(case));
    }
    let _ = writeln!(text, "\n{}", null(results));
    text
}

fn name(case: &CaseResult) -> String {
    let aside = if case.set_aside { ", set aside" } else { "" };
    format!("{}{aside}, {} MiB", case.case, case.fast_bytes >> 20)
}

fn row(text: &mut String, name: &str, of: &SystemResult, case: &CaseResult) {
    let none = |figures: fn(&SystemResult) -> f64| {
        let none = case.systems.iter().find(|of| of.system == System::None);
        none.map_or(f64::NAN, |none| figures(of) / figures(none))
    };
    let (lab, simulated) = (none(SystemResult::rate), none(|of| of.simulated.ops_per_s));
    let (low, high) = of.range();
    let rounds = match of.lab.len() {
        1 => String::new(),
        _ => format!(" ({} to {})", thousands(low), thousands(high)),
    };
    let promoted = of.lab.iter().map(|run| run.figures.promoted_pages).max();
    let share = |figures: &Figures| format!("{:.1} %", figures.fast_access_ratio * 100.0);
    let _ = writeln!(
        text,
        "| {name} | {} | {}{rounds}, {lab:.2} | {:.1} % | {} | {}, {simulated:.2} | {:+.0} % | {} | {} | {:.2} | {} |",
        of.system.name(),
        thousands(of.rate()),
        of.share() * 100.0,
        promoted.unwrap_or(0),
        thousands(of.simulated.ops_per_s),
        (simulated / lab - 1.0) * 100.0,
        share(&of.simulated),
        of.simulated.promoted_pages,
        none(|of| of.real.ops_per_s),
        share(&of.real),
    );
}

/// What became of a case, in a line.
#[must_use]
pub fn verdict(case: &CaseResult) -> String {
    let verdict = Verdict::of(case);
    let word = if verdict.agrees() {
        "agrees"
    } else {
        "DOES NOT AGREE"
    };
    let good = |pairs: &[Pair]| pairs.iter().filter(|pair| pair.agrees()).count();
    let shares = verdict.shares.iter();
    let close = shares.clone().filter(|share| share.agrees()).count();
    let mut line = format!(
        "{}: {word}: {} of {} ratios within {:.0} %, {close} of {} shares within {:.0} points",
        name(case),
        good(&verdict.pairs),
        verdict.pairs.len(),
        judge::RATIO * 100.0,
        verdict.shares.len(),
        judge::POINTS * 100.0,
    );
    let mut pairs: Vec<&Pair> = verdict.pairs.iter().filter(|pair| !pair.agrees()).collect();
    pairs.sort_by(|a, b| b.error().total_cmp(&a.error()));
    for (at, pair) in pairs.into_iter().enumerate() {
        let _ = write!(
            line,
            "{} {}",
            if at == 0 { "; off:" } else { "," },
            off(pair)
        );
    }
    for share in shares.filter(|share| !share.agrees()) {
        let _ = write!(line, "; {}", far(share));
    }
    line
}

fn off(pair: &Pair) -> String {
    let (a, b) = pair.systems;
    let range = if pair.range.0 < pair.range.1 {
        format!(" ({:.2} to {:.2})", pair.range.0, pair.range.1)
    } else {
        String::new()
    };
    format!(
        "{}/{} {:.2}{range}, simulated {:.2}, {:.0} %",
        a.name(),
        b.name(),
        pair.lab,
        pair.simulated,
        pair.error() * 100.0
    )
}

fn far(share: &Share) -> String {
    format!(
        "fast accesses of {} {:.1} %, simulated {:.1} %",
        share.system.name(),
        share.lab * 100.0,
        share.simulated * 100.0
    )
}

/// What the null came to, in a line.
#[must_use]
pub fn null(results: &Results) -> String {
    let nulls = results.cases.iter().flat_map(|case| {
        let nulls = judge::nulls(case).into_iter();
        nulls.map(move |null| (case, null))
    });
    let nulls: Vec<_> = nulls.collect();
    let caught = nulls.iter().filter(|(_, null)| null.caught).count();
    let mut line = format!(
        "Null: of {} simulators with two systems exchanged that the lab tells apart, the judge refuses {caught}",
        nulls.len()
    );
    let passed = nulls.iter().filter(|(_, null)| !null.caught);
    for (at, (case, null)) in passed.enumerate() {
        let (a, b) = null.systems;
        let before = if at == 0 { "; NOT" } else { "," };
        let _ = write!(line, "{before} {}/{} of {}", a.name(), b.name(), case.case);
    }
    line + "."
}

/// The document with what is below its marker replaced.
///
/// # Errors
///
/// Where it has no marker.
pub fn into_document(document: &str, results: &str) -> anyhow::Result<String> {
    let (above, _) = document
        .split_once(MARKER)
        .with_context(|| format!("The document has no line {MARKER}"))?;
    Ok(format!("{above}{MARKER}\n\n{results}"))
}
