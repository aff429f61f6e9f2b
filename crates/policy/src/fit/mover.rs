// SPDX-License-Identifier: MIT OR Apache-2.0
//! The movers by name, and what each gives.

use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

use crate::Capabilities;
use crate::Preset;

/// Who moves pages (docs/movers.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mover {
    /// The agent where the policy's mechanism is in the program's process, the hint fault where it promotes
    /// there, else `move_pages`.
    Auto,
    /// `move_pages`, from outside.
    MovePages,
    /// The agent, in the program; and `move_pages` for what it cannot handle.
    Agent,
    /// The hint fault promotes and its access waits, as the kernel's own tiering does; the kernel demotes.
    InFault,
    /// Several threads copy beside the program; from the first write on it waits (MTM 7.2).
    AdaptiveCopy,
    /// Several threads copy, and who touches the page waits (Nimble).
    ParallelCopy,
}

/// No mover has that name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "Unknown mover '{0}'; there are: auto, move-pages, agent, and simulated only: in-fault, adaptive-copy, parallel-copy"
)]
pub struct UnknownMover(String);

impl FromStr for Mover {
    type Err = UnknownMover;

    fn from_str(name: &str) -> Result<Self, UnknownMover> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownMover(name.to_owned()))
    }
}

impl Mover {
    /// All names.
    pub const ALL: [Self; 6] = [
        Self::Auto,
        Self::MovePages,
        Self::Agent,
        Self::InFault,
        Self::AdaptiveCopy,
        Self::ParallelCopy,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::MovePages => "move-pages",
            Self::Agent => "agent",
            Self::InFault => "in-fault",
            Self::AdaptiveCopy => "adaptive-copy",
            Self::ParallelCopy => "parallel-copy",
        }
    }

    /// What a policy has of it.
    #[must_use]
    pub const fn gives(self) -> Capabilities {
        match self {
            Self::Auto | Self::MovePages | Self::ParallelCopy => Capabilities::empty(),
            Self::AdaptiveCopy => Capabilities::ADAPTIVE_COPY,
            // Not in `IN_PROCESS`: who would use it does not ask for an agent by that.
            Self::Agent => Capabilities::IN_PROCESS
                .union(Capabilities::EXCHANGE)
                .union(Capabilities::CHOSEN_FAULTS),
            Self::InFault => Capabilities::PROMOTION_IN_FAULT.union(Capabilities::EXCHANGE),
        }
    }

    /// Which one it is for that preset, of those that there are.
    pub(super) fn resolve(self, preset: &Preset, there: &[Self]) -> Self {
        let faults = preset.needs.contains(Capabilities::PROMOTION_IN_FAULT);
        let copies = preset.takes().contains(Capabilities::ADAPTIVE_COPY);
        match self {
            Self::Auto if faults && there.contains(&Self::InFault) => Self::InFault,
            Self::Auto if copies && there.contains(&Self::AdaptiveCopy) => Self::AdaptiveCopy,
            Self::Auto if preset.is_in_process() => Self::Agent,
            Self::Auto => Self::MovePages,
            given => given,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line() {
        for mover in Mover::ALL {
            assert_eq!(mover.name().parse(), Ok(mover));
        }
        let error = "memcpy".parse::<Mover>().expect_err("no such");
        assert!(error.to_string().contains("move-pages"), "{error}");
    }
}
