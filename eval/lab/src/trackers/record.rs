// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one tracker came to on one workload at one price.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use serde::Serialize;
use terrace_experiment::RunInfo;

use super::score::Score;

/// A source of what is known of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// The kernel's NUMA hint faults, of all nodes (`numa_balancing=3`).
    HintFaults,
    /// The lab's PMU.
    Pmu,
    /// The kernel's DAMON, with at most so many regions.
    Damon(u32),
    /// Accessed bits.
    AccessedBits,
}

impl Source {
    /// What is compared unless told otherwise. DAMON has as many regions as by default.
    pub const ALL: &str = "hint-faults,pmu,damon-1000,accessed-bits";
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HintFaults => f.pad("hint-faults"),
            Self::Pmu => f.pad("pmu"),
            Self::Damon(regions) => f.pad(&format!("damon-{regions}")),
            Self::AccessedBits => f.pad("accessed-bits"),
        }
    }
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let regions = || {
            text.strip_prefix("damon-")?
                .parse()
                .ok()
                .filter(|n| *n >= 10)
        };
        match text {
            "hint-faults" => Ok(Self::HintFaults),
            "pmu" => Ok(Self::Pmu),
            "accessed-bits" => Ok(Self::AccessedBits),
            _ => regions().map(Self::Damon).ok_or_else(|| {
                format!(
                    "'{text}' is no tracker; there are {}, with any number of DAMON's regions from 10 on",
                    Self::ALL
                )
            }),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}

/// One run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The tracker.
    pub source: Source,
    /// Share of a processor that it was to take, in thousandths.
    pub permille: u32,
    /// How long it watched, s.
    pub seconds: f64,
    /// Its own processor time: what this process took, s.
    pub own_s: f64,
    /// Kernel threads' processor time, s.
    pub kernel_s: f64,
    /// The program's time, as estimated from counts, s.
    pub program_s: f64,
    /// Pages of the program.
    pub pages: usize,
    /// Of those, seen accessed.
    pub seen: usize,
    /// Against the truth; nothing where the tracker could not be had.
    pub score: Option<Score>,
    /// Why it could not.
    pub failed: Option<String>,
    /// What it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Box<RunInfo>>,
}

impl Row {
    /// Share of a processor that it took.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        (self.own_s + self.kernel_s + self.program_s) / self.seconds.max(f64::MIN_POSITIVE)
    }
}

/// A share in thousandths as people write it: "0.5".
#[must_use]
pub fn percent(permille: u32) -> String {
    format!("{}", f64::from(permille) / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_names() {
        for name in Source::ALL.split(',') {
            assert_eq!(name.parse::<Source>().expect("a tracker").to_string(), name);
        }
        for wrong in ["damon", "damon-9", "damon-x", "pebs", ""] {
            let why = wrong.parse::<Source>().expect_err("no tracker");
            assert!(why.contains("accessed-bits"), "{why}");
        }
        assert_eq!(
            (percent(5), percent(10)),
            ("0.5".to_owned(), "1".to_owned())
        );
    }
}
