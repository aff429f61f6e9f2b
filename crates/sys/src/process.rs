// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes: when they started, whether they live, what they cost, and their end.
//!
//! Contract: proc_pid_stat(5) and `pidfd_open(2)` (Linux 5.3). A process id can be used again, so
//! who wants to name a process later keeps its start time too ([`Identity`]).
