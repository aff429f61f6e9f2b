// SPDX-License-Identifier: MIT OR Apache-2.0
//! How pages change their node.
//!
//! * [`agent`]: by transactions, carried out by the agent inside the program (Nomad's TPM, shadows,
//!   exchange); the supervisor's end of the connection.
//! * [`move_pages`]: by `move_pages(2)`, for programs without an agent and for memory that
//!   transactions cannot handle.
//!
//! Neither decides anything: they take orders and report each order's end exactly once.

pub mod agent;
pub mod greeting;
pub mod move_pages;
