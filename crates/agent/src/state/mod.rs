// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of the program's pages and of the agent's own memory, and the lock around it.

pub(crate) mod addresses;
pub(crate) mod agent;
mod area;
pub(crate) mod events;
pub(crate) mod extents;
pub(crate) mod frames;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod pages;
pub(crate) mod pending_drops;
pub(crate) mod pieces;
pub(crate) mod ranges;
pub(crate) mod shadows;
