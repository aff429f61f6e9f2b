// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every kernel interface Terrace uses, one file each.
//!
//! A file opens with the contract of its interface: man page, first kernel, permission, alignment,
//! partial results. What the kernel may refuse in normal operation is a value; an error is a bug
//! or a missing permission. Nothing here decides anything, keeps a thread, or writes a log.

pub mod advise;
pub mod affinity;
pub mod arena;
pub mod atomic_write;
pub mod cgroup;
pub mod clock;
pub mod eventfd;
pub mod frames;
pub mod inherited;
pub mod ivshmem;
pub mod job_control;
pub mod lab_marker;
pub mod latency;
pub mod memory_blocks;
pub mod mempolicy;
pub mod move_pages;
pub mod own_memory;
pub mod pagemap;
pub mod perf;
pub mod probe;
pub mod process;
pub mod procmaps;
pub mod ringer;
pub mod robust_list;
pub mod self_memory;
pub mod set_again;
pub mod settings;
pub mod shm;
pub mod spare_memory;
pub mod topology;
pub mod uffd;
pub mod unix_channel;
pub mod walk;
pub mod zones;
