// SPDX-License-Identifier: MIT OR Apache-2.0
//! What systems are compared on: a workload, where its pages are before they may act, and how many threads it has. Pure.
//!
//! A case is written `gups`, `gups:slow` or `gups:full`. Without a start the workload's own counts: most of the
//! small sizes begin on the slow node.

use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;
use serde::Serialize;
use terrace_machine_spec::Machine;
use terrace_workload::Sizes;
use terrace_workload::Workload;
use terrace_workload::WorkloadError;

use super::scenario::REDIS;

/// Where all pages are before the system may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// All on the slow node: every hot page is to be found and moved.
    Slow,
    /// Where first touch puts them: on the fast node until it is full, whatever they are worth.
    Full,
}

impl Start {
    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Full => "full",
        }
    }

    /// For `terrace-bench --place`.
    #[must_use]
    pub const fn place(self) -> &'static str {
        match self {
            Self::Slow => "slow",
            Self::Full => "fast",
        }
    }

    /// For the simulator.
    #[must_use]
    pub const fn of_programs(self) -> terrace_workload::Start {
        match self {
            Self::Slow => terrace_workload::Start::Slow,
            Self::Full => terrace_workload::Start::FirstTouch,
        }
    }
}

/// A workload from a start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Case {
    /// The workload's name.
    pub workload: String,
    /// Where its pages start; as the workload says where absent.
    pub start: Option<Start>,
}

impl Case {
    /// Whether the workload is Redis.
    #[must_use]
    pub fn is_redis(&self) -> bool {
        self.workload == REDIS
    }

    /// The same from each of the starts; as it is where it names its own, or where there are none.
    #[must_use]
    pub fn from_each(self, starts: &[Start]) -> Vec<Self> {
        if self.start.is_some() || starts.is_empty() {
            return vec![self];
        }
        let from = |&start| Self {
            start: Some(start),
            ..self.clone()
        };
        starts.iter().map(from).collect()
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.start {
            None => write!(f, "{}", self.workload),
            Some(start) => write!(f, "{}:{}", self.workload, start.name()),
        }
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, start) = match text.split_once(':') {
            None => (text, None),
            Some((name, start)) => {
                let known = Start::from_str(start, false);
                let known = known.map_err(|_| format!("no start '{start}'; give slow or full"))?;
                (name, Some(known))
            }
        };
        if name != REDIS && !terrace_workload::NAMES.contains(&name) {
            let names = terrace_workload::NAMES.join(", ");
            return Err(format!(
                "no such workload '{name}'; there are {REDIS}, {names}"
            ));
        }
        Ok(Self {
            workload: name.to_owned(),
            start,
        })
    }
}

impl Serialize for Case {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Case {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The processors of an emulated machine: so many threads leave none for a supervisor or an agent.
#[must_use]
pub fn processors(machine: &Machine) -> u32 {
    let sockets = u32::try_from(machine.sockets.len()).unwrap_or(u32::MAX);
    machine
        .lab
        .map_or(1, |lab| lab.cpus)
        .saturating_mul(sockets)
}

/// The workload's settings for that many threads in all: each program has its share of them, at least one. Nothing
/// where the workload does not take a number of threads, as the server and `mix`, whose programs are several anyway.
#[must_use]
pub fn settings(workload: &str, fast_free: u64, threads: u32) -> Vec<String> {
    let plain = Workload::named(workload, &Sizes::fast_free(fast_free));
    let programs = plain.map_or(1, |plain| plain.programs.len());
    let each = threads.div_ceil(u32::try_from(programs.max(1)).unwrap_or(u32::MAX));
    let setting = format!("threads={each}");
    let takes = sized(workload, fast_free, std::slice::from_ref(&setting)).is_ok();
    takes.then_some(setting).into_iter().collect()
}

/// The workload at that scale with these settings.
///
/// # Errors
///
/// Where there is no such workload or setting.
pub fn sized(
    workload: &str,
    fast_free: u64,
    settings: &[String],
) -> Result<Workload, WorkloadError> {
    let sizes = Sizes::fast_free(fast_free);
    let mut settings = settings.iter();
    let sizes = settings.try_fold(sizes, |sizes, setting| sizes.with(setting))?;
    Workload::named(workload, &sizes)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn case(text: &str) -> Result<Case, String> {
        text.parse()
    }

    #[test]
    fn a_case_is_written_as_it_is_read() {
        for text in ["gups", "gups:slow", "redis:full", "nomad-small-read:full"] {
            let read = case(text).unwrap();
            assert_eq!(read.to_string(), text);
            let json = serde_json::to_string(&read).unwrap();
            assert_eq!(json, format!("\"{text}\""));
            assert_eq!(serde_json::from_str::<Case>(&json).unwrap(), read);
        }
        assert_eq!(case("zipf:full").unwrap().start, Some(Start::Full));
        let error = case("gups:empty").unwrap_err();
        assert!(error.contains("'empty'; give slow or full"), "{error}");
        let error = case("gusp:full").unwrap_err();
        assert!(error.contains("'gusp'; there are redis, gups"), "{error}");
    }

    #[test]
    fn starts_apply_to_who_names_none() {
        let from = |text: &str, starts: &[Start]| {
            let all = case(text).unwrap().from_each(starts);
            all.iter().map(Case::to_string).collect::<Vec<_>>()
        };
        let both = [Start::Slow, Start::Full];
        assert_eq!(from("gups", &both), ["gups:slow", "gups:full"]);
        assert_eq!(from("gups:full", &both), ["gups:full"]);
        assert_eq!(from("gups", &[]), ["gups"]);
    }

    #[test]
    fn threads_are_shared_out_among_programs() {
        let settings = |name| settings(name, 100 << 20, 2);
        assert_eq!(settings("gups"), ["threads=2"]);
        assert_eq!(settings("pmbench-groups"), ["threads=1"], "eight programs");
        assert_eq!(settings("mix"), [""; 0]);
        assert_eq!(settings(REDIS), [""; 0]);
        let workload = sized("gups", 100 << 20, &settings("gups")).unwrap();
        assert_eq!(workload.programs[0].threads, 2);
    }

    #[test]
    fn a_machine_has_the_lab_s_processors() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let machine = Machine::load(&root.join("cxl-2tier.toml")).unwrap();
        assert_eq!(processors(&machine), 2, "16 on hardware");
    }
}
