// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tracker tells of itself.

terrace_core::figures! {
    pub(crate) struct Figures {
        /// Memory accesses to a sample.
        period: u64 as Count,
        /// How often the period has changed.
        period_changes: u64 as Count,
        /// Samples reported.
        reported: u64 as Count,
        /// Samples that found no room in the PMU, in a ring or in the queue.
        lost: u64 as Count,
        /// How often the kernel throttled the PMU because it interrupted too often.
        throttled: u64 as Count,
        /// Bytes in rings that are no records.
        broken_bytes: u64 as Bytes,
        /// Processor time of the sampling thread.
        thread_ns: u64 as Nanoseconds,
    }
}
