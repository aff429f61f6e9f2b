// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim file as it is written, and the checks that turn it into a [`Claim`].
//!
//! `[setup]` holds what all runs of the file have in common; a `[[run]]` overrides it key by key.
//! Every value that a check can refuse is [`Spanned`], so that the error can name its line. Checks
//! stop at the first mistake. The format is documented in `docs/claims.md`.

use serde::Deserialize;
use toml::Spanned;

use crate::claim::Claim;
use crate::claim::Paper;
use crate::claim::Run;
use crate::claim::Status;
use crate::raw_holds::RawHolds;
use crate::raw_holds::term;
use crate::raw_run::RawRun;
use crate::reason::Cause;
use crate::reason::Counterfactual;
use crate::reason::Reason;

/// A mistake at a byte offset of the text.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) at: usize,
    pub(crate) what: String,
}

pub(crate) type Checked<T> = Result<T, Fault>;

pub(crate) fn fault<T>(at: usize, what: impl Into<String>) -> Checked<T> {
    Err(Fault {
        at,
        what: what.into(),
    })
}

pub(crate) fn at<T>(value: &Spanned<T>) -> usize {
    value.span().start
}

/// Line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawClaim {
    id: Spanned<String>,
    paper: Spanned<String>,
    section: Spanned<String>,
    says: Spanned<String>,
    scaled: Option<Spanned<String>>,
    status: Spanned<String>,
    why: Option<Spanned<String>>,
    cause: Option<Spanned<String>>,
    counterfactual: Option<Spanned<RawCounterfactual>>,
    #[serde(default)]
    setup: RawRun,
    #[serde(default)]
    run: Vec<Spanned<RawRun>>,
    #[serde(default)]
    holds: Vec<Spanned<RawHolds>>,
}

/// What is changed in the runs that show a cause: of all of them, and of those named.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCounterfactual {
    changes: Spanned<String>,
    #[serde(default)]
    setup: RawRun,
    #[serde(default)]
    run: Vec<Spanned<RawRun>>,
}

/// Text that is there and not blank.
pub(crate) fn text(key: &str, value: &Spanned<String>) -> Checked<String> {
    let trimmed = value.get_ref().trim();
    if trimmed.is_empty() {
        return fault(at(value), format!("{key} is empty"));
    }
    Ok(trimmed.to_owned())
}

fn optional(key: &str, value: Option<&Spanned<String>>) -> Checked<Option<String>> {
    value.map(|value| text(key, value)).transpose()
}

/// One of a list of words.
pub(crate) fn word<T: Copy>(key: &str, value: &Spanned<String>, words: &[(&str, T)]) -> Checked<T> {
    match words.iter().find(|(word, _)| word == value.get_ref()) {
        Some((_, meaning)) => Ok(*meaning),
        None => {
            let list: Vec<_> = words.iter().map(|(word, _)| *word).collect();
            fault(
                at(value),
                format!(
                    "{key} is '{}', expected {}",
                    value.get_ref(),
                    list.join(", ")
                ),
            )
        }
    }
}

impl RawClaim {
    /// Checks everything and assembles the claim.
    pub(crate) fn check(self, id: &str, source: &str) -> Checked<Claim> {
        if self.id.get_ref() != id {
            return fault(
                at(&self.id),
                format!(
                    "id is '{}', but the file's place says '{id}'",
                    self.id.get_ref()
                ),
            );
        }
        let papers = Paper::ALL.map(|paper| (paper.key(), paper));
        let statuses =
            [Status::Held, Status::Open, Status::Refuted].map(|status| (status.key(), status));
        let status = word("status", &self.status, &statuses)?;
        if status != Status::Held && self.why.is_none() {
            let what = format!("status is '{}', so why is required", status.key());
            return fault(at(&self.status), what);
        }
        let runs = self.runs(source)?;
        let scaled = optional("scaled", self.scaled.as_ref())?;
        if scaled.is_none()
            && let Some(run) = self.run.iter().find(|run| self.divides(run.get_ref()))
        {
            return fault(at(run), "divide is above 1, so scaled must say it");
        }
        if self.holds.is_empty() {
            return fault(at(&self.id), "the claim has no [[holds]]");
        }
        let names: Vec<_> = runs.iter().map(|run| run.name.as_str()).collect();
        let holds = self
            .holds
            .iter()
            .map(|raw| raw.get_ref().check(at(raw), &names))
            .collect::<Checked<_>>()?;
        let cause = self.cause(status)?;
        let counterfactual = match &self.counterfactual {
            Some(other) => Some(self.changed(other, &runs, source)?),
            None => None,
        };
        Ok(Claim {
            id: id.to_owned(),
            paper: word("paper", &self.paper, &papers)?,
            section: text("section", &self.section)?,
            says: text("says", &self.says)?,
            scaled,
            status,
            why: self.reason(&names)?,
            cause,
            counterfactual,
            runs,
            holds,
        })
    }

