// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a scenario prints in the guest, and what the comparison writes: plain data.

use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::Mutex;
use std::sync::PoisonError;

use serde::Deserialize;
use serde::Serialize;
use terrace_api::Status;
use terrace_chart::Look;
use terrace_experiment::RunInfo;
use terrace_policy::Preset;
use terrace_policy::UNMANAGED;
use terrace_sim::ORACLE;
use terrace_workload::report::Line;

use super::analysis::median;
use super::case::Case;
use super::case::Start;
use super::damon;
use super::damon::Mode;
use super::damon::Tried;
use crate::job::GuestNode;

/// A way to place and move the workload's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum System {
    /// No migration.
    None,
    /// The kernel as distributions set it up on several nodes: `numa_balancing` 1, no demotion.
    Autonuma,
    /// The kernel's own tiering: `numa_balancing` 2 and demotion.
    Kernel,
    /// The kernel's DAMON, its migrating schemes.
    Damon(Mode),
    /// Terrace with the preset of that name, and with parameters where it has some: `autotiering:mode=cpm`.
    Preset(&'static str),
    /// No migration, best static placement from the start.
    Oracle,
}

/// No system has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "Unknown system '{0}'; there are: {list}; a policy may have parameters: POLICY:NAME=VALUE",
    list = SYSTEMS.replace(',', ", ")
)]
pub struct UnknownSystem(String);

/// Between a preset's name and its parameters.
const PARAMETERS: char = ':';

/// What the guest's kernel does is called so.
const KERNEL: &str = "kernel";

/// What it does by default, and what stands for that in the simulator.
pub static AUTONUMA: &Preset = &terrace_policy::presets::linux_nb::PRESET;

/// How the systems' lines are drawn.
#[must_use]
pub fn looks() -> Vec<Look> {
    let mut looks = terrace_experiment::looks();
    looks.push(terrace_experiment::look(KERNEL, MODEL_OF_KERNEL.colour));
    looks.extend(damon::looks());
    looks
}

/// What stands for the guest's kernel in the simulator.
pub static MODEL_OF_KERNEL: &Preset = &terrace_policy::presets::kernel_tiering::PRESET;

impl FromStr for System {
    type Err = UnknownSystem;

    fn from_str(name: &str) -> Result<Self, UnknownSystem> {
        match name {
            _ if name == UNMANAGED.name => Ok(Self::None),
            KERNEL => Ok(Self::Kernel),
            _ if name == AUTONUMA.name => Ok(Self::Autonuma),
            _ if name == ORACLE.name => Ok(Self::Oracle),
            _ if let Ok(mode) = name.parse() => Ok(Self::Damon(mode)),
            _ if is_preset(name) => Ok(Self::Preset(interned(name))),
            _ => Err(UnknownSystem(name.to_owned())),
        }
    }
}

/// Whether there is such a preset, with such parameters. What they may be the preset says when it runs.
fn is_preset(name: &str) -> bool {
    let mut parts = name.split(PARAMETERS);
    let preset = parts.next().and_then(Preset::of);
    let Some(preset) = preset.filter(|preset| preset.in_user_space()) else {
        return false;
    };
    let known = preset.parameters();
    let is = |name: &str| known.iter().any(|listed| listed.parameter.name == name);
    parts.all(|part| part.split_once('=').is_some_and(|(name, _)| is(name)))
}

/// The same name, for as long as the program lives: those that are asked for are few.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let name: &'static str = Box::leak(name.into());
    names.insert(name);
    name
}

impl Serialize for System {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for System {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

/// All systems, as the command line writes them.
pub static SYSTEMS: LazyLock<String> = LazyLock::new(|| {
    let others = [AUTONUMA.name, KERNEL, damon::BEST, damon::AUTO];
    terrace_experiment::presets_and(&others, Preset::in_user_space)
});

/// Those that run where none is asked for: what any kernel of the lab can do, each once.
pub static DEFAULT_SYSTEMS: LazyLock<String> =
    LazyLock::new(|| terrace_experiment::presets_and(&[KERNEL], Preset::in_user_space));

impl System {
    /// As it is written on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => UNMANAGED.name,
            Self::Autonuma => AUTONUMA.name,
            Self::Kernel => KERNEL,
            Self::Damon(mode) => mode.name(),
            Self::Preset(name) => name,
            Self::Oracle => ORACLE.name,
        }
    }

    /// Whether it is one of Terrace's presets.
    #[must_use]
    pub const fn is_terrace(self) -> bool {
        matches!(self, Self::Preset(_))
    }

