// SPDX-License-Identifier: MIT OR Apache-2.0
//! Wires one run together: trackers, policy engine, movers, the program.
//!
//! One thread waits on everything (tracker, agents, control socket, signals, the program's end) and
//! feeds the engine; a second carries out `move_pages`, which blocks. The supervisor knows Linux
//! and no policy; the policy knows no Linux.
//!
//! * [`options`]: what was asked for; [`host`]: checked. [`session`]: the run itself, a loop for one [`domain`]: its
//!   engine, machine, processes and [`budget`].
//! * [`program`]: starting the program, its end. [`links`]: the agents' connections.
//! * [`machine`]: Linux under the engine. [`tracking`]: the trackers; [`scanner`]: the kernel's scanner;
//!   [`residency`]: what processes have where; [`cpu`]: what Terrace costs.
//! * [`group`]: several programs under one supervisor.
//! * [`control`]: `terrace status`, `pause`, `resume`.

pub mod budget;
pub mod control;
pub mod cpu;
pub mod domain;
mod family;
mod footprint;
pub mod group;
pub mod host;
pub mod links;
pub mod machine;
pub mod options;
mod preload;
pub mod program;
pub mod residency;
pub mod scanner;
pub mod session;
mod signals;
pub mod tracking;
