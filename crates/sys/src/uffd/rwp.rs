// SPDX-License-Identifier: MIT OR Apache-2.0
//! Read-write protection: the next access of a page faults, whatever its kind.
//!
//! Kernel contract (UFFDIO_RWPROTECT(2const); `mm/userfaultfd.c`, Linux 7.3, `CONFIG_USERFAULTFD_RWP`):
//! * `UFFDIO_RWPROTECT` takes the access from those pages of a registered range that are there (`PAGE_NONE` and the
//!   userfaultfd bit); others are passed over. When it returns no processor has a translation any more. Of a huge
//!   page that is named in part the mapping is split. A page that is protected stays so.
//! * With `UFFD_FEATURE_RWP_ASYNC` the fault gives the access back and goes on: nobody waits, and no message comes.
//! * One mapping has one userfaultfd, and cannot be registered for this and for write protection at once (`EINVAL`).
//! * The ioctl asks whether a range is registered for this, not with which context.
//! * The protection moves along with migration and swapping. It is gone when the range is unregistered, the
//!   context closed, or the mapping moved by mremap(2); a forked child does not have it.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;

use super::Protected;
use super::open_for_kernel_faults;
use super::ops;
use super::read_write;

/// `UFFD_FEATURE_RWP`; linux-raw-sys 0.12 has none of these.
const FEATURE_RWP: u64 = 1 << 17;
/// `UFFD_FEATURE_RWP_ASYNC`.
const FEATURE_RWP_ASYNC: u64 = 1 << 18;
/// `UFFDIO_REGISTER_MODE_RWP`.
const REGISTER_MODE_RWP: u64 = 1 << 3;
/// `UFFDIO_RWPROTECT_MODE_RWP`.
const MODE_RWP: u64 = 1;
/// What is asked for.
const FEATURES: u64 = FEATURE_RWP | FEATURE_RWP_ASYNC;

/// `struct uffdio_rwprotect`.
#[repr(C)]
struct RwProtect {
    range: abi::uffdio_range,
    mode: u64,
}
const _: () = assert!(size_of::<RwProtect>() == 24);

/// `_UFFDIO_RWPROTECT` is 9.
const RWPROTECT: ioctl::Opcode = read_write::<RwProtect>(9);
const _: () = assert!(RWPROTECT == 0xc018_aa09);

/// Whether the features that a kernel has are all that is asked for.
pub(crate) const fn is_among(features: u64) -> bool {
    features & FEATURES == FEATURES
}

/// An open context of this process for faults at accesses, which the kernel answers by itself.
#[derive(Debug)]
pub struct RwpUffd {
    fd: OwnedFd,
}

impl RwpUffd {
    /// Opens a context that reports nothing: what becomes of its ranges is for others to say.
    ///
    /// # Errors
    ///
    /// `EINVAL` where the kernel has no such protection, `EPERM` and `EACCES` without privilege, `ENOSYS` without
    /// userfaultfd.
    pub fn open() -> Result<Self, Errno> {
        let fd = open_for_kernel_faults(FEATURES)?;
        Ok(Self { fd })
    }

    /// Registers a range.
    ///
    /// # Errors
    ///
    /// `EBUSY` where another context has it, `EINVAL` where its kind has no support, `EPERM` where it may not be
    /// written to, `ENOMEM` at the limit of mappings.
    pub fn register(&self, start: u64, len: u64) -> Result<(), Errno> {
        ops::register(self, (start, len), REGISTER_MODE_RWP)
    }

    /// Takes a range out again; its pages are accessible then.
    ///
    /// # Errors
    ///
    /// `EINVAL` where nothing is mapped.
    pub fn unregister(&self, start: u64, len: u64) -> Result<(), Errno> {
        ops::unregister(self, start, len)
    }

    /// Takes the access from the pages of a range, or gives it back.
    ///
    /// # Errors
    ///
    /// Anything but what [`Protected`] names.
    pub fn rw_protect(&self, start: u64, len: u64, on: bool) -> Result<Protected, Errno> {
        let mut arg = RwProtect {
            range: abi::uffdio_range { start, len },
            mode: if on { MODE_RWP } else { 0 },
        };
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call; protection changes no
        // content, and the kernel lifts it at the next access.
        let call = unsafe { ioctl::ioctl(self, ioctl::Updater::<RWPROTECT, _>::new(&mut arg)) };
        ops::protected(call)
    }
}

impl AsFd for RwpUffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena;
    use crate::probe::memory;

    const PAGE: u64 = 4096;

    #[test]
    fn all_of_it_is_asked_for() {
        assert!(is_among(FEATURES | 1) && !is_among(FEATURE_RWP) && !is_among(FEATURE_RWP_ASYNC));
    }

    /// Where the kernel has it; else that it says so.
    #[test]
    fn an_access_gives_itself_back_and_nobody_waits() {
        let Ok(uffd) = RwpUffd::open() else {
            let has = memory::uffd_features().is_ok_and(|has| has.can_protect_reads());
            println!("SKIPPED: no userfaultfd with read-write protection here");
            assert!(!has || memory::uffd_for_kernel_faults().is_err());
            return;
        };
        let area = arena::Reservation::new(4 * PAGE, PAGE).expect("pages");
        area.commit(0, 4 * PAGE).expect("pages");
        let start = area.start();
        arena::populate(start, 2 * PAGE).expect("two pages");
        assert_eq!(uffd.rw_protect(start, PAGE, true), Ok(Protected::NotThere));
        uffd.register(start, 4 * PAGE).expect("private memory");
        assert_eq!(uffd.rw_protect(start, PAGE, true), Ok(Protected::Done));
        assert_eq!(uffd.rw_protect(start, PAGE, true), Ok(Protected::Done));
        arena::populate(start, PAGE).expect("an access");
        uffd.unregister(start, 4 * PAGE).expect("it was registered");
        assert_eq!(uffd.rw_protect(start, PAGE, true), Ok(Protected::NotThere));
    }
}
