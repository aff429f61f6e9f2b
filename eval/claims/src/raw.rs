// SPDX-License-Identifier: MIT OR Apache-2.0
//! A claim file as it is written, and the checks that turn it into a [`Claim`].
//!
//! `[setup]` holds what all runs of the file have in common; a `[[run]]` overrides it key by key.
//! Every value that a check can refuse is [`Spanned`], so that the error can name its line. Checks
//! stop at the first mistake. The format is documented in `docs/claims.md`.

use std::collections::BTreeMap;

use serde::Deserialize;
use terrace_core::parse_bytes;
use terrace_sim::Mover;
use terrace_sim::TrackerKind;
use toml::Spanned;

use crate::claim::Claim;
use crate::claim::CostSource;
use crate::claim::Engine;
use crate::claim::Paper;
use crate::claim::Run;
use crate::claim::RunSpec;
use crate::claim::Status;
use crate::raw_holds::RawHolds;

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
    #[serde(default)]
    setup: RawRun,
    #[serde(default)]
    run: Vec<Spanned<RawRun>>,
    #[serde(default)]
    holds: Vec<Spanned<RawHolds>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRun {
    name: Option<Spanned<String>>,
    machine: Option<Spanned<String>>,
    workload: Option<Spanned<String>>,
    sizes: Option<Spanned<toml::Table>>,
    system: Option<Spanned<String>>,
    params: Option<Spanned<toml::Table>>,
    priorities: Option<Spanned<BTreeMap<String, u32>>>,
    tracker: Option<Spanned<String>>,
    mover: Option<Spanned<String>>,
    seconds: Option<Spanned<f64>>,
    seed: Option<u64>,
    engine: Option<Spanned<String>>,
    page_size: Option<Spanned<String>>,
    spread: Option<bool>,
    free: Option<Spanned<Vec<String>>>,
    divide: Option<Spanned<u32>>,
    costs: Option<Spanned<String>>,
}

/// Text that is there and not blank.
fn text(key: &str, value: &Spanned<String>) -> Checked<String> {
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
        let why = optional("why", self.why.as_ref())?;
        if status != Status::Held && why.is_none() {
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
        Ok(Claim {
            id: id.to_owned(),
            paper: word("paper", &self.paper, &papers)?,
            section: text("section", &self.section)?,
            says: text("says", &self.says)?,
            scaled,
            status,
            why,
            runs,
            holds,
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

impl RawRun {
    /// What this run says, and what the set-up says where the run says nothing.
    fn over(&self, setup: &Self) -> Self {
        macro_rules! pick {
            ($($key:ident),*) => { Self { name: None, $($key: self.$key.clone().or_else(|| setup.$key.clone())),* } };
        }
        pick!(
            machine, workload, sizes, system, params, priorities, tracker, mover, seconds, seed,
            engine, page_size, spread, free, divide, costs
        )
    }

    fn check(&self, start: usize) -> Checked<RunSpec> {
        let engines = [("rate", Engine::Rate), ("exact", Engine::Exact)];
        let costs = [("papers", CostSource::Papers), ("lab", CostSource::Lab)];
        let pages = [("4KiB", 4 << 10), ("2MiB", 2 << 20), ("1GiB", 1 << 30)];
        Ok(RunSpec {
            machine: required("machine", self.machine.as_ref(), start)?,
            workload: required("workload", self.workload.as_ref(), start)?,
            sizes: table(self.sizes.as_ref()),
            system: required("system", self.system.as_ref(), start)?,
            params: table(self.params.as_ref()),
            priorities: table(self.priorities.as_ref()),
            trackers: named(self.tracker.as_ref(), |names| {
                names.split(',').map(|name| name.trim().parse()).collect()
            })?
            .unwrap_or_else(|| vec![TrackerKind::Auto]),
            mover: named(self.mover.as_ref(), str::parse)?.unwrap_or(Mover::Auto),
            seconds: self.seconds(start)?,
            seed: self.seed.unwrap_or(1),
            engine: pick(self.engine.as_ref(), "engine", &engines)?,
            page_bytes: pick(self.page_size.as_ref(), "page_size", &pages)?,
            spread: self.spread.unwrap_or(false),
            free: self.free()?,
            divide: self.divide()?,
            costs: pick(self.costs.as_ref(), "costs", &costs)?,
        })
    }

    fn seconds(&self, start: usize) -> Checked<f64> {
        let Some(seconds) = &self.seconds else {
            return fault(start, "the run has no seconds");
        };
        let value = *seconds.get_ref();
        if !value.is_finite() || value <= 0.0 {
            return fault(
                at(seconds),
                format!("seconds is {value}, expected more than 0"),
            );
        }
        Ok(value)
    }

    fn free(&self) -> Checked<Vec<Option<u64>>> {
        let Some(free) = &self.free else {
            return Ok(Vec::new());
        };
        let size = |text: &String| match text.as_str() {
            "" => Ok(None),
            text => match parse_bytes(text) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) => fault(at(free), format!("free: {error}")),
            },
        };
        free.get_ref().iter().map(size).collect()
    }

    fn divide(&self) -> Checked<u32> {
        match &self.divide {
            None => Ok(1),
            Some(divide) if !divide.get_ref().is_power_of_two() => {
                let what = format!("divide is {}, expected a power of two", divide.get_ref());
                fault(at(divide), what)
            }
            Some(divide) => Ok(*divide.get_ref()),
        }
    }
}

fn required(key: &str, value: Option<&Spanned<String>>, start: usize) -> Checked<String> {
    match value {
        Some(value) => text(key, value),
        None => fault(start, format!("the run has no {key}")),
    }
}

/// The first word of the list is the default.
fn pick<T: Copy>(value: Option<&Spanned<String>>, key: &str, words: &[(&str, T)]) -> Checked<T> {
    match value {
        Some(value) => word(key, value, words),
        None => Ok(words[0].1),
    }
}

/// What the names say, where there are any.
fn named<T, E: std::fmt::Display>(
    value: Option<&Spanned<String>>,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Checked<Option<T>> {
    let Some(value) = value else {
        return Ok(None);
    };
    let parsed = parse(value.get_ref().trim());
    parsed
        .map(Some)
        .or_else(|error| fault(at(value), error.to_string()))
}

fn table<T: Clone + Default>(value: Option<&Spanned<T>>) -> T {
    value
        .map(|table| table.get_ref().clone())
        .unwrap_or_default()
}

#[cfg(test)]
#[path = "raw_tests.rs"]
mod tests;
