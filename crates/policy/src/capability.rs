// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a policy needs, or can use, of what is under it; and so what a tracker, a mover or a machine has to offer.
//!
//! A set of few words that both sides share. A preset states its part ([`crate::Preset`]), whoever runs it states
//! the other; what is missing is their difference. Only what somebody serves has a word.

use std::fmt;

use bitflags::bitflags;
use serde::Serialize;
use serde::Serializer;

bitflags! {
    /// See the module.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct Capabilities: u16 {
        /// Hint faults with their idle time, armed as the policy asks for it ([`crate::Action::Scan`]).
        const HINT_FAULTS = 1;
        /// Samples of accesses ([`crate::Event::Sampled`]).
        const SAMPLES = 1 << 1;
        /// Accessed bits of all pages ([`crate::Action::ReadAccessed`], [`crate::Policy::accessed`]).
        const ACCESSED_BITS = 1 << 2;
        /// Mappings as they come and go ([`crate::Event::Mapped`]).
        const MAPPINGS = 1 << 3;
        /// What reads of each node take ([`crate::Event::Latency`]).
        const LATENCIES = 1 << 4;
        /// Pages stay accessible while they are copied, and a write aborts (Nomad 3.1).
        const TRANSACTIONS = 1 << 5;
        /// A promoted page keeps its old frame (Nomad 3.2).
        const SHADOWS = 1 << 6;
        /// Pages stay readable while they are copied, and writers wait (HeMem 3.2).
        const WRITERS_WAIT = 1 << 7;
        /// Promotion in the hint fault, whose access waits for it: the kernel's own tiering. A fault cannot be
        /// held up from user space, so only the simulator has it.
        const PROMOTION_IN_FAULT = 1 << 8;
        /// Two pages of different nodes change places ([`crate::Migration::Exchange`]; AutoTiering 4.1).
        const EXCHANGE = 1 << 9;
        /// Pages stay accessible while they are copied; from the first write on who touches them waits (MTM 7.2).
        const ADAPTIVE_COPY = 1 << 10;
        /// Hint faults of pages that the policy chose ([`crate::Action::Arm`]).
        const CHOSEN_FAULTS = 1 << 11;
    }
}

/// The words for people, in the order of the bits.
const NAMES: [&str; 12] = [
    "hint faults",
    "samples",
    "accessed bits",
    "mappings",
    "latencies",
    "transactions",
    "shadows",
    "writers that wait",
    "promotion in the fault",
    "exchange of pages",
    "copies that turn synchronous",
    "hint faults of chosen pages",
];

impl Capabilities {
    /// What tells of accesses.
    pub const ACCESSES: Self = Self::HINT_FAULTS
        .union(Self::SAMPLES)
        .union(Self::ACCESSED_BITS);
    /// What only code in the program's process can do.
    pub const IN_PROCESS: Self = Self::TRANSACTIONS
        .union(Self::SHADOWS)
        .union(Self::WRITERS_WAIT);

    /// The words of those in it.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let bits = self.bits();
        let named = NAMES.iter().enumerate();
        named.filter_map(move |(bit, name)| (bits >> bit & 1 == 1).then_some(*name))
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        f.write_str(&self.names().collect::<Vec<_>>().join(", "))
    }
}

impl Serialize for Capabilities {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.names())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_word() {
        assert_eq!(Capabilities::all().names().count(), NAMES.len());
        assert_eq!(Capabilities::all().iter().count(), NAMES.len());
        for (one, name) in Capabilities::all().iter().zip(NAMES) {
            assert_eq!(one.to_string(), name);
        }
        let two = Capabilities::SAMPLES | Capabilities::SHADOWS;
        assert_eq!(two.to_string(), "samples, shadows");
        assert_eq!(Capabilities::empty().to_string(), "nothing");
    }
}
