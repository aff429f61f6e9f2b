// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory policy of the guest's process 1: `set_mempolicy(2)` and `migrate_pages(2)`, for nodes
//! below 64. Both exist since long before any kernel the lab boots.

use std::io;

const MPOL_DEFAULT: libc::c_long = 0;
const MPOL_PREFERRED: libc::c_long = 1;
/// Bits of the node mask; the kernel takes one less than it is told.
const MASK_BITS: libc::c_long = 65;

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// From now on this process takes memory from `to`, and what it has on `from` moves there.
pub(super) fn leave_node(from: usize, to: usize) -> io::Result<()> {
    if from == to {
        return Ok(());
    }
    let (old, new) = (1u64 << from, 1u64 << to);
    // SAFETY: `new` is a mask of 64 bits that outlives the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            MPOL_PREFERRED,
            &raw const new,
            MASK_BITS,
        )
    })?;
    // SAFETY: both masks outlive the call; process 0 means this one.
    check(unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            0,
            MASK_BITS,
            &raw const old,
            &raw const new,
        )
    })
}

/// The kernel's default policy again. Safe to call between fork and exec.
pub(super) fn default_policy() -> io::Result<()> {
    // SAFETY: no mask is passed.
    check(unsafe { libc::syscall(libc::SYS_set_mempolicy, MPOL_DEFAULT, 0, 0) })
}
