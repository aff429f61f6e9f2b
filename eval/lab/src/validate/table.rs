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
use crate::compare::analysis::median;
use crate::compare::record::System;

/// Pairs that a case's line names; the kept results have all.
const NAMED: usize = 5;
/// Below this line the document is written anew.
pub const MARKER: &str = "<!-- results: everything below is written by make validate -->";

/// All cases as a table, a line on each, all together, and what the null came to.
#[must_use]
pub fn markdown(results: &Results, fast_node: usize) -> String {
    let mut text = String::from(
        "| workload, fast tier | system | lab: ops/s (rounds), × none | fast | promoted | \
         simulated: ops/s, × none | off | fast | promoted | Terrace's own time, lab, simulated | \
         real costs: × none | fast |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
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
    let _ = writeln!(text, "\n{}\n\n{}", summary(results), null(results));
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
    let own = of.own_s().zip(of.simulated.own_s);
    let own = own.map_or_else(String::new, |(lab, simulated)| {
        format!("{lab:.1} s, {simulated:.1} s")
    });
    let share = |figures: &Figures| format!("{:.1} %", figures.fast_access_ratio * 100.0);
    let _ = writeln!(
        text,
        "| {name} | {} | {}{rounds}, {lab:.2} | {:.1} % | {} | {}, {simulated:.2} | {:+.0} % | {} | {} | {own} | {:.2} | {} |",
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
    for (at, pair) in pairs.iter().take(NAMED).enumerate() {
        let before = if at == 0 { "; off:" } else { "," };
        let _ = write!(line, "{before} {}", off(pair));
    }
    if pairs.len() > NAMED {
        let _ = write!(line, ", and {} more", pairs.len() - NAMED);
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

/// All cases together, in a paragraph: also what the lab's own rounds are worth.
#[must_use]
pub fn summary(results: &Results) -> String {
    let verdicts: Vec<Verdict> = results.cases.iter().map(Verdict::of).collect();
    let pairs: Vec<&Pair> = verdicts.iter().flat_map(|verdict| &verdict.pairs).collect();
    let shares: Vec<&Share> = verdicts.iter().flat_map(|v| &v.shares).collect();
    let told = pairs.iter().filter(|pair| pair.lab > 1.0 + judge::RATIO);
    let told: Vec<_> = told.collect();
    let systems = results.cases.iter().flat_map(|case| &case.systems);
    let rounds = systems.filter(|of| of.lab.len() > 1).map(|of| {
        let (low, high) = of.range();
        high / low - 1.0
    });
    let rounds: Vec<f64> = rounds.collect();
    let mut text = format!(
        "In all: {} of {} ratios within {:.0} %, off by {:.0} % in the median; {} of {} pairs that the lab tells \
         apart by more are in its order; {} of {} shares within {:.0} points.",
        pairs.iter().filter(|pair| pair.agrees()).count(),
        pairs.len(),
        judge::RATIO * 100.0,
        median(pairs.iter().map(|pair| pair.error())) * 100.0,
        told.iter().filter(|pair| pair.simulated > 1.0).count(),
        told.len(),
        shares.iter().filter(|share| share.agrees()).count(),
        shares.len(),
        judge::POINTS * 100.0,
    );
    if let Some(most) = rounds.iter().copied().reduce(f64::max) {
        let _ = write!(
            text,
            " The lab's own rounds of one system are apart by {:.0} % in the median and {:.0} % at most.",
            median(rounds) * 100.0,
            most * 100.0
        );
    }
    text
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
        "Null: of {} simulators with two systems exchanged that the lab tells apart, the judge refuses {caught}, and {} \
         as they are",
        nulls.len(),
        nulls.iter().filter(|(_, null)| !null.agrees).count(),
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

#[cfg(test)]
mod tests {
    use terrace_experiment::RunInfo;

    use super::*;
    use crate::job::GuestNode;
    use crate::validate::cells::Settings;
    use crate::validate::results::LabRun;

    fn system(name: &str, lab: &[f64], simulated: f64) -> SystemResult {
        let figures = |ops_per_s| Figures {
            ops_per_s,
            fast_access_ratio: 0.5,
            promoted_pages: 7,
            ..Figures::default()
        };
        let run = |rate: &f64| LabRun {
            figures: figures(*rate),
            host_pace: None,
            host_busy_ratio: None,
        };
        let node = GuestNode {
            id: 0,
            total_kib: 256_000,
            free_kib: 110 << 10,
            tier: String::new(),
        };
        SystemResult {
            system: name.parse().expect("a system"),
            lab: lab.iter().map(run).collect(),
            nodes: vec![node],
            simulated: figures(simulated),
            real: figures(3000.0),
        }
    }

    fn results(simulated: f64) -> Results {
        let made_by = ("QEMU 1".to_owned(), "6.12".to_owned());
        let mut systems = vec![
            system("none", &[1000.0, 1000.0], 1000.0),
            system("nomad", &[1900.0, 2100.0], simulated),
        ];
        for run in &mut systems[1].lab {
            run.figures.own_s = Some(9.9);
        }
        systems[1].simulated.own_s = Some(0.5);
        Results {
            run: RunInfo::of_machine(("m", &0), "m.toml".as_ref(), made_by),
            simulator: String::new(),
            settings: Settings {
                machine: String::new(),
                machine_hash: String::new(),
                kernel: String::new(),
                programs: String::new(),
                threads: 2,
                sized_for: 0,
                seconds: 10,
                seed: 1,
            },
            cases: vec![CaseResult {
                case: "gups:full".parse().expect("a case"),
                set_aside: true,
                fast_bytes: 250 << 20,
                min_free_bytes: 0,
                systems,
            }],
        }
    }

    #[test]
    fn a_row_for_each_system_and_a_line_for_each_case() {
        let text = markdown(&results(2060.0), 0);
        for wanted in [
            "| gups:full, set aside, 250 MiB, 110 free | none | 1,000 (1,000 to 1,000), 1.00 | 50.0 % | 7 |",
            "|  | nomad | 2,000 (1,900 to 2,100), 2.00 | 50.0 % | 7 | 2,060, 2.06 | +3 % | 50.0 % | 7 | 9.9 s, 0.5 s | 1.00 |",
            "agrees: 1 of 1 ratios within 5 %, 2 of 2 shares within 5 points\n",
            "In all: 1 of 1 ratios within 5 %, off by 3 % in the median; 1 of 1 pairs that the lab tells apart by more \
             are in its order; 2 of 2 shares within 5 points. The lab's own rounds of one system are apart by 5 % in \
             the median and 11 % at most.\n\n",
            "Null: of 1 simulators with two systems exchanged that the lab tells apart, the judge refuses 1, and 0 as they are.",
        ] {
            assert!(text.contains(wanted), "{wanted}\n{text}");
        }
    }

    #[test]
    fn what_is_off_is_named_with_its_figures() {
        let mut results = results(1500.0);
        results.cases[0].systems[1].simulated.fast_access_ratio = 0.4;
        let text = verdict(&results.cases[0]);
        assert_eq!(
            text,
            "gups:full, set aside, 250 MiB: DOES NOT AGREE: 0 of 1 ratios within 5 %, 1 of 2 shares within 5 points; \
             off: nomad/none 2.00 (1.90 to 2.10), simulated 1.50, 33 %; fast accesses of nomad 50.0 %, simulated 40.0 %"
        );
    }

    #[test]
    fn a_null_that_passes_is_named() {
        let mut results = results(980.0);
        for run in &mut results.cases[0].systems[1].lab {
            run.figures.ops_per_s = 1060.0;
        }
        assert!(!results.nulls_are_caught());
        let text = null(&results);
        assert!(
            text.ends_with("refuses 0, and 1 as they are; NOT nomad/none of gups:full."),
            "{text}"
        );
    }

    #[test]
    fn a_judge_that_was_asked_nothing_has_not_passed() {
        let mut results = results(1000.0);
        for run in &mut results.cases[0].systems[1].lab {
            run.figures.ops_per_s = 1000.0;
        }
        assert!(results.agree() && !results.nulls_are_caught());
    }

    #[test]
    fn what_is_above_the_marker_stays() {
        let old = format!("# Title\n{MARKER}\nold\n");
        let new = into_document(&old, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n{MARKER}\n\nnew\n"));
        assert!(into_document("# Title\n", "new").is_err());
    }
}
