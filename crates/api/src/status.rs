// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `terrace status` shows and `terrace run --stats` writes, and its JSON schema.
//!
//! The form has a version. It is raised when a name goes or changes its meaning; a name that is added does not raise
//! it, so a reader takes names that it does not know, and figures that are missing as 0.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use serde::Deserializer;
use serde::Serialize;
use serde::de::Error;
use terrace_policy::Stats;

/// The version of the form that this crate writes and reads.
pub const SCHEMA_VERSION: u32 = 2;

/// A run: who is managed, what memory there is, all figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of this form.
    #[serde(deserialize_with = "known_version")]
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    /// Process id of the supervisor.
    pub supervisor_pid: u32,
    /// Preset name.
    pub policy: String,
    /// Kept from acting.
    pub paused: bool,
    /// Seconds since the start.
    pub seconds: f64,
    /// The managed processes.
    pub processes: Vec<ProcessStatus>,
    /// Free and total bytes by node.
    pub nodes: Vec<NodeStatus>,
    /// The figures of the run.
    pub stats: Stats,
    /// The policy's own, by name; docs/status.md says what each is.
    pub policy_counters: BTreeMap<String, u64>,
    /// Where accesses are learnt from, if the policy looks at any.
    #[serde(default)]
    pub trackers: Vec<TrackerStatus>,
    /// Why something does not work as asked, if so.
    pub limits: Vec<String>,
}

/// A tracker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TrackerStatus {
    /// Its name, as on the command line.
    pub name: String,
    /// Its own figures, by name; docs/status.md says what each is.
    pub counters: BTreeMap<String, u64>,
}

/// A managed process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Whether it has an agent that can do transactions.
    pub agent: bool,
    /// Name of the program.
    pub name: String,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeStatus {
    /// The kernel's number.
    pub node: u16,
    /// 0 is the fastest.
    pub tier: u16,
    /// Not allocated, bytes.
    pub free_bytes: u64,
    /// Page cache that the kernel would give back at once, bytes: room, too.
    #[serde(default)]
    pub cache_bytes: u64,
    /// All of it, bytes.
    pub total_bytes: u64,
}

/// The JSON schema of [`Status`]; each figure has its unit.
///
/// # Panics
///
/// Never, unless [`Stats`] is not in the schema of what holds it, which a test would see.
#[must_use]
pub fn schema() -> serde_json::Value {
    let generator = schemars::generate::SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let mut schema = generator.into_root_schema_for::<Status>().to_value();
    let figures = schema.pointer_mut("/$defs/Stats/properties");
    let figures = figures.expect("a status has figures");
    for figure in Stats::FIGURES {
        figures[figure.name]["unit"] = figure.unit.name().into();
    }
    schema
}

/// Read before anything else of a status, so that another version is what an error speaks of.
fn known_version<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        SCHEMA_VERSION => Ok(SCHEMA_VERSION),
        other => Err(D::Error::custom(format_args!(
            "its status has version {other}, this terrace knows {SCHEMA_VERSION}"
        ))),
    }
}
