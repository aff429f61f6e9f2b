// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where new memory goes, before anything is migrated: the memory policy that a program is started with.
//!
//! The kernel gives the node of the faulting processor, then the nearest by distance, so local slow memory comes before
//! another socket's DRAM. AutoTiering (3.1) has every DRAM node before any slower one; MTM (9.1, table 4) starts on
//! slow memory, or by first touch. Whoever runs the policy sees to it; the policy does not look at it.

use std::str::FromStr;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstPlacement {
    /// As the program and the system have it.
    #[default]
    AsIs,
    /// On the nearest node that has room, whatever it is made of, also where the workload would start elsewhere.
    FirstTouch,
    /// On the nodes of the fastest tier, the nearest first, then on others.
    FastFirst,
    /// On the nodes of slower tiers, the nearest first, then on the fastest.
    SlowLocal,
}

impl FirstPlacement {
    /// Their names, for who is asked for one.
    pub const NAMES: &'static str = "as-is, first-touch, fast-first or slow-local";
}

impl FromStr for FirstPlacement {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Ok(match name {
            "as-is" => Self::AsIs,
            "first-touch" => Self::FirstTouch,
            "fast-first" => Self::FastFirst,
            "slow-local" => Self::SlowLocal,
            _ => return Err(()),
        })
    }
}
