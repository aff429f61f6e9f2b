// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tracker tells of itself.

terrace_core::figures! {
    pub(crate) struct Figures {
        /// One sample in so many misses.
        period: u64 as Count,
        /// Samples read; seen = reported + foreign.
        seen: u64 as Count,
        /// Samples of tracked processes.
        reported: u64 as Count,
        /// Samples of other processes, or of one that was not yet known.
        foreign: u64 as Count,
        /// Page-table roots that a process claimed.
        enrolled: u64 as Count,
        /// Checks against the page map that confirmed a sample.
        checks_confirmed: u64 as Count,
        /// Checks that found another page there: it moved meanwhile, or the enrolment is wrong.
        checks_mismatched: u64 as Count,
        /// Checks that found nothing there.
        checks_unclear: u64 as Count,
        /// Misses that the samples were taken of, by all processes.
        misses: u64 as Count,
        /// Samples lost for lack of room.
        lost: u64 as Count,
        /// Samples that did not match their place in the ring.
        torn: u64 as Count,
        /// Samples not taken because of the rate limit.
        throttled: u64 as Count,
    }
}
