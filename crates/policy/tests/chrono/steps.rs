// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests of whole sequences of events share.
#![allow(dead_code, reason = "each test takes what it needs")]

use terrace_policy::Policy;
use terrace_policy::Verdict;

pub(crate) const MOVED: Verdict = Verdict::Moved { shadow: false };

/// A figure that the policy tells of itself.
pub(crate) fn counter(policy: &dyn Policy, name: &str) -> u64 {
    let found = policy.counters();
    let found = found.iter().find(|(figure, _)| figure.name == name);
    found.expect("it counts that").1
}

/// How an order ends, as luck will.
pub(crate) fn verdict(luck: u8) -> Verdict {
    match luck {
        0..=190 => MOVED,
        191..=220 => Verdict::Busy,
        221..=250 => Verdict::NoMemory,
        _ => Verdict::Lost,
    }
}