    fn reason(&self, runs: &[&str]) -> Checked<Option<Reason>> {
        let Some(why) = &self.why else {
            return Ok(None);
        };
        let words = text("why", why)?;
        Reason::read(&words, |inside| term(inside, at(why), runs)).map(Some)
    }

    fn cause(&self, status: Status) -> Checked<Option<Cause>> {
        match (&self.cause, &self.counterfactual) {
            (None, None) => Ok(None),
            (Some(cause), _) if status != Status::Refuted => {
                fault(at(cause), "only a refuted claim has a cause")
            }
            (Some(cause), Some(_)) => {
                let words = Cause::ALL.map(|cause| (cause.key(), cause));
                word("cause", cause, &words).map(Some)
            }
            (Some(cause), None) => fault(at(cause), "a cause needs a [counterfactual]"),
            (None, Some(other)) => fault(at(other), "a [counterfactual] shows a cause: name it"),
        }
    }

    /// The claim's runs with the change.
    fn changed(
        &self,
        other: &Spanned<RawCounterfactual>,
        unchanged: &[Run],
        source: &str,
    ) -> Checked<Counterfactual> {
        let (start, other) = (at(other), other.get_ref());
        let name = |run: &RawRun| run.name.as_ref().map(|name| name.get_ref().clone());
        for run in &other.run {
            let named = name(run.get_ref());
            if !self.run.iter().any(|raw| name(raw.get_ref()) == named) {
                return fault(at(run), "the claim has no run of that name");
            }
        }
        let mut runs = Vec::new();
        for raw in &self.run {
            let own = raw.get_ref();
            let mut change = other.setup.clone();
            if let Some(run) = other
                .run
                .iter()
                .find(|run| name(run.get_ref()) == name(own))
            {
                change = run.get_ref().over(&change);
            }
            runs.push(Run {
                name: name(own).unwrap_or_default(),
                line: line_of(source, start),
                spec: change.over(own).over(&self.setup).check(start)?,
            });
        }
        let same = |(is, other): (&Run, &Run)| is.spec == other.spec;
        if unchanged.iter().zip(&runs).all(same) {
            return fault(start, "the [counterfactual] changes nothing");
        }
        Ok(Counterfactual {
            changes: text("changes", &other.changes)?,
            runs,
        })
    }

    fn divides(&self, run: &RawRun) -> bool {
        let divide = run.divide.as_ref().or(self.setup.divide.as_ref());
        divide.is_some_and(|divide| *divide.get_ref() > 1)
    }

    fn runs(&self, source: &str) -> Checked<Vec<Run>> {
        if let Some(name) = &self.setup.name {
            return fault(at(name), "[setup] has a name; only a [[run]] has one");
        }
        if self.run.is_empty() {
            return fault(at(&self.id), "the claim has no [[run]]");
        }
        let mut runs: Vec<Run> = Vec::new();
        for raw in &self.run {
            let start = at(raw);
            let Some(name) = &raw.get_ref().name else {
                return fault(start, "a [[run]] has no name");
            };
            let named = name.get_ref();
            if named.is_empty() || named.contains(['.', '/', ' ']) {
                return fault(
                    at(name),
                    format!("name is '{named}', expected a word without '.', '/' and spaces"),
                );
            }
            if runs.iter().any(|run| run.name == *named) {
                return fault(at(name), format!("second [[run]] named '{named}'"));
            }
            runs.push(Run {
                name: named.clone(),
                line: line_of(source, start),
                spec: raw.get_ref().over(&self.setup).check(start)?,
            });
        }
        Ok(runs)
    }
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
