// SPDX-License-Identifier: MIT OR Apache-2.0
//! How the agent comes into the program, lives in it unseen, and goes.

pub(crate) mod descriptors;
pub(crate) mod door;
pub(crate) mod entry;
pub(crate) mod fork;
pub(crate) mod fork_child;
pub(crate) mod handler;
pub(crate) mod heap;
pub(crate) mod interpose;
pub(crate) mod privileges;
pub(crate) mod program;
pub(crate) mod switches;
pub(crate) mod thread;
pub(crate) mod threads;
pub(crate) mod tls;
