// SPDX-License-Identifier: MIT OR Apache-2.0
//! A `[[holds]]` as it is written, and its checks.
//!
//! Two shapes: `left`, `relation` and `right` compare two terms; `relation = "increasing"` or
//! `"decreasing"` with `metric` and `over` follows one metric over several runs.

use serde::Deserialize;
use toml::Spanned;

use crate::raw::Checked;
use crate::raw::at;
use crate::raw::fault;
use crate::raw::word;
use crate::relation::Operator;
use crate::relation::Relation;
use crate::relation::Slack;
use crate::relation::Term;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawHolds {
    left: Option<Spanned<String>>,
    relation: Spanned<String>,
    right: Option<Spanned<toml::Value>>,
    metric: Option<Spanned<String>>,
    over: Option<Spanned<Vec<Spanned<String>>>>,
    factor: Option<Spanned<f64>>,
    tolerance: Option<Spanned<f64>>,
    within: Option<Spanned<f64>>,
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Compare(Operator),
    Trend { rising: bool },
}

impl RawHolds {
    pub(crate) fn check(&self, start: usize, runs: &[&str]) -> Checked<Relation> {
        let shapes = [
            (">=", Shape::Compare(Operator::AtLeast)),
            ("<=", Shape::Compare(Operator::AtMost)),
            ("about", Shape::Compare(Operator::About)),
            ("increasing", Shape::Trend { rising: true }),
            ("decreasing", Shape::Trend { rising: false }),
        ];
        match word("relation", &self.relation, &shapes)? {
            Shape::Compare(operator) => self.compare(operator, start, runs),
            Shape::Trend { rising } => self.trend(rising, start, runs),
        }
    }

    fn compare(&self, operator: Operator, start: usize, runs: &[&str]) -> Checked<Relation> {
        if self.metric.is_some() || self.over.is_some() {
            return fault(start, "metric and over go with increasing and decreasing");
        }
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return fault(start, "a comparison needs left and right");
        };
        let slack = self.slack()?;
        if operator == Operator::About && slack == Slack::default() {
            return fault(start, "about needs a tolerance (a share) or within");
        }
        let left = term(left.get_ref(), at(left), runs)?;
        if matches!(left, Term::Number(_)) {
            return fault(start, "left is a number; it must name a run");
        }
        let right = match right.get_ref() {
            toml::Value::String(text) => term(text, at(right), runs)?,
            toml::Value::Float(number) => Term::Number(*number),
            #[expect(
                clippy::cast_precision_loss,
                reason = "figures of papers are far below 2^52"
            )]
            toml::Value::Integer(number) => Term::Number(*number as f64),
            _ => return fault(at(right), "right is neither run.metric nor a number"),
        };
        if left == right {
            return fault(start, "left and right are the same");
        }
        Ok(Relation::Compare {
            left,
            operator,
            factor: self.factor()?,
            right,
            slack,
        })
    }

    fn trend(&self, rising: bool, start: usize, runs: &[&str]) -> Checked<Relation> {
        if self.left.is_some() || self.right.is_some() {
            return fault(start, "increasing and decreasing take metric and over");
        }
        let (Some(metric), Some(over)) = (&self.metric, &self.over) else {
            return fault(start, "a trend needs metric and over");
        };
        let mut names = Vec::new();
        for name in over.get_ref() {
            names.push(known_run(name.get_ref(), at(name), runs)?);
        }
        if names.len() < 2 {
            return fault(at(over), "over needs two runs at least");
        }
        Ok(Relation::Trend {
            metric: metric_name(metric.get_ref(), at(metric))?,
            over: names,
            rising,
            factor: self.factor()?,
            slack: self.slack()?,
        })
    }

    fn factor(&self) -> Checked<f64> {
        positive("factor", self.factor.as_ref(), 1.0, false)
    }

    fn slack(&self) -> Checked<Slack> {
        Ok(Slack {
            tolerance: positive("tolerance", self.tolerance.as_ref(), 0.0, true)?,
            within: positive("within", self.within.as_ref(), 0.0, true)?,
        })
    }
}

fn positive(key: &str, value: Option<&Spanned<f64>>, default: f64, zero: bool) -> Checked<f64> {
    let Some(value) = value else {
        return Ok(default);
    };
    let number = *value.get_ref();
    if !number.is_finite() || number < 0.0 || (!zero && number == 0.0) {
        return fault(
            at(value),
            format!("{key} is {number}, expected a number above 0"),
        );
    }
    Ok(number)
}

fn known_run(name: &str, at: usize, runs: &[&str]) -> Checked<String> {
    if runs.contains(&name) {
        return Ok(name.to_owned());
    }
    fault(
        at,
        format!("no run '{name}'; there are {}", runs.join(", ")),
    )
}

/// `metric`, or `program.metric` for one program's.
fn metric_name(name: &str, at: usize) -> Checked<String> {
    let (program, metric) = name.rsplit_once('.').unwrap_or(("one", name));
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let good_program = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let full = !program.is_empty() && !metric.is_empty();
    if full && metric.chars().all(good) && program.chars().all(good_program) {
        return Ok(name.to_owned());
    }
    fault(at, format!("'{name}' is not the name of a metric"))
}

/// `run.metric`, `run.program.metric`, or two of them with ` / ` between.
pub(crate) fn term(text: &str, at: usize, runs: &[&str]) -> Checked<Term> {
    let mut parts = text.split(" / ");
    let figure = |part: &str| match part.trim().split_once('.') {
        Some((run, metric)) => Ok(Term::Figure {
            run: known_run(run, at, runs)?,
            metric: metric_name(metric, at)?,
        }),
        None => fault(at, format!("'{part}' is not run.metric")),
    };
    match (parts.next(), parts.next(), parts.next()) {
        (Some(one), None, _) => figure(one),
        (Some(over), Some(under), None) => Ok(Term::Quotient(
            Box::new(figure(over)?),
            Box::new(figure(under)?),
        )),
        _ => fault(at, format!("'{text}' is more than one quotient")),
    }
}
