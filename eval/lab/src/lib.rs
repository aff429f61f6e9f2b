// SPDX-License-Identifier: MIT OR Apache-2.0
//! The emulated tiered machine: boot, measure, compare.
//!
//! [`boot::run`] is the whole of it: a [`boot::Spec`] (machine, kernel, command) goes in, the
//! command runs in a QEMU guest whose memory nodes are as slow as the machine file says, and a
//! [`boot::Outcome`] (exit code, output, access counts over time) comes out. On the host side
//! [`kernel`] finds the guest's kernel, [`initramfs`] packs what it needs to reach the host's
//! files, [`qemu`] writes the command line and [`plugin`] the memory model's options; [`guest`]
//! is what runs as process 1 inside. [`lab_marker`] is how a guest program talks to the memory model.
//!
//! [`compare`] runs workloads under systems, [`validate`] holds the simulator against that,
//! [`trackers`] what trackers say against the truth.
//!
//! What is modelled, and what that distorts, is in `docs/lab.md`.

pub mod boot;
pub mod calibrate;
pub mod compare;
pub mod guest;
pub mod initramfs;
pub mod job;
mod kdamond;
pub mod kernel;
pub mod plugin;
pub mod qemu;
pub mod series;
pub mod trackers;
pub mod validate;

pub use terrace_sys::lab_marker;
