// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether userfaultfd and the page interfaces do what the agent needs.
//!
//! Contract: userfaultfd(2). A context for user-mode faults only is open to everyone (Linux 5.11)
//! and tells the kernel's features; one for the kernel's faults too wants `/dev/userfaultfd`,
//! CAP_SYS_PTRACE, or `vm.unprivileged_userfaultfd`.

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;
use rustix::mm::UserfaultfdFlags;

use crate::move_pages;
use crate::move_pages::PageStatus;
use crate::move_pages::Target;
use crate::pagemap::Pagemap;
use crate::uffd::Events;
use crate::uffd::Uffd;
use crate::uffd::Writers;
use crate::uffd::read_write;
use crate::uffd::rwp;

const UFFDIO_API: ioctl::Opcode = read_write::<abi::uffdio_api>(abi::_UFFDIO_API);

/// What the kernel's userfaultfd can do, permission aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UffdFeatures(u64);

impl UffdFeatures {
    /// `UFFDIO_MOVE`.
    #[must_use]
    pub const fn can_move(self) -> bool {
        self.0 & abi::UFFD_FEATURE_MOVE as u64 != 0
    }

    /// `UFFDIO_RWPROTECT`, with faults that the kernel answers by itself.
    #[must_use]
    pub const fn can_protect_reads(self) -> bool {
        rwp::is_among(self.0)
    }

    /// `UFFDIO_WRITEPROTECT` on anonymous memory.
    #[must_use]
    pub const fn can_write_protect(self) -> bool {
        self.0 & abi::UFFD_FEATURE_PAGEFAULT_FLAG_WP as u64 != 0
    }
}

/// Asks the kernel what its userfaultfd can do.
///
/// # Errors
///
/// `ENOSYS` where it has none.
pub fn uffd_features() -> Result<UffdFeatures, Errno> {
    let flags = UserfaultfdFlags::CLOEXEC
        | UserfaultfdFlags::NONBLOCK
        | UserfaultfdFlags::from_bits_retain(abi::UFFD_USER_MODE_ONLY);
    // SAFETY: a context is inert until memory is registered with it.
    let fd = unsafe { rustix::mm::userfaultfd(flags) }?;
    let mut api = abi::uffdio_api {
        api: u64::from(abi::UFFD_API),
        features: 0,
        ioctls: 0,
    };
    // SAFETY: the opcode was computed from `uffdio_api`, which outlives the call.
    unsafe { ioctl::ioctl(&fd, ioctl::Updater::<UFFDIO_API, _>::new(&mut api)) }?;
    Ok(UffdFeatures(api.features))
}

/// Whether this process may have a context that handles the kernel's faults, as the agent's.
///
/// # Errors
///
/// `EPERM` or `EACCES` without permission; `EINVAL` where the kernel cannot move pages.
pub fn uffd_for_kernel_faults() -> Result<(), Errno> {
    Uffd::open(Events::None, Writers::Wait).map(drop)
}

/// Whether the page map can be scanned.
///
/// # Errors
///
/// `ENOTTY` before Linux 6.7.
pub fn pagemap_scan() -> Result<(), Errno> {
    let pagemap = Pagemap::own().map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
    let (page, _value) = own_page();
    pagemap.scan(page, page + 4096, |_| {})
}

/// Whether the kernel says where a page of ours is.
///
/// # Errors
///
/// `ENOSYS` without NUMA, `EPERM` in a sandbox.
pub fn move_pages_query() -> Result<PageStatus, Errno> {
    let (page, _value) = own_page();
    let status = move_pages::query(Target::Own, &[page])?;
    Ok(status.first().copied().unwrap_or(PageStatus::Untried))
}

/// A page that is surely there, as long as the value is.
fn own_page() -> (u64, Box<[u8]>) {
    let value = vec![1u8; 2 * 4096].into_boxed_slice();
    let inside = value.as_ptr().addr() as u64 + 4095;
    (inside & !4095, value)
}
