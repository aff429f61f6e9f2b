// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the preset tells of itself.

terrace_core::figures! {
    pub(super) struct Figures {
        /// Passes that ended with a plan.
        passes: u64 as Count,
        /// Base pages in the last plan.
        pages: u64 as Count,
        /// What the moves of the last plan gain by its estimate.
        value_possible_us: u64 as Microseconds,
        /// What moving a base page takes.
        move_ns: u64 as Nanoseconds,
        /// What an access to the fast tier saves.
        saved_ns: u64 as Nanoseconds,
        /// Pages of the fast tier that made room for better ones, as planned.
        swaps: u64 as Count,
        /// Pages promoted within a pass, before its plan.
        early: u64 as Count,
        /// How often the pass was made longer.
        rests: u64 as Count,
        /// How often a process was much worse predicted than before, and learnt anew.
        surprises: u64 as Count,
        /// Length of a pass.
        pass_ms: u64 as Milliseconds,
        /// The first wait after clearing, which the others double.
        shortest_us: u64 as Microseconds,
        /// Of how many chunks of memory a pass reads one; all are read once in the longest pass.
        parts: u64 as Count,
        /// Migrations under way.
        moving: u64 as Count,
        /// Memory that the policy takes for what it knows of pages.
        metadata_bytes: u64 as Bytes,
    }
}
