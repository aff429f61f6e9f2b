// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator against the lab: the same cells (workload, size of the fast tier, system) in both.
//!
//! [`cells`] runs a cell in the emulated machine, or takes what an earlier call kept of it;
//! [`simulated`] makes the same set-up of it for `terrace_sim`, with the lab's costs and with real
//! hardware's; [`judge`] says whether both agree on the order of the systems and on the share of
//! fast accesses; [`table`] shows it.
//!
//! The workload keeps its size while the fast tier's changes, so that a hot set fits, just fits, or
//! fits with much else. Nothing here is adjusted to the cell: the simulator gets the machine file,
//! the free memory that the guest reported, and one file of costs for all.

pub mod cells;
pub mod judge;
pub mod simulated;
pub mod table;
