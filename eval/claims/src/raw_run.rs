// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run as a claim file writes it: keys that may be absent, one table over the other, and the checks.

use std::collections::BTreeMap;

use serde::Deserialize;
use terrace_core::parse_bytes;
use terrace_sim::Mover;
use terrace_sim::TrackerKind;
use toml::Spanned;

use crate::claim::CostSource;
use crate::claim::Engine;
use crate::claim::RunSpec;
use crate::raw::Checked;
use crate::raw::at;
use crate::raw::fault;
use crate::raw::text;
use crate::raw::word;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRun {
    pub(crate) name: Option<Spanned<String>>,
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
    pub(crate) divide: Option<Spanned<u32>>,
    costs: Option<Spanned<String>>,
}

impl RawRun {
    /// What this run says, and what the other says where this says nothing.
    pub(crate) fn over(&self, other: &Self) -> Self {
        macro_rules! pick {
            ($($key:ident),*) => { Self { name: None, $($key: self.$key.clone().or_else(|| other.$key.clone())),* } };
        }
        pick!(
            machine, workload, sizes, system, params, priorities, tracker, mover, seconds, seed,
            engine, page_size, spread, free, divide, costs
        )
    }

    pub(crate) fn check(&self, start: usize) -> Checked<RunSpec> {
        let engines = [("rate", Engine::Rate), ("exact", Engine::Exact)];
        let costs = [
            ("as-it-is", CostSource::AsItIs),
            ("papers", CostSource::Papers),
            ("hardware", CostSource::Hardware),
            ("lab", CostSource::Lab),
        ];
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
