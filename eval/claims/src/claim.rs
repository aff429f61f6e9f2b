// SPDX-License-Identifier: MIT OR Apache-2.0
//! A checked claim: where it stands, what to run, what must hold, what we found.
//!
//! Units: sizes are bytes, times simulated seconds. A [`RunSpec`] is complete: two runs with equal
//! specifications give equal results, so they are run once ([`crate::plan`]).
//!
//! Names of workloads, systems and metrics are the simulator's; they are not checked here, because
//! an open claim may name what does not exist yet. [`crate::plan`] sorts them.

use std::collections::BTreeMap;
use std::path::Path;
use std::path::PathBuf;

use serde::Deserialize;
use serde::Serialize;
use terrace_sim::Mover;
use terrace_sim::TrackerKind;
use thiserror::Error;
use toml::de::DeTable;
use toml::de::Deserializer;

use crate::family;
use crate::raw::Fault;
use crate::raw::RawClaim;
use crate::raw::line_of;
use crate::reason::Cause;
use crate::reason::Counterfactual;
use crate::reason::Reason;
use crate::relation::Relation;

/// A claim of a paper, as a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// Its file's path below the claims' folder, without `.toml`, and the name of its case.
    pub id: String,
    /// Who claims it.
    pub paper: Paper,
    /// Where, as the paper counts: "4.1, figure 7 (a)".
    pub section: String,
    /// What, in one sentence of ours with the paper's figure.
    pub says: String,
    /// How our set-up is smaller than the paper's, or differs; `None` if it is the paper's.
    pub scaled: Option<String>,
    /// What we found.
    pub status: Status,
    /// For [`Status::Open`] what is missing, for [`Status::Refuted`] what we think is the reason.
    pub why: Option<Reason>,
    /// Whose doing that is, where a run shows it. Only of a refuted claim, together with the next.
    pub cause: Option<Cause>,
    /// What shows it: under this all relations hold.
    pub counterfactual: Option<Counterfactual>,
    /// The runs, in the file's order.
    pub runs: Vec<Run>,
    /// All must hold.
    pub holds: Vec<Relation>,
}

/// The papers, in the order of the project's list of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Paper {
    /// Ren et al., EuroSys '24.
    Mtm,
    /// Qi et al., EuroSys '25.
    Chrono,
    /// Raybuck et al., SOSP '21.
    Hemem,
    /// Kim et al., ATC '21.
    Autotiering,
    /// Xiang et al., OSDI '24.
    Nomad,
}

impl Paper {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Mtm,
        Self::Chrono,
        Self::Hemem,
        Self::Autotiering,
        Self::Nomad,
    ];

    /// As claim files and `--paper` write it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Mtm => "mtm",
            Self::Chrono => "chrono",
            Self::Hemem => "hemem",
            Self::Autotiering => "autotiering",
            Self::Nomad => "nomad",
        }
    }

    /// As a reader knows it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Mtm => "MTM (EuroSys '24)",
            Self::Chrono => "Chrono (EuroSys '25)",
            Self::Hemem => "HeMem (SOSP '21)",
            Self::Autotiering => "AutoTiering (ATC '21)",
            Self::Nomad => "Nomad (OSDI '24)",
        }
    }

    /// The paper of that key.
    #[must_use]
    pub fn by_key(key: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|paper| paper.key() == key)
    }
}

/// What we found when we ran it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It held, and must go on holding.
    Held,
    /// It cannot be run yet.
    Open,
    /// It did not hold, and the claim says why we think so.
    Refuted,
}

impl Status {
    /// As claim files write it.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Open => "open",
            Self::Refuted => "refuted",
        }
    }
}

/// A run with the name that the claim's relations use.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Unique in the claim.
    pub name: String,
    /// Line of the file on which it starts.
    pub line: usize,
    /// What runs.
    pub spec: RunSpec,
}

