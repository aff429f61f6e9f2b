// SPDX-License-Identifier: MIT OR Apache-2.0
//! Relations between figures of runs, and whether they hold. Plain arithmetic.
//!
//! | relation                       | holds when                                                   |
//! | ------------------------------ | ------------------------------------------------------------ |
//! | `left >= factor * right`       | left is at least that, less the slack                         |
//! | `left <= factor * right`       | left is at most that, plus the slack                          |
//! | `left about factor * right`    | they differ by the slack at most                              |
//! | `increasing`, `decreasing`     | no step goes the other way by more than the slack, and the last is at least `factor` times the first (the first at least `factor` times the last) and not equal to it |
//!
//! The slack is `tolerance` times the size of the bound, plus `within`. A figure that is missing or
//! not finite makes the relation fail; it never holds by accident.

use std::fmt;

/// A figure of a run, a quotient of two, or a number.
#[derive(Debug, Clone, PartialEq)]
pub enum Term {
    /// `run.metric` or `run.program.metric`
    Figure {
        /// Name of the run.
        run: String,
        /// Name of the metric, with the program's in front where it is one program's.
        metric: String,
    },
    /// `run.metric / run.metric`
    Quotient(Box<Self>, Box<Self>),
    /// A number of the paper.
    Number(f64),
}

/// What a comparison asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `>=`
    AtLeast,
    /// `<=`
    AtMost,
    /// `about`
    About,
}

/// How far a relation may be missed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slack {
    /// As a share of the bound.
    pub tolerance: f64,
    /// In the figures' own unit.
    pub within: f64,
}

impl Slack {
    fn of(self, bound: f64) -> f64 {
        self.tolerance * bound.abs() + self.within
    }
}

/// Something that must hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Relation {
    /// Two terms.
    Compare {
        /// The one that is claimed to be so.
        left: Term,
        /// How.
        operator: Operator,
        /// On the right side.
        factor: f64,
        /// What it is measured by.
        right: Term,
        /// How far it may be missed.
        slack: Slack,
    },
    /// One metric over several runs, in order.
    Trend {
        /// Name of the metric.
        metric: String,
        /// Names of the runs.
        over: Vec<String>,
        /// Up, or down.
        rising: bool,
        /// From end to end at least.
        factor: f64,
        /// Of each step.
        slack: Slack,
    },
}

/// What a relation came to.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Whether it holds.
    pub holds: bool,
    /// The figures in it, in order; `None` where there is none.
    pub figures: Vec<Option<f64>>,
}

/// Gives `run.metric`, if there is one.
pub type Lookup<'a> = dyn Fn(&str, &str) -> Option<f64> + 'a;

impl Term {
    /// Its value.
    #[must_use]
    pub fn value(&self, lookup: &Lookup<'_>) -> Option<f64> {
        match self {
            Self::Figure { run, metric } => lookup(run, metric),
            Self::Quotient(over, under) => Some(over.value(lookup)? / under.value(lookup)?),
            Self::Number(number) => Some(*number),
        }
    }

    /// The runs and metrics in it.
    #[must_use]
    pub fn names(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Figure { run, metric } => vec![(run, metric)],
            Self::Quotient(over, under) => {
                let mut names = over.names();
                names.extend(under.names());
                names
            }
            Self::Number(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Figure { run, metric } => write!(f, "{run}.{metric}"),
            Self::Quotient(over, under) => write!(f, "{over} / {under}"),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

impl Relation {
    /// Whether it holds over the figures that `lookup` gives.
    #[must_use]
    pub fn check(&self, lookup: &Lookup<'_>) -> Check {
        match self {
            Self::Compare {
                left,
                operator,
                factor,
                right,
                slack,
            } => {
                let figures = vec![left.value(lookup), right.value(lookup)];
                let holds = match finite(&figures).as_deref() {
                    Some(&[left, right]) => compare(left, *operator, factor * right, *slack),
                    _ => false,
                };
                Check { holds, figures }
            }
            Self::Trend {
                metric,
                over,
                rising,
                factor,
                slack,
            } => {
                let figures: Vec<_> = over.iter().map(|run| lookup(run, metric)).collect();
                let holds = finite(&figures)
                    .is_some_and(|figures| trend(&figures, *rising, *factor, *slack));
                Check { holds, figures }
            }
        }
    }

    /// The runs and metrics in it.
    #[must_use]
    pub fn names(&self) -> Vec<(&str, &str)> {
        match self {
            Self::Compare { left, right, .. } => {
                let mut names = left.names();
                names.extend(right.names());
                names
            }
            Self::Trend { metric, over, .. } => over
                .iter()
                .map(|run| (run.as_str(), metric.as_str()))
                .collect(),
        }
    }
}

fn finite(figures: &[Option<f64>]) -> Option<Vec<f64>> {
    figures
        .iter()
        .map(|figure| figure.filter(|figure| figure.is_finite()))
        .collect()
}

fn compare(left: f64, operator: Operator, bound: f64, slack: Slack) -> bool {
    let slack = slack.of(bound);
    match operator {
        Operator::AtLeast => left >= bound - slack,
        Operator::AtMost => left <= bound + slack,
        Operator::About => (left - bound).abs() <= slack,
    }
}

fn trend(figures: &[f64], rising: bool, factor: f64, slack: Slack) -> bool {
    // A falling row is a rising one read backwards.
    let mut row = figures.to_vec();
    if !rising {
        row.reverse();
    }
    let steps = row
        .windows(2)
        .all(|pair| pair[1] >= pair[0] - slack.of(pair[0]));
    match (row.first(), row.last()) {
        (Some(&first), Some(&last)) => steps && last > first && last >= factor * first,
        _ => false,
    }
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Compare {
                left,
                operator,
                factor,
                right,
                ..
            } => {
                let sign = match operator {
                    Operator::AtLeast => ">=",
                    Operator::AtMost => "<=",
                    Operator::About => "about",
                };
                write!(f, "{left} {sign} ")?;
                if (factor - 1.0).abs() > f64::EPSILON {
                    write!(f, "{factor} x ")?;
                }
                write!(f, "{right}")
            }
            Self::Trend {
                metric,
                over,
                rising,
                ..
            } => {
                let word = if *rising { "increasing" } else { "decreasing" };
                write!(f, "{metric} {word} over {}", over.join(", "))
            }
        }
    }
}

#[cfg(test)]
#[path = "relation_tests.rs"]
mod tests;
