// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access patterns of the benchmark programs: which page, which lines of it, read or write.
//!
//! A [`Spec`] says what a workload is (its pages, which of them it uses and how often, how many
//! lines a visit touches, where its pages start). A [`Stream`] gives its visits one after the
//! other. The same seed gives the same visits on every machine, so a program can replay its own
//! run to find out what its memory must hold, and the simulator sees what the real program does.
//!
//! Units: a page is 4 KiB and is named by its index in the program's memory, a line is 64 bytes
//! (64 to a page), a word is 8 bytes. [`content`] says what a word holds.
//!
//! Nothing here maps memory, reads a clock or starts a thread: the native runner is
//! `terrace-bench`.
#![forbid(unsafe_code)]

mod alias;
mod by_rank;
mod choice;
pub mod content;
mod graph;
mod gups;
mod kronecker;
mod micro;
mod mix;
mod names;
mod nomad;
mod normal;
mod nurand;
mod pmbench;
pub mod report;
mod shares;
mod sizes;
mod spec;
mod spread;
mod stream;
mod tpcc;
mod visits;
mod workload;
mod ycsb;
mod zipf;

pub use alias::AliasTable;
pub use choice::Choice;
pub use names::About;
pub use names::NAMES;
pub use names::WORKLOADS;
pub use shares::Piece;
pub use shares::Shares;
pub use sizes::Scale;
pub use sizes::Sizes;
pub use spec::Spec;
pub use spec::SpecError;
pub use stream::Stream;
pub use visits::Visit;
pub use visits::Visits;
pub use workload::DRAW_NS;
pub use workload::Part;
pub use workload::Phase;
pub use workload::Program;
pub use workload::Start;
pub use workload::Workload;
pub use workload::WorkloadError;
pub use ycsb::YCSB_THETA;

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Cache lines of a page.
pub const LINES_PER_PAGE: u8 = 64;
/// Words of a page.
pub const WORDS_PER_PAGE: u64 = PAGE_BYTES / 8;
