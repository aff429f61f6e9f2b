// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows as a table in Markdown: a line for each workload and tracker, in a cell one figure for each price.

use std::fmt::Write;

use super::record::Row;
use super::record::Source;
use super::record::percent;
use super::score::HOTTEST;
use super::score::Score;

/// The runs of one tracker on one workload, by rising price.
pub(super) fn groups(rows: &[Row]) -> Vec<(&str, Source, Vec<&Row>)> {
    let mut groups: Vec<(&str, Source, Vec<&Row>)> = Vec::new();
    for row in rows {
        let same = |group: &&mut (&str, Source, Vec<&Row>)| {
            group.0 == row.workload && group.1 == row.source
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.2.push(row),
            None => groups.push((&row.workload, row.source, vec![row])),
        }
    }
    for (.., rows) in &mut groups {
        rows.sort_by_key(|row| row.permille);
    }
    groups
}

/// A figure of a score in whole percent; a dash where there is none.
fn cell(rows: &[&Row], of: impl Fn(&Score) -> Option<f64>) -> String {
    let each = rows.iter().map(|row| {
        let value = row.score.as_ref().and_then(&of);
        value.map_or("-".to_owned(), |value| format!("{:.0}", value * 100.0))
    });
    each.collect::<Vec<_>>().join(" / ")
}

/// All rows.
#[must_use]
pub fn render(rows: &[Row]) -> String {
    let mut prices: Vec<u32> = rows.iter().map(|row| row.permille).collect();
    prices.sort_unstable();
    prices.dedup();
    let prices: Vec<String> = prices.into_iter().map(percent).collect();
    let mut out = format!(
        "All figures in percent, at {} % of a processor.\n\n",
        prices.join(" / ")
    );
    out.push_str("| workload | tracker | took | pages seen |");
    for what in ["recall", "precision"] {
        for share in HOTTEST {
            let _ = write!(out, " {what} {:.0} |", share * 100.0);
        }
    }
    out.push_str(" rank | coldest 25 |\n|---|---|");
    out.push_str(&"--:|".repeat(4 + 2 * HOTTEST.len()));
    out.push('\n');
    let mut before = "";
    for (workload, source, rows) in groups(rows) {
        let name = if workload == before { "" } else { workload };
        before = workload;
        let took: Vec<String> = rows
            .iter()
            .map(|row| format!("{:.1}", row.overhead() * 100.0))
            .collect();
        let seen = rows.iter().map(|row| {
            let share = row.seen * 100 / row.pages.max(1);
            share.to_string()
        });
        let seen: Vec<String> = seen.collect();
        let _ = write!(
            out,
            "| {name} | {source} | {} | {} |",
            took.join(" / "),
            seen.join(" / ")
        );
        for set in 0..HOTTEST.len() {
            let _ = write!(out, " {} |", cell(&rows, |score| Some(score.recall[set])));
        }
        for set in 0..HOTTEST.len() {
            let _ = write!(out, " {} |", cell(&rows, |score| score.precision[set]));
        }
        let rank = cell(&rows, |score| score.rank);
        let cold = cell(&rows, |score| Some(score.cold));
        let _ = writeln!(out, " {rank} | {cold} |");
    }
    for row in rows.iter().filter(|row| row.failed.is_some()) {
        let why = row.failed.as_deref().unwrap_or_default();
        let price = percent(row.permille);
        let _ = writeln!(
            out,
            "\n{} by {} at {price} % failed: {why}",
            row.workload, row.source
        );
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn row(workload: &str, source: Source, permille: u32, recall: f64) -> Row {
        Row {
            workload: workload.to_owned(),
            source,
            permille,
            seconds: 10.0,
            own_s: 0.04,
            kernel_s: 0.05,
            program_s: 0.01,
            pages: 200,
            seen: 100,
            score: Some(Score {
                recall: [recall; 3],
                precision: [None; 3],
                accesses: [1.0; 3],
                rank: None,
                cold: 0.25,
            }),
            failed: None,
            run: None,
        }
    }

    #[test]
    fn a_tracker_has_a_line_with_all_its_prices() {
        let mut rows = vec![
            row("zipf", Source::AccessedBits, 10, 0.75),
            row("zipf", Source::AccessedBits, 5, 0.5),
            row("gups", Source::Damon(100), 5, 0.1),
        ];
        rows[2].score = None;
        rows[2].failed = Some("no DAMON".to_owned());
        let text = render(&rows);
        assert!(text.contains("at 0.5 / 1 % of"), "{text}");
        let line =
            "| zipf | accessed-bits | 1.0 / 1.0 | 50 / 50 | 50 / 75 | 50 / 75 | 50 / 75 | - / - |";
        assert!(text.contains(line), "{text}");
        assert!(
            text.contains("gups by damon-100 at 0.5 % failed: no DAMON"),
            "{text}"
        );
        let widths: Vec<usize> = text
            .lines()
            .filter(|line| line.starts_with('|'))
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(widths, [13; 4]);
    }
}
