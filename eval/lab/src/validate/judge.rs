// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the simulator agrees with the lab. Pure.
//!
//! **Order.** Two systems whose throughputs differ by at most [`TIE`] are equal, and so are two whose
//! runs, where there are several of each, overlap: what the lab does not show again it has not shown. A pair
//! agrees where both say "equal", and where whoever says more than that is not contradicted: if one puts `a` above
//! `b`, the other must have `a` above `b`, too, by whatever little, or runs of both that overlap.
//!
//! **Share.** The fast node's shares of the accesses, last third of the run, differ by at most
//! [`POINTS`].

use serde::Deserialize;
use serde::Serialize;

use super::simulated::Figures;
use crate::compare::record::System;

/// Throughputs that differ by less than this share of the greater one count as equal.
pub const TIE: f64 = 0.05;
/// Shares of fast accesses may differ by this.
pub const POINTS: f64 = 0.05;

/// A cell in the lab and in the simulator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The system.
    pub system: System,
    /// In the lab.
    pub lab: Figures,
    /// In the simulator with the lab's costs.
    pub simulated: Figures,
    /// In the simulator with real hardware's costs.
    pub real: Figures,
}

/// One workload at one size of the fast tier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The workload's name.
    pub workload: String,
    /// Size of the fast node, bytes.
    pub fast_bytes: u64,
    /// What of it was free when the workload began, bytes.
    pub fast_free_bytes: u64,
    /// The systems.
    pub rows: Vec<Row>,
    /// Pairs of systems on whose order both disagree.
    pub disordered: Vec<(System, System)>,
    /// Greatest difference of the shares of fast accesses.
    pub share_off: f64,
}

impl Case {
    /// Judges the rows.
    #[must_use]
    pub fn new(workload: String, fast_bytes: u64, fast_free_bytes: u64, rows: Vec<Row>) -> Self {
        Self {
            workload,
            fast_bytes,
            fast_free_bytes,
            disordered: disordered(&rows),
            share_off: rows
                .iter()
                .map(|row| (row.lab.fast_access_ratio - row.simulated.fast_access_ratio).abs())
                .fold(0.0, f64::max),
            rows,
        }
    }

    /// Whether simulator and lab agree.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.disordered.is_empty() && self.share_off <= POINTS
    }
}

/// Whether all of `a`'s runs are above all of `b`'s.
fn above(a: &Figures, b: &Figures) -> bool {
    a.range.0 > b.range.1
}

/// Whether `a` is above `b` by more than the margin, and in all runs.
fn clearly(a: &Figures, b: &Figures) -> bool {
    above(a, b) && a.ops_per_s > b.ops_per_s + TIE * a.ops_per_s
}

/// Whether there are several runs of one at least and they do not tell the two apart.
fn overlap([a, b]: [&Figures; 2]) -> bool {
    let several = |figures: &Figures| figures.range.0 < figures.range.1;
    (several(a) || several(b)) && !above(a, b) && !above(b, a)
}

fn disordered(rows: &[Row]) -> Vec<(System, System)> {
    let mut pairs = Vec::new();
    for (at, a) in rows.iter().enumerate() {
        for b in &rows[at + 1..] {
            let contradicted = |said: [&Figures; 2], other: [&Figures; 2]| {
                clearly(said[0], said[1]) && !above(other[0], other[1]) && !overlap(other)
            };
            let lab = [&a.lab, &b.lab];
            let simulated = [&a.simulated, &b.simulated];
            let turned = |[a, b]: [_; 2]| [b, a];
            if contradicted(lab, simulated)
                || contradicted(simulated, lab)
                || contradicted(turned(lab), turned(simulated))
                || contradicted(turned(simulated), turned(lab))
            {
                pairs.push((a.system, b.system));
            }
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(ops_per_s: f64, fast_access_ratio: f64) -> Figures {
        Figures {
            ops_per_s,
            range: (ops_per_s, ops_per_s),
            fast_access_ratio,
            promoted_pages: 0,
            demoted_pages: 0,
            hint_faults: None,
        }
    }

    fn row(system: System, lab: f64, simulated: f64) -> Row {
        Row {
            system,
            lab: figures(lab, 0.5),
            simulated: figures(simulated, 0.5),
            real: figures(1.0, 0.5),
        }
    }

    fn pairs(kernel: (f64, f64), nomad: (f64, f64)) -> usize {
        let rows = [
            row(System::Kernel, kernel.0, kernel.1),
            row(System::Preset("nomad"), nomad.0, nomad.1),
        ];
        disordered(&rows).len()
    }

    #[test]
    fn equal_within_the_margin_whichever_is_above() {
        assert_eq!(pairs((100.0, 100.0), (97.0, 103.0)), 0);
    }

    #[test]
    fn a_clear_order_must_not_be_contradicted() {
        assert_eq!(pairs((100.0, 100.0), (80.0, 98.0)), 0);
        assert_eq!(pairs((100.0, 98.0), (80.0, 100.0)), 1);
        assert_eq!(pairs((100.0, 80.0), (80.0, 100.0)), 1);
        assert_eq!(pairs((98.0, 80.0), (97.0, 100.0)), 1);
    }

    #[test]
    fn runs_that_overlap_say_nothing() {
        let of = |kernel: (f64, f64), nomad: (f64, f64), simulated: (f64, f64)| {
            let row = |system, (low, high): (f64, f64), simulated| Row {
                lab: Figures {
                    range: (low, high),
                    ..figures(f64::midpoint(low, high), 0.5)
                },
                ..row(system, 0.0, simulated)
            };
            let rows = [
                row(System::Kernel, kernel, simulated.0),
                row(System::Preset("nomad"), nomad, simulated.1),
            ];
            disordered(&rows).len()
        };
        assert_eq!(of((90.0, 130.0), (80.0, 100.0), (80.0, 100.0)), 0);
        assert_eq!(of((110.0, 130.0), (80.0, 100.0), (80.0, 100.0)), 1);
        assert_eq!(of((110.0, 130.0), (80.0, 100.0), (100.0, 99.0)), 0);
    }

    #[test]
    fn shares_may_differ_by_five_points() {
        let mut row = row(System::Preset("nomad"), 1.0, 1.0);
        row.simulated.fast_access_ratio = 0.549;
        let case = |row: Row| Case::new("gups".to_owned(), 0, 0, vec![row]);
        assert!(case(row.clone()).agrees());
        row.simulated.fast_access_ratio = 0.551;
        assert!(!case(row).agrees());
    }
}
