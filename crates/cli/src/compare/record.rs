// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finished run as plain data.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use terrace_sim::Outcome;
use terrace_sys::atomic_write::replace;

/// What was run, in the user's words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) machine: String,
    pub(crate) workload: String,
    /// Bytes of the fastest node, if given.
    pub(crate) fast_free: Option<u64>,
    pub(crate) page_size: String,
    pub(crate) policy: String,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
}

impl Spec {
    /// Everything but the policy: what systems are compared on.
    pub(crate) fn group(&self) -> (&str, &str, Option<u64>, &str) {
        (
            &self.machine,
            &self.workload,
            self.fast_free,
            &self.page_size,
        )
    }
}

/// A second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) t: f64,
    pub(crate) ops_per_s: f64,
    pub(crate) fast_access_ratio: f64,
    pub(crate) promoted_pages: u64,
    pub(crate) demoted_pages: u64,
}

/// A finished run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    #[serde(flatten)]
    pub(crate) spec: Spec,
    /// Those of [`Outcome::METRICS`] that were measured.
    pub(crate) metrics: BTreeMap<String, f64>,
    pub(crate) series: Vec<Point>,
}

impl Record {
    pub(crate) fn new(spec: Spec, outcome: &Outcome) -> Self {
        let metric = |(name, _): &(&str, &str)| Some(((*name).to_owned(), outcome.metric(name)?));
        let point = |point: &terrace_sim::outcome::Point| Point {
            t: point.t,
            ops_per_s: point.ops_per_s,
            fast_access_ratio: point.fast_access_ratio,
            promoted_pages: point.promoted_pages,
            demoted_pages: point.demoted_pages,
        };
        Self {
            spec,
            metrics: Outcome::METRICS.iter().filter_map(metric).collect(),
            series: outcome.series.iter().map(point).collect(),
        }
    }

    pub(crate) fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.get(name).copied()
    }
}

/// Writes a file so that it is there whole or as it was.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(path, bytes).with_context(|| format!("Cannot write {}", path.display()))
}
