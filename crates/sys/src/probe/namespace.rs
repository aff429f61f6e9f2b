// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether process ids here are the ones the kernel reports to BPF programs.
//!
//! Contract: namespaces(7). The initial namespaces have fixed inode numbers
//! (`include/linux/proc_ns.h`).

use std::fs;
use std::os::unix::fs::MetadataExt;

/// `PROC_PID_INIT_INO`.
const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Whether this process lives in the initial pid namespace; `None` where /proc does not say.
#[must_use]
pub fn in_initial_pid_namespace() -> Option<bool> {
    let namespace = fs::metadata("/proc/self/ns/pid").ok()?;
    Some(namespace.ino() == INITIAL_PID_NAMESPACE)
}