    /// What its preset is, if it is one.
    #[must_use]
    pub fn preset(self) -> Option<&'static Preset> {
        match self {
            Self::Preset(name) => name.split(PARAMETERS).next().and_then(Preset::of),
            Self::None | Self::Autonuma | Self::Kernel | Self::Damon(_) | Self::Oracle => None,
        }
    }

    /// What it is called without parameters of its own.
    #[must_use]
    pub fn policy(self) -> &'static str {
        self.preset().map_or(self.name(), |preset| preset.name)
    }

    /// The parameters of its own that its preset has, `name=value`.
    pub fn parameters(self) -> impl Iterator<Item = &'static str> {
        let name = match self {
            Self::Preset(name) => name,
            Self::None | Self::Autonuma | Self::Kernel | Self::Damon(_) | Self::Oracle => "",
        };
        name.split(PARAMETERS).skip(1)
    }
}

/// A line on the scenario's standard output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestLine {
    /// The free fast memory, in bytes, that the workload's sizes were made from.
    Sized(u64),
    /// The server is there and waits for its load.
    Load(Load),
    /// The load has done its part and must end.
    EndLoad,
    /// From the workload.
    Workload(Line),
    /// What the system did.
    Moves(Moves),
    /// All that Terrace counted, as `terrace run --stats` wrote it.
    Terrace(Box<Status>),
    /// Progress, for people.
    Note(String),
    /// The run is void, or memory was wrong.
    Failed(String),
    /// The guest's kernel cannot do what the system is.
    Skipped(String),
}

/// The load that a server wants from a client on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Keys of the data set.
    pub keys: u32,
    /// How often a value repeats its letter.
    pub letters: usize,
    /// For how long at most; [`GuestLine::EndLoad`] ends it.
    pub seconds: u64,
}

/// What a system counted over a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moves {
    /// Pages moved to a faster node.
    pub promoted_pages: u64,
    /// Pages moved to a slower node.
    pub demoted_pages: u64,
    /// Transactions that went through.
    pub tpm_committed: u64,
    /// Transactions that a write ended.
    pub tpm_aborted: u64,
    /// Demotions onto a shadow, without a copy.
    pub shadow_hits: u64,
}

/// Bytes written to a node's memory: dirty lines that the cache gave back, by who wrote them last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// By programs.
    pub program_bytes: u64,
    /// By copies: migration and, little here, the kernel's other copies.
    pub copy_bytes: u64,
    /// By the kernel's clearing of pages.
    pub clear_bytes: u64,
}

/// One second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Seconds since the run began.
    pub t: f64,
    /// Operations in the second that ends here.
    pub ops_per_s: f64,
    /// Share of the last-level misses that the fast node served in it.
    pub fast_access_ratio: Option<f64>,
    /// How fast the host's first processor was in it: millions of steps of fixed loops in a second of
    /// processor time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_pace: Option<f64>,
}

/// One of several runs of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// As in [`RunRecord`], and so are the others.
    pub ops_per_s: Option<f64>,
    pub fast_access_ratio: Option<f64>,
    pub host_busy_ratio: Option<f64>,
    pub host_pace: Option<f64>,
    pub failed: Option<String>,
    #[serde(default)]
    pub series: Vec<Point>,
}

impl Repeat {
    /// What is kept of each.
    #[must_use]
    pub fn of(record: &RunRecord) -> Self {
        Self {
            ops_per_s: record.ops_per_s,
            fast_access_ratio: record.fast_access_ratio,
            host_busy_ratio: record.host_busy_ratio,
            host_pace: record.host_pace,
            failed: record.failed.clone(),
            series: record.series.clone(),
        }
    }
}

