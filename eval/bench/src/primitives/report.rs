// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures for people and for the simulator.
//!
//! The simulator's costs are made of figures here and nowhere else; the names are those of
//! `eval/sim/src/costs.rs`. A cost that cannot be measured is null, and the simulator keeps the
//! system's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde::Serialize;
use terrace_experiment::RunInfo;

use super::Figure;

/// What `terrace bench primitives --json` prints, and `terrace sim --costs` reads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What it was made with.
    pub run: RunInfo,
    /// Processors that the program may use.
    pub cpus: usize,
    /// Memory nodes, by the kernel's number.
    pub nodes: Vec<u16>,
    /// Rounds of which the median is given.
    pub rounds: usize,
    /// The simulator's costs by its names, ns.
    pub costs: BTreeMap<String, Option<f64>>,
    /// What was measured.
    pub figures: Vec<Figure>,
}

/// The costs that the figures give: name and formula. `None` where a part is missing.
#[must_use]
pub fn costs(figures: &[Figure]) -> BTreeMap<String, Option<f64>> {
    let of = |what: &str| {
        let found = figures.iter().find(|f| f.what == what);
        found.and_then(|f| f.ns)
    };
    // Where the part seems to take longer than the whole, nothing is known of the rest.
    let less = |a: &str, b: &str| Some(of(a)? - of(b)?).filter(|ns| *ns > 0.0);
    let twice = |what: &str| Some(of(what)? * 2.0);
    let costs = [
        ("hint_fault_ns", of("hint_fault")),
        ("pte_scan_ns", of("pte_marking")),
        ("pmu_sample_ns", of("pmu_sample")),
        ("accessed_set_ns", of("accessed_set")),
        // Reading accessed bits needs a kernel module.
        ("probe_ns", None),
        // Not told apart from a nearer cache here.
        ("cache_hit_ns", None),
        ("shootdown_base_ns", of("shootdown_base")),
        ("shootdown_per_cpu_ns", of("shootdown_per_cpu")),
        // The simulator charges the clearing as a write of the page.
        ("page_fault_ns", less("page_fault", "page_clear")),
        ("page_copy_ns", of("page_copy")),
        ("migrate_fixed_ns", less("migrate_page", "page_copy")),
        ("transaction_fixed_ns", of("uffd_protect")),
        ("commit_ns", twice("uffd_move")),
        ("shadow_demote_ns", twice("uffd_move")),
        ("write_protect_fault_ns", of("uffd_fault")),
    ];
    costs
        .into_iter()
        .map(|(name, ns)| (name.to_owned(), ns))
        .collect()
}

/// The table that people read.
#[must_use]
pub fn table(report: &Report) -> String {
    let mut text = format!(
        "{:<22}{:>12}{:>22}{:>10}  what\n",
        "", "median ns", "least to most", "MB/s"
    );
    for figure in &report.figures {
        let ns = figure
            .ns
            .map_or_else(|| "-".to_owned(), |ns| format!("{ns:.1}"));
        let spread = figure
            .spread
            .map_or_else(String::new, |(a, b)| format!("{a:.1} to {b:.1}"));
        let rate = figure
            .mb_per_s
            .map_or_else(String::new, |mb| format!("{mb:.0}"));
        let why = figure
            .why
            .as_ref()
            .map_or_else(String::new, |why| format!(" (not measured: {why})"));
        writeln!(
            text,
            "{:<22}{ns:>12}{spread:>22}{rate:>10}  {}{why}",
            figure.what, figure.about
        )
        .expect("a String takes all");
    }
    writeln!(
        text,
        "\nThe simulator's costs (--json, terrace sim --costs):"
    )
    .expect("a String takes all");
    for (name, ns) in &report.costs {
        let ns = ns.map_or_else(
            || "null: the system's own stays".to_owned(),
            |ns| format!("{ns:.1}"),
        );
        writeln!(text, "  {name:<24}{ns}").expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(what: &str, ns: f64) -> Figure {
        Figure {
            what: what.to_owned(),
            about: String::new(),
            ns: Some(ns),
            spread: None,
            mb_per_s: None,
            why: None,
        }
    }

    #[test]
    fn costs_are_made_of_figures_and_null_without_them() {
        let figures = [
            figure("page_fault", 900.0),
            figure("page_clear", 200.0),
            figure("uffd_move", 1000.0),
            figure("migrate_page", 300.0),
            figure("page_copy", 400.0),
        ];
        let costs = costs(&figures);
        assert_eq!(costs["page_fault_ns"], Some(700.0));
        assert_eq!(costs["commit_ns"], Some(2000.0));
        assert_eq!(costs["migrate_fixed_ns"], None);
        assert_eq!(costs["hint_fault_ns"], None);
    }
}
