// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

terrace_core::figures! {
    pub(super) struct Figures {
        /// Hint faults on pages for which the accessing processor has a better node.
        demands: u64 as Count,
        /// Migrations to the best node, which had free memory.
        to_best: u64 as Count,
        /// Promotions to the next best node of fast memory instead (figures 5a and 5b).
        to_other_fast: u64 as Count,
        /// Migrations to a nearer slow node instead (figure 5b).
        to_nearer_slow: u64 as Count,
        /// Demands for which no better node had free memory, and that nothing else answered.
        unanswered: u64 as Count,
        /// Pages that wait for a partner to change places with (figure 5c).
        deferred: u64 as Count,
        /// Exchanges of two pages of the same tier (4.1).
        exchanges_in_tier: u64 as Count,
        /// Exchanges of a demotion and a promotion (4.2).
        exchanges_of_tiers: u64 as Count,
        /// Demotions that a promotion waits for (4.2).
        demotions_for_promotion: u64 as Count,
        /// Demotions in the background (4.3).
        demotions_in_background: u64 as Count,
        /// Promotions that took a reserved page (4.3).
        from_reserve: u64 as Count,
        /// Promotions that found no page in reserve.
        reserve_empty: u64 as Count,
        /// Demands whose page is not accessed more than the least accessed one of the best node (4.2).
        not_more_accessed: u64 as Count,
        /// Fast pages of 4 KiB in reserve.
        reserved_pages: u64 as Count,
        /// Fast pages of 2 MiB in reserve.
        reserved_huge_pages: u64 as Count,
        /// Base pages of fast memory that were accessed in at least seven of the last eight rounds (figure 11).
        hot_fast: u64 as Count,
        /// Such base pages in all.
        hot: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}