/// One workload under one system. A figure is absent where the run failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The case as it is written: the workload's name, and the start that was asked for.
    pub workload: String,
    /// The system.
    pub system: System,
    /// Where its pages started, where that was asked for; else as the workload says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Threads that the workload was to have, over all its programs.
    #[serde(default)]
    pub threads: u32,
    /// What it was made with; of several runs, the one that this record is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunInfo>>,
    /// Mean of the last third, idle seconds included; of several runs, the median of theirs.
    pub ops_per_s: Option<f64>,
    /// Accesses served by the fast node, counted by the emulator, last third; of several runs, the median of theirs.
    pub fast_access_ratio: Option<f64>,
    /// Seconds until 90 % of the oracle's `ops_per_s`; absent where it was not reached.
    pub seconds_to_90pct_of_oracle: Option<f64>,
    /// When the accesses changed, seconds since the begin; absent where they do not within the run.
    #[serde(default)]
    pub moved_at: Option<f64>,
    /// Seconds from there until 90 % of the rate just before it are back.
    #[serde(default)]
    pub seconds_to_90pct_after_move: Option<f64>,
    /// What was written to each node during the run.
    #[serde(default)]
    pub written: Vec<Written>,
    /// What the system counted.
    #[serde(flatten)]
    pub moves: Moves,
    /// Why the run does not count; absent where all is well.
    pub failed: Option<String>,
    /// What cannot be, and so is an error of the model; nothing usually.
    #[serde(default)]
    pub model_errors: Vec<String>,
    /// Why there was no run: what the kernel lacks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The rates that were tried, where the system is the fastest of several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Free fast memory, in bytes, that the sizes were made from.
    pub fast_free_bytes: Option<u64>,
    /// The guest's kernel.
    pub kernel: String,
    /// Memory of the guest's nodes before the workload began.
    #[serde(default)]
    pub nodes: Vec<GuestNode>,
    /// Share of the host's processors that others used meanwhile; rates are only good when small.
    pub host_busy_ratio: Option<f64>,
    /// How fast the host's first processor was in the last third, as in [`Point`], the median. Rates of
    /// runs at different paces cannot be compared.
    #[serde(default)]
    pub host_pace: Option<f64>,
    /// All that Terrace counted, as `terrace run --stats` wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terrace: Option<Box<Status>>,
    /// All runs of this pair, in their order, where there were several: but for its rate and its share of fast
    /// accesses, this record is the one in the middle by rate, of two the slower.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repeats: Vec<Repeat>,
    /// The time series.
    pub series: Vec<Point>,
}

impl RunRecord {
    /// A run that came to nothing.
    #[must_use]
    pub fn failed(workload: &str, system: System, why: String) -> Self {
        Self {
            workload: workload.to_owned(),
            system,
            start: workload.parse().ok().and_then(|case: Case| case.start),
            threads: 0,
            run: None,
            ops_per_s: None,
            fast_access_ratio: None,
            seconds_to_90pct_of_oracle: None,
            moved_at: None,
            seconds_to_90pct_after_move: None,
            written: Vec::new(),
            moves: Moves::default(),
            failed: Some(why),
            model_errors: Vec::new(),
            skipped: None,
            tried: Vec::new(),
            fast_free_bytes: None,
            kernel: String::new(),
            nodes: Vec::new(),
            host_busy_ratio: None,
            host_pace: None,
            terrace: None,
            repeats: Vec::new(),
            series: Vec::new(),
        }
    }

    /// A run that the kernel cannot do.
    #[must_use]
    pub fn skipped(workload: &str, system: System, why: String) -> Self {
        Self {
            failed: None,
            skipped: Some(why),
            ..Self::failed(workload, system, String::new())
        }
    }

    /// The rate of each round, in their order; absent where the run had none.
    #[must_use]
    pub fn by_round(&self) -> Vec<Option<f64>> {
        if self.repeats.is_empty() {
            return vec![self.ops_per_s];
        }
        self.repeats.iter().map(|run| run.ops_per_s).collect()
    }

    /// The rates of all runs of this pair, in their order.
    #[must_use]
    pub fn rates(&self) -> Vec<f64> {
        self.by_round().into_iter().flatten().collect()
    }

