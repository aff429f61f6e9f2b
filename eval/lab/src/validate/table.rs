// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table, as Markdown: for people, and for `docs/validation.md` below its marker.

use std::fmt::Write as _;

use anyhow::Context;
use terrace_chart::thousands;

use super::judge::Case;
use super::simulated::Figures;
use crate::compare::record::System;

/// Below this line the document is written anew.
pub const MARKER: &str = "<!-- results: everything below is written by make validate -->";

/// All cases as a table, and a line on each that does not agree.
#[must_use]
pub fn markdown(cases: &[Case]) -> String {
    let mut text = String::from(
        "| workload, fast tier | system | lab: ops/s, × none | fast | promoted | \
         simulated: ops/s, × none | fast | promoted | real costs: × none | fast |\n\
         |---|---|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for case in cases {
        for (at, row) in case.rows.iter().enumerate() {
            let name = if at == 0 {
                let (size, free) = (case.fast_bytes >> 20, case.fast_free_bytes >> 20);
                format!("{}, {size} MiB, {free} free", case.workload)
            } else {
                String::new()
            };
            let times = |of: fn(&super::judge::Row) -> Figures| {
                let none = case.rows.iter().find(|row| row.system == System::None);
                none.map_or(f64::NAN, |none| of(row).ops_per_s / of(none).ops_per_s)
            };
            let _ = writeln!(
                text,
                "| {name} | {} | {}, {:.2} | {:.1} % | {} | {}, {:.2} | {:.1} % | {} | {:.2} | {:.1} % |",
                row.system.name(),
                thousands(row.lab.ops_per_s),
                times(|row| row.lab),
                row.lab.fast_access_ratio * 100.0,
                row.lab.promoted_pages,
                thousands(row.simulated.ops_per_s),
                times(|row| row.simulated),
                row.simulated.fast_access_ratio * 100.0,
                row.simulated.promoted_pages,
                times(|row| row.real),
                row.real.fast_access_ratio * 100.0,
            );
        }
    }
    text.push('\n');
    for case in cases {
        let _ = writeln!(text, "- {}", verdict(case));
    }
    text
}

/// What became of a case, in a line.
#[must_use]
pub fn verdict(case: &Case) -> String {
    let order = if case.disordered.is_empty() {
        "same order".to_owned()
    } else {
        let pairs = case.disordered.iter();
        let pairs: Vec<String> = pairs
            .map(|(a, b)| format!("{} and {}", a.name(), b.name()))
            .collect();
        format!("another order of {}", pairs.join("; "))
    };
    format!(
        "{}, {} MiB: {}; {order}; fast shares within {:.1} points",
        case.workload,
        case.fast_bytes >> 20,
        if case.agrees() { "agrees" } else { "DISAGREES" },
        case.share_off * 100.0
    )
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
    use super::*;
    use crate::validate::judge::Row;

    fn case(simulated: f64) -> Case {
        let figures = |ops_per_s| Figures {
            ops_per_s,
            range: (ops_per_s, ops_per_s),
            fast_access_ratio: 0.5,
            promoted_pages: 7,
            demoted_pages: 0,
            hint_faults: None,
        };
        let row = |system, lab, simulated| Row {
            system,
            lab: figures(lab),
            simulated: figures(simulated),
            real: figures(3.0),
        };
        let rows = vec![
            row(System::None, 1000.0, 1000.0),
            row(System::Preset("nomad"), 2000.0, simulated),
        ];
        Case::new("gups".to_owned(), 250 << 20, 110 << 20, rows)
    }

    #[test]
    fn a_row_for_each_system_and_a_line_for_each_case() {
        let text = markdown(&[case(2100.0), case(900.0)]);
        assert!(text.contains("| gups, 250 MiB, 110 free | none | 1,000, 1.00 | 50.0 % |"));
        assert!(text.contains("|  | nomad | 2,000, 2.00 |"));
        assert!(text.contains("agrees; same order"));
        assert!(text.contains("DISAGREES; another order of none and nomad"));
    }

    #[test]
    fn what_is_above_the_marker_stays() {
        let old = format!("# Title\n{MARKER}\nold\n");
        let new = into_document(&old, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n{MARKER}\n\nnew\n"));
        assert!(into_document("# Title\n", "new").is_err());
    }
}
