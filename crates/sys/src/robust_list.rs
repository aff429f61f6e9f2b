// SPDX-License-Identifier: MIT OR Apache-2.0
//! get_robust_list(2): where a thread keeps its list of robust mutexes.
//!
//! Kernel contract: the head's address as the thread gave it to set_robust_list(2), 0 if it never did;
//! threads of other processes need `PTRACE_MODE_READ_REALCREDS`.

use rustix::io::Errno;

use crate::uffd::last_errno;

/// The address of the head, 0 for none.
///
/// # Errors
///
/// `ESRCH` for a thread that is gone, `EPERM` for one that is not ours to look at.
pub fn head_of(tid: i32) -> Result<u64, Errno> {
    let (mut head, mut len) = (0_u64, 0_u64);
    // SAFETY: the kernel writes one word to each place, and words have 64 bits; both outlive the call.
    let result =
        unsafe { libc::syscall(libc::SYS_get_robust_list, tid, &raw mut head, &raw mut len) };
    if result == 0 {
        Ok(head)
    } else {
        Err(last_errno())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_thread_has_one_and_none_has_a_thread_that_is_not_there() {
        assert_ne!(head_of(0).expect("the calling thread"), 0);
        assert_eq!(head_of(i32::MAX), Err(Errno::SRCH));
    }
}
