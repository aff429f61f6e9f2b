// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access patterns of the benchmark programs: which page, which lines of it, read or write.
//!
//! A [`Workload`] is what runs: programs, each with phases, each with a mixture of distributions
//! over ranges of pages. There is one definition for native runs, the lab and the simulator:
//! [`Visits`] gives the visits of a program one after the other, [`Phase::shares`] and
//! [`Phase::pieces`] the shares of the visits per page. The same seed gives the same visits on every
//! machine, so a program can replay its own run to find out what its memory must hold, and the
//! simulator sees what the real program does.
//!
//! Units: a page is 4 KiB and is named by its index in the program's memory, a line is 64 bytes
//! (64 to a page), a word is 8 bytes. [`content`] says what a word holds. Small sizes are proportions of
//! the free fast memory ([`Sizes::fast_free`]), others the papers' ([`Sizes::paper`]).
//!
//! | names | file | paper | paper size | small size, of the free fast memory |
//! | --- | --- | --- | --- | --- |
//! | `gups-uniform` | `gups` | HeMem 5.1 | 512 GiB | 2.7 |
//! | `gups`, `gups-moving` | `gups` | HeMem 5.1 | 512 GiB, 16 GiB hot | 2.7, 0.36 hot |
//! | `gups-writeskew` | `gups` | HeMem 5.1 | 512 GiB, 256 GiB hot | 2.7, 1.35 hot |
//! | `zipf` | `micro` | ours | 512 GiB | 2.7 |
//! | `pmbench` | `pmbench` | Chrono 5.1.1 | 50 x 5 GB | 3.9, one process |
//! | `pmbench-groups` | `pmbench` | Chrono 5.1.3 | 50 x 5 GB | 3.9, eight processes |
//! | `memtier` | `memtier` | Chrono 5.3 | 160 GB | 2.5 |
//! | `nomad-small-*` | `nomad` | Nomad 4.1 | 20 GB, 10 GB visited | 3.0, 0.62 visited |
//! | `nomad-small-paper-*` | `nomad` | Nomad 4.1 | 20 GB, 10 GB visited | 1.54, 0.77 visited |
//! | `nomad-medium-*` | `nomad` | Nomad 4.1 | 27 GB, 13.5 GB visited | 2.08, 1.04 visited |
//! | `nomad-large-*` | `nomad` | Nomad 4.1 | 27 GB | 2.08 |
//! | `ycsb-a` to `ycsb-f` | `ycsb` | YCSB, Nomad 4.2 | 24 GB | 1.85 |
//! | `bfs` | `graph` | MTM Table 2 | 2^30 vertices, 140 GiB | near 2.7 |
//! | `bc` | `graph` | HeMem 5.2.3 | 2^29 vertices, 78 GiB | near 2.7 |
//! | `pagerank` | `graph` | Nomad 4.2 | 2^26 vertices, 11 GiB | near 2.7 |
//! | `scan` | `micro` | Nomad Table 3 | 27 GB | 2.08 |
//! | `phases` | `micro` | ours | 512 GiB, 16 GiB hot | 2.7, 0.36 hot |
//! | `drifting`, `alternating` | `restless` | ours | 512 GiB, 16 GiB hot | 2.7, 0.36 hot |
//! | `sparse` | `restless` | ours | 512 GiB | 2.7 |
//! | `tpcc` | `tpcc` | HeMem 5.2.1 | 384 GiB | 2.0 |
//! | `mix` | `mix` | ours | those of its parts | each its part of the memory |
//!
//! The files say what each does, where the paper is silent and what was chosen then;
//! `docs/workloads.md` has their parameters. Nothing here maps memory, reads a clock or starts a
//! thread: the native runner is `terrace-bench`.
#![forbid(unsafe_code)]

mod alias;
mod by_rank;
mod choice;
pub mod content;
mod graph;
mod gups;
mod kronecker;
mod memtier;
mod micro;
mod mix;
mod names;
mod nomad;
mod normal;
mod nurand;
mod pmbench;
pub mod report;
mod restless;
mod shares;
mod sizes;
mod spread;
mod tpcc;
mod visits;
mod workload;
mod ycsb;

pub use alias::AliasTable;
pub use choice::Choice;
pub use names::About;
pub use names::NAMES;
pub use names::WORKLOADS;
pub use shares::Piece;
pub use shares::Shares;
pub use sizes::Scale;
pub use sizes::Sizes;
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
