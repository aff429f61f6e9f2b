// SPDX-License-Identifier: MIT OR Apache-2.0
//! What eBPF lets us see of a stock kernel: hint faults of its own scanner and of chosen pages, and page tables.
//!
//! Hint faults (`bpf/hint_faults.bpf.c`): [`record`] is the wire format and its pure decoder, [`driver`]
//! loads the program and reads the ring, [`coverage`] says what the running kernel has of what the
//! program needs. Those of chosen pages (`bpf/chosen_faults.bpf.c`): [`chosen_faults`]. Page tables (`bpf/accessed_bits.bpf.c`): [`page_tables`]. Memory that a process has
//! placed itself (`bpf/placed_ranges.bpf.c`): [`placed_ranges`]. [`error`] is why they cannot.
//!
//! Times are `CLOCK_MONOTONIC`, the clock of [`terrace_core::Nanos`] in the supervisor. Which scan
//! a fault belongs to is not decided here but in terrace-track.

pub mod chosen_faults;
pub mod coverage;
mod direct_map;
pub mod driver;
pub mod error;
mod iterator;
mod mapped;
mod object;
pub mod page_tables;
pub mod placed_ranges;
pub mod record;

pub use chosen_faults::ChosenFault;
pub use chosen_faults::ChosenFaults;
pub use driver::HintFaults;
pub use driver::HintFaultsConfig;
pub use driver::Lost;
pub use error::HintFaultsError;
pub use error::PageTablesError;
pub use page_tables::Bound;
pub use page_tables::FrameRange;
pub use page_tables::PageTables;
pub use page_tables::RawChunk;
pub use page_tables::Walked;
pub use page_tables::Wanted;
pub use placed_ranges::PlacedRanges;
pub use record::DecodeError;
pub use record::Fault;
pub use record::Record;
pub use record::decode;
