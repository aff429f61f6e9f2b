// SPDX-License-Identifier: MIT OR Apache-2.0
//! One call of `UFFDIO_MOVE`, and how far it really came.
//!
//! Linux 6.18 tries a move again inside the call where a page is under other work, and then what the
//! first try moved is not counted: the call ends with `EEXIST` or `EAGAIN` and 0 bytes although the page
//! is at its destination. Who goes by that number takes the slot for somebody else's and drops
//! the program's page. So wherever a call ends short, the page tables say what has moved: nothing is
//! where the page was, and something is where nothing was. One side is always a place of ours that nobody
//! else fills or empties, so the program's dropping or touching its own address cannot look like that.

use rustix::io::Errno;
use terrace_core::PageSize;
use terrace_sys::pagemap::Pagemap;
use terrace_sys::uffd::DONT_WAKE;
use terrace_sys::uffd::Moved;
use terrace_sys::uffd::Uffd;

const BASE: u64 = PageSize::Base4K.bytes();

/// Moves pages from `src` to `dst` without waking who waits there.
///
/// # Safety
///
/// As [`Uffd::move_pages`]. `dst` or `src` is a slot or frame of ours that nobody else fills or empties,
/// and `dst` was empty.
///
/// # Errors
///
/// As [`Uffd::move_pages`].
pub(crate) unsafe fn relocate(
    uffd: &Uffd,
    pagemap: &Pagemap,
    (dst, src): (u64, u64),
    len: u64,
) -> Result<Moved, Errno> {
    // SAFETY: the caller's word.
    let moved = unsafe { uffd.move_pages(dst, src, len, DONT_WAKE) }?;
    if moved.stop.is_none() {
        return Ok(moved);
    }
    // Where nothing can be read, nothing is said to have moved.
    let empty = |addr: u64| pagemap.kind(addr).map(|kind| kind.is_empty());
    let bytes = really_moved(moved.bytes, len, |at| {
        empty(src + at) == Ok(true) && empty(dst + at) == Ok(false)
    });
    Ok(Moved {
        bytes,
        stop: (bytes < len).then_some(moved.stop).flatten(),
    })
}

/// How many bytes from the start have moved, where the call counted `counted` and `has_moved` says of a
/// base page at an offset whether it has.
fn really_moved(counted: u64, len: u64, has_moved: impl Fn(u64) -> bool) -> u64 {
    let mut bytes = counted.min(len);
    while bytes < len && has_moved(bytes) {
        bytes += BASE;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_forgot_to_count_is_counted() {
        // Three pages have moved, the call says none, or one.
        let moved = |at: u64| at < 3 * BASE;
        assert_eq!(really_moved(0, 8 * BASE, moved), 3 * BASE);
        assert_eq!(really_moved(BASE, 8 * BASE, moved), 3 * BASE);
        // All of them: nothing is left to try.
        assert_eq!(really_moved(0, 3 * BASE, moved), 3 * BASE);
    }

    #[test]
    fn what_did_not_move_is_not() {
        assert_eq!(really_moved(0, 8 * BASE, |_| false), 0);
        // A page behind a gap is not ours to count: moves go from the start.
        let behind = |at: u64| at == 2 * BASE;
        assert_eq!(really_moved(0, 8 * BASE, behind), 0);
        assert_eq!(really_moved(2 * BASE, 8 * BASE, behind), 3 * BASE);
    }
}
