// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the simulator agrees with the lab. Pure.
//!
//! **Ratio.** What a comparison is for is the ratio of two systems' rates, means of the last third of a run. For each pair of systems the simulator's is
//! off by at most [`RATIO`], in proportion, whichever of the two is the greater.
//!
//! **Share.** The fast node's shares of the accesses, last third of the run, differ by at most [`POINTS`].
//!
//! The lab's figure is the median of its rounds. How far its rounds are apart is shown beside a ratio and excuses
//! nothing.
//!
//! **Null.** Where two systems' rates in the lab are further apart than [`RATIO`], the same judge must refuse a simulator
//! that has the two exchanged ([`nulls`]). Otherwise its agreeing says nothing.

use super::results::CaseResult;
use super::results::Figures;
use super::results::SystemResult;
use crate::compare::record::System;

/// A ratio of rates may be off by this part of itself.
pub const RATIO: f64 = 0.05;
/// Shares of fast accesses may differ by this.
pub const POINTS: f64 = 0.05;

/// The ratio of two systems' rates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// The two; the first has the greater rate in the lab.
    pub systems: (System, System),
    /// Median in the lab.
    pub lab: f64,
    /// The least and the greatest of the lab's rounds, the two systems' runs of a round against each other.
    pub range: (f64, f64),
    /// In the simulator.
    pub simulated: f64,
}

impl Pair {
    /// By what part the simulator's ratio is off.
    #[must_use]
    pub fn error(&self) -> f64 {
        apart(self.simulated, self.lab)
    }

    /// Whether that is within the bound.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.error() <= RATIO
    }
}

/// The shares of fast accesses of a system.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share {
    /// The system.
    pub system: System,
    /// Median in the lab.
    pub lab: f64,
    /// In the simulator.
    pub simulated: f64,
}

impl Share {
    /// How far apart they are.
    #[must_use]
    pub fn error(&self) -> f64 {
        (self.lab - self.simulated).abs()
    }

    /// Whether that is within the bound.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.error() <= POINTS
    }
}

/// What is to be said of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// Every pair of systems.
    pub pairs: Vec<Pair>,
    /// Every system.
    pub shares: Vec<Share>,
}

impl Verdict {
    /// Judges a case.
    #[must_use]
    pub fn of(case: &CaseResult) -> Self {
        let systems = &case.systems;
        let later = |at: usize| systems[at + 1..].iter();
        let pairs = systems.iter().enumerate();
        let pairs = pairs
            .flat_map(|(at, a)| later(at).map(move |b| pair(a, b, (&a.simulated, &b.simulated))));
        Self {
            pairs: pairs.collect(),
            shares: systems.iter().map(|of| share(of, &of.simulated)).collect(),
        }
    }

    /// Whether simulator and lab agree in everything.
    #[must_use]
    pub fn agrees(&self) -> bool {
        self.pairs.iter().all(Pair::agrees) && self.shares.iter().all(Share::agrees)
    }
}

/// Two systems of a case exchanged in the simulator.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Null {
    /// The two.
    pub systems: (System, System),
    /// Whether the judge refuses that simulator, by what it says of these two.
    pub caught: bool,
    /// Whether it takes the simulator as it is, by what it says of them.
    pub agrees: bool,
}

/// All exchanges that the judge must refuse: of systems that the lab tells apart.
#[must_use]
pub fn nulls(case: &CaseResult) -> Vec<Null> {
    let mut nulls = Vec::new();
    for (at, a) in case.systems.iter().enumerate() {
        for b in &case.systems[at + 1..] {
            let agree = |simulated: (&Figures, &Figures)| {
                pair(a, b, simulated).agrees()
                    && share(a, simulated.0).agrees()
                    && share(b, simulated.1).agrees()
            };
            let (as_is, exchanged) = ((&a.simulated, &b.simulated), (&b.simulated, &a.simulated));
            let Pair { systems, lab, .. } = pair(a, b, as_is);
            if apart(lab, 1.0) > RATIO {
                nulls.push(Null {
                    systems,
                    caught: !agree(exchanged),
                    agrees: agree(as_is),
                });
            }
        }
    }
    nulls
}

/// By what part the greater of two is above the other.
fn apart(a: f64, b: f64) -> f64 {
    let (least, most) = (a.min(b), a.max(b));
    // Nothing is like a rate of nothing.
    if least > 0.0 {
        most / least - 1.0
    } else {
        f64::INFINITY
    }
}

fn pair(
    a: &SystemResult,
    b: &SystemResult,
    (simulated_a, simulated_b): (&Figures, &Figures),
) -> Pair {
    if a.rate() < b.rate() {
        return pair(b, a, (simulated_b, simulated_a));
    }
    let rounds = a.lab.iter().zip(&b.lab);
    let rounds = rounds.map(|(a, b)| a.figures.ops_per_s / b.figures.ops_per_s);
    Pair {
        systems: (a.system, b.system),
        lab: a.rate() / b.rate(),
        range: rounds.fold((f64::INFINITY, 0.0), |(low, high), ratio| {
            (ratio.min(low), ratio.max(high))
        }),
        simulated: simulated_a.ops_per_s / simulated_b.ops_per_s,
    }
}

