// SPDX-License-Identifier: MIT OR Apache-2.0
//! Workloads under systems, side by side: one boot for each pair, one table.
//!
//! [`matrix`] runs on the host: it boots the machine with `terrace-lab scenario` as the guest's
//! command, one [`one_run`] after the other, and writes the results after each. [`scenario`] is that
//! command: it starts the workload under the system, steers both and prints [`record::GuestLine`]s.
//! A [`case::Case`] is what they run on. [`analysis`] makes the figures out of a run's time series; [`table`] and [`page`] show them.
//!
//! All systems see the same: a workload's sizes come from what was free on the fast node in its
//! first run, its memory is filled and put in place before any system may act, and the clock starts
//! when the system does.

pub mod analysis;
pub mod case;
mod client;
pub mod damon;
mod guest_output;
mod heartbeat;
mod host_load;
pub mod matrix;
pub(crate) mod one_run;
mod pace;
pub mod page;
pub mod record;
pub mod redis;
mod resp;
pub mod scenario;
pub mod setup;
mod system_control;
pub mod table;
pub mod verdict;
