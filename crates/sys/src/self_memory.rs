// SPDX-License-Identifier: MIT OR Apache-2.0
//! process_vm_readv(2) on this very process: reads memory that may vanish at any time.
//!
//! Kernel contract: copies between the address spaces named by the iovecs and stops at the first
//! page that is not mapped or not readable, instead of the SIGSEGV that a load would be. A page
//! that is missing in a userfaultfd range is waited for like by any other access. Pins pages only
//! while it copies.

use rustix::io::Errno;

/// One piece: from the program's address to ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where to read.
    pub from: u64,
    /// Where to write.
    pub to: u64,
    /// Bytes.
    pub len: u64,
}

/// Most pieces of one call (`UIO_MAXIOV`).
pub const PIECES_MAX: usize = 64;

/// Copies pieces in order; the number of bytes copied, which is short where a page was not
/// readable.
///
/// # Safety
///
/// The destinations must be writable memory that nobody else uses.
///
/// # Errors
///
/// `EFAULT` where not even the first byte was readable, `EPERM` under a filter that forbids it.
pub unsafe fn copy_in(pieces: &[Piece]) -> Result<u64, Errno> {
    let empty = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    let mut local = [empty; PIECES_MAX];
    let mut remote = [empty; PIECES_MAX];
    let count = pieces.len().min(PIECES_MAX);
    for (at, piece) in pieces.iter().take(count).enumerate() {
        local[at] = iovec(piece.to, piece.len);
        remote[at] = iovec(piece.from, piece.len);
    }
    // SAFETY: both arrays have `count` entries and outlive the call; the kernel checks the remote
    // side and the caller answers for the local one. getpid has no preconditions.
    let copied = unsafe {
        libc::process_vm_readv(
            libc::getpid(),
            local.as_ptr(),
            count as libc::c_ulong,
            remote.as_ptr(),
            count as libc::c_ulong,
            0,
        )
    };
    u64::try_from(copied).map_err(|_| crate::uffd::last_errno())
}

fn iovec(addr: u64, len: u64) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(addr).unwrap_or(0)),
        iov_len: usize::try_from(len).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hole_ends_the_copy_and_kills_nobody() {
        let area = crate::arena::Reservation::new(4 << 12, 1 << 12).expect("pages");
        area.commit(0, 4096).expect("a page");
        let mut target = vec![1_u8; 8192];
        let to = target.as_mut_ptr().expose_provenance() as u64;
        let piece = Piece {
            from: area.start(),
            to,
            len: 8192,
        };
        // SAFETY: the target is a vector of our own, as long as said.
        assert_eq!(unsafe { copy_in(&[piece]) }, Ok(4096));
        assert!(target[..4096].iter().all(|byte| *byte == 0));
        assert!(target[4096..].iter().all(|byte| *byte == 1));
        let nowhere = Piece {
            from: 4096,
            ..piece
        };
        // SAFETY: as above.
        assert_eq!(unsafe { copy_in(&[nowhere]) }, Err(Errno::FAULT));
    }
}
