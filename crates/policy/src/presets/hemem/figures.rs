// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

terrace_core::figures! {
    pub(super) struct Figures {
        /// Memory of the ranges that are managed.
        managed_bytes: u64 as Bytes,
        /// Size from which a range is managed; smaller ones stay where they are (3.3).
        managed_threshold: u64 as Bytes,
        /// Samples of accesses to the fast tier.
        samples_fast: u64 as Count,
        /// Samples of accesses to slower tiers.
        samples_slow: u64 as Count,
        /// Samples outside the managed ranges.
        samples_unmanaged: u64 as Count,
        /// Samples of stores.
        samples_stores: u64 as Count,
        /// How often the cooling clock advanced.
        coolings: u64 as Count,
        /// Pages in the hot list of the fast tier.
        fast_hot: u64 as Count,
        /// Pages in the cold list of the fast tier.
        fast_cold: u64 as Count,
        /// Pages in the hot list of slower tiers.
        slow_hot: u64 as Count,
        /// Pages of programs with priority that are not on the fast tier yet.
        slow_priority: u64 as Count,
        /// Promotions for which a colder page made room.
        swaps: u64 as Count,
        /// Promotions of write-heavy pages.
        promoted_write_heavy: u64 as Count,
        /// Cold pages demoted to keep the reserve free.
        demoted_for_reserve: u64 as Count,
        /// Pages demoted to keep the reserve free when none was cold.
        demoted_arbitrary: u64 as Count,
        /// Ticks that ended because no cold page could make room.
        ticks_without_cold: u64 as Count,
        /// Ticks that ended because no page that could make room was colder by enough.
        ticks_without_colder: u64 as Count,
        /// Pages given up after too many tries.
        given_up: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}
