// SPDX-License-Identifier: MIT OR Apache-2.0
//! `userfaultfd`: the kernel hands page faults and changes of mappings to user space.
//!
//! Kernel contract (`Documentation/admin-guide/mm/userfaultfd.rst`, ioctl_userfaultfd(2)):
//! * a descriptor from `/dev/userfaultfd` (Linux 6.1, file permission) or from userfaultfd(2) with
//!   `CAP_SYS_PTRACE` sees faults that the kernel takes on user pages too; we accept no other,
//!   because `read(2)` into a protected page would fail with a user-only one;
//! * `UFFDIO_MOVE` needs Linux 6.8; `EVENT_FORK` needs `CAP_SYS_PTRACE`;
//! * for every event (not fault) the kernel counts the context as "changing" from before the
//!   change until the changing thread runs again, after the event was read, and every ioctl of [`ops`] answers `EAGAIN` meanwhile.
//!   `REMOVE` is the exception that bites: it is read *before* the pages go.
//!
//! `rwp` is a kind of its own: protection against reads, too, which the kernel lifts by itself.
//!
//! Addresses and lengths are bytes, page aligned. The descriptor is non-blocking.

mod event;
mod ops;
pub(crate) mod rwp;

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;

pub use event::EVENT_BYTES;
pub use event::Event;
pub use ops::Filled;
pub use ops::Moved;
pub use ops::Protected;
pub use ops::Stop;
pub use rwp::RwpUffd;

/// Wakes are left to the caller.
pub const DONT_WAKE: bool = true;
/// The ioctl wakes who waits on the range.
pub const WAKE: bool = false;

pub(crate) const fn read_write<T>(number: u32) -> ioctl::Opcode {
    ioctl::opcode::read_write::<T>(0xAA, low_byte(number))
}

pub(crate) const fn low_byte(number: u32) -> u8 {
    number.to_le_bytes()[0]
}

const UFFDIO_API: ioctl::Opcode = read_write::<abi::uffdio_api>(abi::_UFFDIO_API);
const _: () = assert!(UFFDIO_API == linux_raw_sys::ioctl::UFFDIO_API);
const USERFAULTFD_IOC_NEW: ioctl::Opcode = ioctl::opcode::none(0xAA, 0);
const _: () = assert!(USERFAULTFD_IOC_NEW == 0xAA00);

/// What a descriptor shall report beside faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Events {
    /// Nothing: pages of its ranges can be dropped without telling anybody.
    None,
    /// munmap, madvise that drops pages, mremap.
    Mappings,
    /// These and forks.
    MappingsAndForks,
}

impl Events {
    const fn features(self) -> u64 {
        let mappings = abi::UFFD_FEATURE_EVENT_UNMAP
            | abi::UFFD_FEATURE_EVENT_REMAP
            | abi::UFFD_FEATURE_EVENT_REMOVE;
        let wanted = match self {
            Self::None => 0,
            Self::Mappings => mappings,
            Self::MappingsAndForks => mappings | abi::UFFD_FEATURE_EVENT_FORK,
        };
        wanted as u64
    }
}

/// What a write to a protected page does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writers {
    /// It waits until whoever reads the descriptor lifts the protection. The kernel's own writes that cannot
    /// wait (thread exit words, priority-inheriting futexes, ptrace) fail.
    Wait,
    /// The kernel lifts the protection of that page and the write goes on; the page map says so afterwards
    /// (`UFFD_FEATURE_WP_ASYNC`, Linux 6.7). Nobody waits, nothing fails.
    GoOn,
}

impl Writers {
    const fn feature(self) -> u64 {
        match self {
            Self::Wait => 0,
            Self::GoOn => abi::UFFD_FEATURE_WP_ASYNC as u64,
        }
    }
}

/// An open userfaultfd context of this process, with MOVE and write protection.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

impl Uffd {
    /// Opens a context that handles kernel faults too.
    ///
    /// # Errors
    ///
    /// `EPERM` and `EACCES` without privilege, `ENOSYS` without the feature in the kernel,
    /// `EINVAL` where the kernel lacks MOVE (before 6.8), an event or a kind of protection asked for.
    pub fn open(events: Events, writers: Writers) -> Result<Self, Errno> {
        let features = abi::UFFD_FEATURE_MOVE | abi::UFFD_FEATURE_PAGEFAULT_FLAG_WP;
        let features = u64::from(features) | events.features() | writers.feature();
        let fd = open_for_kernel_faults(features)?;
        Ok(Self { fd })
    }

    /// Takes a descriptor that came with a fork event: the context of the child.
    #[must_use]
    pub fn from_child(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Reads one batch of events without waiting; how many there were (0 for none).
    ///
    /// # Errors
    ///
    /// What read(2) says; `EMFILE` where a fork event finds no free descriptor.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        match rustix::io::read(&self.fd, buffer) {
            Ok(bytes) => Ok(bytes / EVENT_BYTES),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(other) => Err(other),
        }
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A context with these features that handles faults which the kernel takes, too.
fn open_for_kernel_faults(features: u64) -> Result<OwnedFd, Errno> {
    let fd = open_device().or_else(|_| open_syscall())?;
    let mut api = abi::uffdio_api {
        api: u64::from(abi::UFFD_API),
        features,
        ioctls: 0,
    };
    // SAFETY: the opcode was computed from `uffdio_api`, which outlives the call.
    unsafe { ioctl::ioctl(&fd, ioctl::Updater::<UFFDIO_API, _>::new(&mut api)) }?;
    Ok(fd)
}

fn open_device() -> Result<OwnedFd, Errno> {
    let device = rustix::fs::open(
        "/dev/userfaultfd",
        rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    )?;
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: USERFAULTFD_IOC_NEW takes open flags by value and touches no memory of ours.
    let fd = unsafe {
        libc::ioctl(
            device.as_raw_fd(),
            libc::c_ulong::from(USERFAULTFD_IOC_NEW),
            flags,
        )
    };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel just gave us this descriptor and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn open_syscall() -> Result<OwnedFd, Errno> {
    let flags = rustix::mm::UserfaultfdFlags::CLOEXEC | rustix::mm::UserfaultfdFlags::NONBLOCK;
    // SAFETY: a context is inert until memory is registered with it.
    unsafe { rustix::mm::userfaultfd(flags) }
}

pub(crate) fn last_errno() -> Errno {
    // SAFETY: the location is this thread's own and always valid.
    Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}
