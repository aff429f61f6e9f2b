// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the workloads of `terrace-workload` natively: real memory, real nodes, real time.
//!
//! [`run::Run::prepare`] fills the memory of one program with the placement asked for, without leaving
//! a memory policy behind; [`run::Run::visit_and_check`] visits it for a time and then reads all of it
//! back. A workload of several programs is a [`group::Group`] of processes. The lines reported are those
//! of [`terrace_workload::report`]. The binary `terrace-bench` prints them and talks to the emulated
//! machine; `terrace bench` hands over to it.
//!
//! What runs is the access pattern of a workload, drawn from its definition: `bfs` visits the pages
//! that a breadth-first search would, as often, and searches no graph.

mod arena;
pub mod args;
pub mod fill;
pub mod group;
pub mod oracle;
pub mod placement;
pub mod primitives;
pub mod run;
pub mod sockets;
mod think;
mod work;

pub use terrace_sys::lab_marker;
