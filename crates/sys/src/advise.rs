// SPDX-License-Identifier: MIT OR Apache-2.0
//! process_madvise(2) with `MADV_COLD`: clears the accessed bits of another process's pages.
//!
//! Kernel contract (Linux 5.10): for each present page of the ranges that one process alone maps, the
//! accessed bit is cleared and the page goes to the cold end of the kernel's lists; the TLB is flushed
//! of them before the call returns. The mmap lock is held for reading meanwhile, so page faults go on and
//! mmap(2) waits. Locked memory, hugetlb and devices refuse with `EINVAL`. Ranges before the one that
//! fails have been done, and the call says how many bytes that was. Wants `PTRACE_MODE_READ_FSCREDS` and
//! `CAP_SYS_NICE`. A huge page that a range covers in part is split: ranges that end within 2 MiB of
//! a mapping with huge pages are for the caller to avoid.
//!
//! `/proc/PID/clear_refs` with 1 clears them for all of a process, shared and locked memory too, flushes
//! nothing, and holds the mmap lock for writing all the time.

use std::fs;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use rustix::io::Errno;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Pid;
use terrace_core::Range;

use crate::process::PidFd;
use crate::uffd::last_errno;

/// `UIO_MAXIOV`: ranges of one call.
pub const RANGES_MAX: usize = 1024;

/// Splits the huge page that begins there into base pages, where they are: `MADV_COLD` of a part of it does. Whether it could be done is to
/// be seen in the page tables: one that others use at the moment stays whole.
///
/// The kernel gives each of its parts the accessed bit that the whole had (`__split_huge_pmd_locked`, Linux 6.12), which says nothing of them:
/// none has it afterwards.
///
/// # Errors
///
/// As [`cold`].
pub fn split(process: &PidFd, start: Addr) -> Result<(), Errno> {
    let (first, end) = (Addr(start.0 + 4096), Addr(start.0 + CHUNK_BYTES));
    let range = |start, end| Range { start, end };
    cold(process, &[range(start, first), range(first, end)]).map(drop)
}

/// Clears the accessed bits of these ranges; gives how many of the ranges were done, from the first.
///
/// # Errors
///
/// Where the first cannot be done: `EINVAL` for memory of the wrong kind, `ENOMEM` where nothing is mapped,
/// `ESRCH` where the process is gone, `EPERM`.
pub fn cold(process: &PidFd, ranges: &[Range]) -> Result<usize, Errno> {
    let ranges = &ranges[..ranges.len().min(RANGES_MAX)];
    let vectors: Vec<libc::iovec> = ranges
        .iter()
        .map(|range| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(to_usize(range.start.0)),
            iov_len: to_usize(range.bytes()),
        })
        .collect();
    // SAFETY: the vectors outlive the call; the addresses are another process's, and no content changes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process.as_fd().as_raw_fd(),
            vectors.as_ptr(),
            vectors.len(),
            libc::MADV_COLD,
            0,
        )
    };
    let Ok(mut bytes) = u64::try_from(done) else {
        return Err(last_errno());
    };
    let whole = ranges.iter().take_while(|range| {
        let fits = range.bytes() <= bytes;
        bytes = bytes.saturating_sub(range.bytes());
        fits
    });
    Ok(whole.count())
}

/// Clears the accessed bits of all pages of a process, without a flush.
///
/// # Errors
///
/// Where the process is gone or not ours.
pub fn clear_refs(pid: Pid) -> std::io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "1")
}

/// Addresses fit: this crate is for 64 bits.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