fn share(of: &SystemResult, simulated: &Figures) -> Share {
    Share {
        system: of.system,
        lab: of.share(),
        simulated: simulated.fast_access_ratio,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::results::LabRun;

    /// A system: the lab's rounds and the simulator's rate; half of the accesses fast.
    fn system(name: &str, lab: &[f64], simulated: f64) -> SystemResult {
        let figures = |ops_per_s| Figures {
            ops_per_s,
            fast_access_ratio: 0.5,
            ..Figures::default()
        };
        let run = |rate: &f64| LabRun {
            figures: figures(*rate),
            host_pace: None,
            host_busy_ratio: None,
        };
        SystemResult {
            system: name.parse().expect("a system"),
            lab: lab.iter().map(run).collect(),
            nodes: Vec::new(),
            simulated: figures(simulated),
            real: figures(1.0),
        }
    }

    fn case(systems: Vec<SystemResult>) -> CaseResult {
        CaseResult {
            case: "gups:slow".parse().expect("a case"),
            set_aside: false,
            fast_bytes: 0,
            min_free_bytes: 0,
            systems,
        }
    }

    /// None has 100 in both; the other one these.
    fn two(lab: &[f64], simulated: f64) -> CaseResult {
        let none = vec![100.0; lab.len()];
        case(vec![
            system("none", &none, 100.0),
            system("nomad", lab, simulated),
        ])
    }

    #[test]
    fn a_ratio_may_be_off_by_five_percent_of_itself_either_way() {
        for (lab, simulated, agrees) in [
            (200.0, 209.0, true),
            (200.0, 211.0, false),
            (209.0, 200.0, true),
            (211.0, 200.0, false),
            (50.0, 52.0, true),
            (50.0, 53.0, false),
            // The order is the same, and all the same.
            (200.0, 300.0, false),
            (200.0, 120.0, false),
        ] {
            let verdict = Verdict::of(&two(&[lab], simulated));
            assert_eq!(verdict.agrees(), agrees, "{lab} {simulated}");
        }
    }

    #[test]
    fn what_scales_all_rates_alike_is_no_difference() {
        let mut case = two(&[200.0], 200.0);
        for of in &mut case.systems {
            of.simulated.ops_per_s *= 3.0;
        }
        assert!(Verdict::of(&case).agrees());
    }

    #[test]
    fn shares_may_differ_by_five_points() {
        for (share, agrees) in [(0.549, true), (0.551, false), (0.449, false)] {
            let mut case = two(&[200.0], 200.0);
            case.systems[1].simulated.fast_access_ratio = share;
            assert_eq!(Verdict::of(&case).agrees(), agrees, "{share}");
        }
    }

    #[test]
    fn the_median_counts_and_the_rounds_excuse_nothing() {
        let rounds = [150.0, 200.0, 260.0];
        let verdict = Verdict::of(&two(&rounds, 203.0));
        assert!(verdict.agrees());
        assert_eq!(verdict.pairs[0].range, (1.5, 2.6));
        let verdict = Verdict::of(&two(&rounds, 240.0));
        assert!(!verdict.agrees(), "within the rounds");
    }

    #[test]
    fn the_rounds_of_a_pair_are_set_against_each_other() {
        // A slow host is slow for both.
        let case = case(vec![
            system("none", &[100.0, 50.0], 100.0),
            system("nomad", &[200.0, 104.0], 200.0),
        ]);
        let pair = Verdict::of(&case).pairs[0];
        assert_eq!(pair.systems.0.name(), "nomad");
        assert_eq!(pair.range, (2.0, 2.08));
    }

    fn caught(case: &CaseResult) -> Vec<bool> {
        nulls(case).iter().map(|null| null.caught).collect()
    }

    #[test]
    fn two_systems_exchanged_are_refused() {
        assert_eq!(caught(&two(&[200.0], 200.0)), [true]);
        assert_eq!(caught(&two(&[108.0], 108.0)), [true]);
        // Off as it is, and worse the other way round.
        assert_eq!(caught(&two(&[200.0], 130.0)), [true]);
    }

    #[test]
    fn a_simulator_that_fits_better_exchanged_is_not() {
        assert_eq!(caught(&two(&[108.0], 97.0)), [false]);
        // Their shares of fast accesses give it away.
        let mut case = two(&[108.0], 97.0);
        for of in &mut case.systems[1..] {
            of.simulated.fast_access_ratio = 0.8;
            of.lab[0].figures.fast_access_ratio = 0.8;
        }
        assert_eq!(caught(&case), [true]);
    }

    #[test]
    fn systems_that_the_lab_does_not_tell_apart_are_not_asked_for() {
        assert_eq!(caught(&two(&[104.0], 104.0)), [false; 0]);
        assert_eq!(caught(&two(&[96.0], 96.0)), [false; 0]);
        assert_eq!(caught(&two(&[94.0], 94.0)), [true]);
    }
}
