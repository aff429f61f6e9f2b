// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

terrace_core::figures! {
    pub(super) struct Figures {
        /// Hint faults on pages that a faster tier is there for.
        hint_faults_slow: u64 as Count,
        /// Pages in the promotion candidate queue (PCQ).
        candidates: u64 as Count,
        /// Candidates that were not accessed again in a whole pass.
        candidates_cold: u64 as Count,
        /// Pages that the candidate queue turned away because it was full.
        candidates_dropped: u64 as Count,
        /// Candidates that were seen accessed again and went to the migration pending queue (3.1).
        referenced_twice: u64 as Count,
        /// Pages in the migration pending queue (MPQ).
        pending: u64 as Count,
        /// Pages that the pending queue turned away because it was full.
        pending_dropped: u64 as Count,
        /// Promotions that were tried again, after an abort or a refusal.
        retries: u64 as Count,
        /// Pages given up after too many tries.
        given_up: u64 as Count,
        /// Base pages on active lists.
        active: u64 as Count,
        /// Base pages on inactive lists.
        inactive: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}
