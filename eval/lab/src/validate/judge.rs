// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the simulator agrees with the lab. Pure.
//!
//! **Ratio.** What a comparison is for is the ratio of two systems' rates. For each pair of systems the simulator's is
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
}

/// All exchanges that the judge must refuse: of systems that the lab tells apart.
#[must_use]
pub fn nulls(case: &CaseResult) -> Vec<Null> {
    let mut nulls = Vec::new();
    for (at, a) in case.systems.iter().enumerate() {
        for b in &case.systems[at + 1..] {
            let swapped = pair(a, b, (&b.simulated, &a.simulated));
            if apart(swapped.lab, 1.0) <= RATIO {
                continue;
            }
            let shares = [share(a, &b.simulated), share(b, &a.simulated)];
            nulls.push(Null {
                systems: swapped.systems,
                caught: !swapped.agrees() || shares.iter().any(|share| !share.agrees()),
            });
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