    /// One record of all runs of a pair; one that failed counts before all that did not.
    #[must_use]
    pub fn of_all(runs: &[Self]) -> Option<Self> {
        let mut by_rate: Vec<&Self> = runs.iter().collect();
        by_rate.sort_by(|a, b| {
            let rate = |run: &Self| run.ops_per_s.unwrap_or(0.0);
            rate(a).total_cmp(&rate(b))
        });
        let failed = runs.iter().find(|run| run.failed.is_some());
        let middle = by_rate.get(runs.len().saturating_sub(1) / 2).copied();
        let mut record = failed.or(middle)?.clone();
        if runs.len() > 1 {
            record.repeats = runs.iter().map(Repeat::of).collect();
        }
        if record.failed.is_none() && record.skipped.is_none() {
            record.ops_per_s = Some(median(record.rates()));
            let shares: Vec<f64> = runs
                .iter()
                .filter_map(|run| run.fast_access_ratio)
                .collect();
            record.fast_access_ratio = (!shares.is_empty()).then(|| median(shares));
        }
        // The first round's only.
        let tried = runs.iter().find(|run| !run.tried.is_empty());
        record.tried = tried.map_or_else(Vec::new, |run| run.tried.clone());
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_a_system_with_a_look() {
        let here = |preset: &&&Preset| preset.in_user_space();
        for preset in terrace_policy::PRESETS.iter().filter(here) {
            let system: System = preset.name.parse().expect("a system");
            assert_eq!(system.name(), preset.name);
            assert!(SYSTEMS.split(',').any(|name| name == preset.name));
            assert!(looks().iter().any(|look| look.name == preset.name));
        }
        assert!("nimad".parse::<System>().is_err());
        let own: System = "autotiering:mode=cpm:scan_period_min=2s"
            .parse()
            .expect("a system");
        assert_eq!(own.preset().map(|preset| preset.name), Some("autotiering"));
        assert!(own.parameters().eq(["mode=cpm", "scan_period_min=2s"]));
        for wrong in ["autotiering:mod=cpm", "autotiering:cpm", "kernel:mode=cpm"] {
            let error = wrong.parse::<System>().expect_err("no such thing");
            assert!(error.to_string().contains(wrong));
        }
        assert!(MODEL_OF_KERNEL.name.parse::<System>().is_err());
        assert_eq!("autonuma".parse(), Ok(System::Autonuma));
        assert!(looks().iter().any(|look| look.name == AUTONUMA.name));
    }

    fn ran(rate: f64) -> RunRecord {
        RunRecord {
            ops_per_s: Some(rate),
            fast_access_ratio: Some(rate / 1000.0),
            failed: None,
            ..RunRecord::failed("gups", System::Preset("nomad"), String::new())
        }
    }

    #[test]
    fn of_several_runs_the_middle_counts_and_all_are_told() {
        let record = RunRecord::of_all(&[ran(100.0), ran(120.0), ran(110.0)]).expect("three");
        assert_eq!(
            (record.ops_per_s, record.fast_access_ratio),
            (Some(110.0), Some(0.11))
        );
        assert_eq!(record.rates(), [100.0, 120.0, 110.0]);
        let record = RunRecord::of_all(&[ran(120.0), ran(100.0)]).expect("two");
        assert_eq!(
            (record.ops_per_s, record.fast_access_ratio),
            (Some(110.0), Some(0.11))
        );
        // Each figure by itself: the shares need not be in the order of the rates.
        let mut runs = [ran(100.0), ran(120.0), ran(110.0)];
        runs[0].fast_access_ratio = Some(0.9);
        let record = RunRecord::of_all(&runs).expect("three");
        assert_eq!(
            (record.ops_per_s, record.fast_access_ratio),
            (Some(110.0), Some(0.12))
        );
        assert_eq!(RunRecord::of_all(&[ran(1.0)]), Some(ran(1.0)));
        assert_eq!(ran(1.0).rates(), [1.0]);
        assert_eq!(RunRecord::of_all(&[]), None);
    }

    #[test]
    fn the_rates_tried_in_the_first_round_are_kept() {
        let mut first = ran(100.0);
        first.tried = vec![Tried {
            sample_ms: damon::RATES[0],
            ops_per_s: Some(100.0),
            fast_access_ratio: None,
            taken: true,
        }];
        let record = RunRecord::of_all(&[first.clone(), ran(80.0), ran(90.0)]).expect("three");
        assert_eq!((record.ops_per_s, record.tried), (Some(90.0), first.tried));
    }

    #[test]
    fn a_run_that_failed_is_never_replaced_by_a_good_one() {
        let failed = || RunRecord::failed("gups", System::None, "Memory is wrong".to_owned());
        for runs in [[failed(), ran(1.0)], [ran(1.0), failed()]] {
            let record = RunRecord::of_all(&runs).expect("two");
            assert_eq!(record.failed.as_deref(), Some("Memory is wrong"));
            assert_eq!((record.ops_per_s, record.repeats.len()), (None, 2));
        }
    }

    #[test]
    fn the_object_has_the_promised_keys() {
        let record = RunRecord::failed("gups", System::Preset("nomad"), "hung".to_owned());
        let value = serde_json::to_value(&record).unwrap();
        for key in [
            "workload",
            "system",
            "ops_per_s",
            "fast_access_ratio",
            "seconds_to_90pct_of_oracle",
            "promoted_pages",
            "demoted_pages",
            "tpm_committed",
            "tpm_aborted",
            "shadow_hits",
            "model_errors",
            "series",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["system"], "nomad");
        assert_eq!(serde_json::from_value::<RunRecord>(value).unwrap(), record);
    }
}
