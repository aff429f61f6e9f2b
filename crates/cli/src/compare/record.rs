// SPDX-License-Identifier: MIT OR Apache-2.0
//! A finished run as plain data, and where it is kept: `DIR/runs/<key>.json`.
//!
//! The key is a hash of the whole set-up and of the simulator ([`simulator`]), so that what another one
//! computed is not taken for this one's. A file that is there is whole.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use serde::Deserialize;
use serde::Serialize;
use terrace_sim::Outcome;
use terrace_sys::replace::replace;

use super::matrix::Cell;
use crate::parallel::simulator;

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

/// Where finished runs are.
#[derive(Debug)]
pub(crate) struct Store {
    runs: PathBuf,
}

impl Store {
    /// Makes the directory; the error is one line for the user.
    pub(crate) fn open(out: &Path) -> Result<Self, String> {
        let runs = out.join("runs");
        std::fs::create_dir_all(&runs)
            .map_err(|error| format!("Cannot make {}: {error}", runs.display()))?;
        Ok(Self { runs })
    }

    fn path(&self, cell: &Cell) -> PathBuf {
        // The set-up's `Debug` has every field of it.
        let key = fnv(&format!(
            "{} {:?}",
            simulator(&cell.setup.system),
            cell.setup
        ));
        let spec = &cell.spec;
        let name = format!("{}-{}-{}", spec.machine, spec.workload, spec.policy);
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
        self.runs.join(format!("{name}-{key:016x}.json"))
    }

    /// The run, if it is kept.
    pub(crate) fn get(&self, cell: &Cell) -> Option<Record> {
        let text = std::fs::read_to_string(self.path(cell)).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Keeps a run.
    pub(crate) fn keep(&self, cell: &Cell, record: &Record) -> anyhow::Result<()> {
        let text = serde_json::to_string(record)?;
        write(&self.path(cell), text.as_bytes())
    }
}

/// Writes a file so that it is there whole or as it was.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    replace(path, bytes).with_context(|| format!("Cannot write {}", path.display()))
}

/// FNV-1a, 64 bits: the same in every build.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the function's published test vectors.
        assert_eq!(fnv(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv("foobar"), 0x8594_4171_f739_67e8);
    }
}
