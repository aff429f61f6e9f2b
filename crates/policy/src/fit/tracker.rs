// SPDX-License-Identifier: MIT OR Apache-2.0
//! The trackers by name, and what each gives.

use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::Capabilities;

/// A tracker by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrackerKind {
    /// The fewest more that give what the policy needs, the first of several that work.
    Auto,
    /// The accessed bits of all pages, through BPF.
    AccessedBits,
    /// The kernel's hint faults, through BPF.
    HintFaults,
    /// The processor's PMU.
    Pmu,
    /// The lab's.
    EmulatedPmu,
}

/// No tracker has that name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("Unknown tracker '{0}'; there are: auto, accessed-bits, hint-faults, pmu, emulated-pmu")]
pub struct UnknownTracker(String);

impl FromStr for TrackerKind {
    type Err = UnknownTracker;

    fn from_str(name: &str) -> Result<Self, UnknownTracker> {
        let all = Self::ALL.into_iter().chain([Self::Auto]);
        let found = all.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownTracker(name.to_owned()))
    }
}

impl TrackerKind {
    /// Those that can be opened, in the order in which they are tried.
    pub const ALL: [Self; 4] = [
        Self::AccessedBits,
        Self::Pmu,
        Self::EmulatedPmu,
        Self::HintFaults,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::AccessedBits => "accessed-bits",
            Self::HintFaults => "hint-faults",
            Self::Pmu => "pmu",
            Self::EmulatedPmu => "emulated-pmu",
        }
    }

    /// What a policy has of it.
    #[must_use]
    pub const fn gives(self) -> Capabilities {
        match self {
            Self::Auto => Capabilities::empty(),
            Self::AccessedBits => Capabilities::ACCESSED_BITS,
            Self::Pmu | Self::EmulatedPmu => Capabilities::SAMPLES,
            Self::HintFaults => Capabilities::HINT_FAULTS,
        }
    }
}

/// Their names, as the command line has them.
#[must_use]
pub fn names(trackers: &[TrackerKind]) -> String {
    let names: Vec<&str> = trackers.iter().map(|tracker| tracker.name()).collect();
    names.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for kind in TrackerKind::ALL.into_iter().chain([TrackerKind::Auto]) {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        let error = "pebs".parse::<TrackerKind>().expect_err("no such");
        assert!(error.to_string().contains("emulated-pmu"), "{error}");
    }
}
