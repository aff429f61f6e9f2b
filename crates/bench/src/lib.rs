// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the workloads of `terrace-workload` natively: real memory, real nodes, real time.
//!
//! [`run::Run::prepare`] fills the memory with the placement asked for, without leaving a memory
//! policy behind; [`run::Run::visit_and_check`] visits it for a time and then reads all of it
//! back. The lines it reports are those of [`terrace_workload::report`]. The binary
//! `terrace-bench` prints them and talks to the emulated machine; `terrace bench` uses the library.

mod arena;
// One source for both ends of the hook; it needs nothing else of the lab.
#[path = "../../../lab/src/mark.rs"]
pub mod mark;
pub mod placement;
pub mod run;
