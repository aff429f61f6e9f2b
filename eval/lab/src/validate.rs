// SPDX-License-Identifier: MIT OR Apache-2.0
//! The simulator held against the lab: the same cells in both.
//!
//! [`cells`] runs them in the lab, one at a time, and keeps what came of each; [`simulated`] gives the
//! simulator the same set-up; [`results`] is what is kept of both; [`judge`] says whether they agree, and whether it would
//! have noticed if not; [`table`] shows it.

pub mod cells;
pub mod judge;
pub mod results;
pub mod simulated;
pub mod table;
