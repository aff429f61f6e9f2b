// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the tracker tells of itself.

terrace_core::figures! {
    pub(crate) struct Figures {
        /// Accesses reported: pages whose accessed bit was set since it was cleared.
        accesses: u64 as Count,
        /// Entries of page tables whose accessed bit was cleared.
        cleared: u64 as Count,
        /// What clearing an entry took.
        clear_ns: u64 as Nanoseconds,
        /// What it costs a program to set a bit again, as measured at the start.
        set_ns: u64 as Nanoseconds,
        /// The longest call that cleared, which held the process's mmap lock for reading.
        longest_clear_us: u64 as Microseconds,
        /// Ranges that could not be cleared.
        refused: u64 as Count,
        /// Entries of page tables that were read.
        read: u64 as Count,
        /// What reading an entry took.
        read_ps: u64 as Picoseconds,
        /// Passes that were put off because the kernel swaps the process out.
        swapping: u64 as Count,
        /// Passes that were left out: of memory that is bound to nodes (numactl) or mostly shared with other processes, or of a virtual machine.
        left_alone: u64 as Count,
    }
}
