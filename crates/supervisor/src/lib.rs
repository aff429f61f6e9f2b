// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wires one run together: tracker, policy engine, movers, the program.
//!
//! One thread waits on everything (tracker, agents, control socket, signals, the program's end) and
//! feeds the engine; a second carries out `move_pages`, which blocks. The supervisor knows Linux
//! and no policy; the policy knows no Linux.
//!
//! * [`options`]: what was asked for, checked. [`session`]: the run itself.
//! * [`program`]: starting the program, its end. [`links`]: the agents' connections.
//! * [`machine`]: the engine's actions on Linux. [`inventory`], [`memory`], [`cache_room`], [`mappings`]: what is
//!   where;
//!   [`tracking`]: which tracker; [`scanner`]: the kernel's scanner; [`cpu`]: what it costs.
//! * [`group`]: several programs under one supervisor.
//! * [`control`]: `terrace status`, `pause`, `resume`. [`report`]: the statistics for people.

pub mod cache_room;
pub mod control;
pub mod cpu;
mod footprint;
pub mod group;
pub mod inventory;
mod latencies;
pub mod links;
pub mod machine;
pub mod mappings;
pub mod memory;
pub mod options;
pub mod program;
pub mod report;
pub mod scanner;
pub mod session;
mod signals;
pub mod tracking;