/// Everything that decides a run's result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSpec {
    /// Machine file, below the folder that holds the claims' folder.
    pub machine: String,
    /// Workload by name.
    pub workload: String,
    /// The workload's sizes; the paper's where absent.
    pub sizes: toml::Table,
    /// Policy preset or baseline by name.
    pub system: String,
    /// The policy's parameters.
    pub params: toml::Table,
    /// Priorities of programs of the workload, by name (HeMem 5.2.2).
    pub priorities: BTreeMap<String, u32>,
    /// Where a preset learns of accesses: all of these together.
    pub trackers: Vec<TrackerKind>,
    /// Who moves a preset's pages.
    pub mover: Mover,
    /// Simulated time.
    pub seconds: f64,
    /// Of all randomness.
    pub seed: u64,
    /// How accesses are played.
    pub engine: Engine,
    /// Page size of the programs' mappings: 4 KiB, 2 MiB or 1 GiB.
    pub page_bytes: u64,
    /// Programs run on the sockets in turn, else all on the first.
    pub spread: bool,
    /// Bytes that the programs may use of each node, by number; `None`: what the machine has.
    pub free: Vec<Option<u64>>,
    /// All sizes (nodes, caches, free memory, workload) are divided by this power of two.
    pub divide: u32,
    /// Where the costs of kernel and processor work come from.
    pub costs: CostSource,
}

impl RunSpec {
    /// Equal keys mean equal runs.
    ///
    /// # Panics
    ///
    /// Never: the parts are plain data.
    #[must_use]
    pub fn key(&self) -> String {
        serde_json::to_string(self).expect("tables with text keys and numbers have a JSON form")
    }
}

/// How accesses are played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// Every one.
    Exact,
    /// Pages carry rates.
    Rate,
}

/// Where the costs come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CostSource {
    /// By where the run's system decides: in the kernel, or as Terrace's preset.
    AsItIs,
    /// The papers' systems.
    Papers,
    /// Terrace in user space.
    Hardware,
    /// The lab's calibration.
    Lab,
}

/// Why a claim file was refused.
#[derive(Debug, Error)]
#[error("{}:{line}: {what}", path.display())]
pub struct ClaimError {
    /// The file.
    pub path: PathBuf,
    /// The mistake's line, from 1.
    pub line: usize,
    /// The mistake.
    pub what: String,
}

impl Claim {
    /// Reads a file's text: its claim, or one for each case. `id` is what its place in the claims' folder says,
    /// `path` is only named in errors.
    ///
    /// # Errors
    ///
    /// [`ClaimError`] with the line of the first mistake.
    pub fn parse(text: &str, id: &str, path: &Path) -> Result<Vec<Self>, ClaimError> {
        Self::read(text, id).map_err(|Fault { at, what }| ClaimError {
            path: path.to_owned(),
            line: line_of(text, at),
            what,
        })
    }

    fn read(text: &str, id: &str) -> Result<Vec<Self>, Fault> {
        let misread = |error: toml::de::Error| Fault {
            at: error.span().map_or(0, |span| span.start),
            what: error.message().to_owned(),
        };
        let file = DeTable::parse(text).map_err(misread)?;
        let members = family::members(file)?.into_iter();
        let claims = members.map(|(case, keys)| {
            let raw = RawClaim::deserialize(Deserializer::from(keys)).map_err(misread)?;
            let of_case = |case: &String| format!(" (case '{case}')");
            let mut claim = raw.check(id, text).map_err(|fault| Fault {
                what: fault.what + &case.as_ref().map(of_case).unwrap_or_default(),
                ..fault
            })?;
            if let Some(case) = case {
                claim.id = format!("{id}-{case}");
            }
            Ok(claim)
        });
        claims.collect()
    }

    /// Its runs and those that show its cause.
    pub fn all_runs(&self) -> impl Iterator<Item = &Run> {
        let changed = self.counterfactual.iter().flat_map(|other| &other.runs);
        self.runs.iter().chain(changed)
    }

    /// The run of that name.
    #[must_use]
    pub fn run(&self, name: &str) -> Option<&Run> {
        self.runs.iter().find(|run| run.name == name)
    }
}
