// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ioctls on ranges: register, write-protect, wake, fill, move.
//!
//! * `UFFDIO_MOVE` (Linux 6.8): `dst` is empty and registered with this context; `src` is private
//!   anonymous memory whose pages nobody else maps or pins; both are writable and alike in
//!   protection and lock state. The page keeps its node, loses write protection and is writable
//!   at its new place. A range may be moved in part: the rest is the caller's to try again.
//! * `UFFDIO_WRITEPROTECT` returns when no processor has a writable translation any more; pages
//!   that are not there are passed over.
//! * `UFFDIO_COPY`, `UFFDIO_ZEROPAGE`: fill what is empty; stop at the first page that is not.

use std::os::fd::AsFd;

use linux_raw_sys::general as abi;
use rustix::io::Errno;
use rustix::ioctl;

use super::Uffd;
use super::low_byte;
use super::read_write;

const REGISTER: ioctl::Opcode = read_write::<abi::uffdio_register>(abi::_UFFDIO_REGISTER);
const _: () = assert!(REGISTER == linux_raw_sys::ioctl::UFFDIO_REGISTER);
const UNREGISTER: ioctl::Opcode =
    ioctl::opcode::read::<abi::uffdio_range>(0xAA, low_byte(abi::_UFFDIO_UNREGISTER));
const _: () = assert!(UNREGISTER == linux_raw_sys::ioctl::UFFDIO_UNREGISTER);
const WAKE: ioctl::Opcode =
    ioctl::opcode::read::<abi::uffdio_range>(0xAA, low_byte(abi::_UFFDIO_WAKE));
const _: () = assert!(WAKE == linux_raw_sys::ioctl::UFFDIO_WAKE);
const COPY: ioctl::Opcode = read_write::<abi::uffdio_copy>(abi::_UFFDIO_COPY);
const _: () = assert!(COPY == linux_raw_sys::ioctl::UFFDIO_COPY);
const ZEROPAGE: ioctl::Opcode = read_write::<abi::uffdio_zeropage>(abi::_UFFDIO_ZEROPAGE);
const _: () = assert!(ZEROPAGE == linux_raw_sys::ioctl::UFFDIO_ZEROPAGE);
const WRITEPROTECT: ioctl::Opcode =
    read_write::<abi::uffdio_writeprotect>(abi::_UFFDIO_WRITEPROTECT);
const _: () = assert!(WRITEPROTECT == linux_raw_sys::ioctl::UFFDIO_WRITEPROTECT);
const MOVE: ioctl::Opcode = read_write::<abi::uffdio_move>(abi::_UFFDIO_MOVE);
// linux-raw-sys 0.12 has the structure and not the number.
const _: () = assert!(MOVE == 0xc028_aa05);

const MODE_DONTWAKE: u64 = 1;
const MODE_WP: u64 = 1;
const COPY_MODE_WP: u64 = 2;
const _: () = assert!(abi::UFFDIO_COPY_MODE_WP as u64 == COPY_MODE_WP);

/// Why a move or a fill went no further.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Mappings are changing, or only a part was done: read the events, then try the rest.
    Again,
    /// Shared after a fork, pinned for I/O, or merged: not now.
    Busy,
    /// The destination is not empty.
    Exists,
    /// Source empty, or range not mapped or not registered.
    NotThere,
    /// The two mappings do not allow it (protection, lock state, kind).
    Refused,
    /// No memory for a page table or a page.
    NoMemory,
}

/// How far `UFFDIO_MOVE` came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Moved {
    /// Bytes moved, from the start.
    pub bytes: u64,
    /// Why not all, if not all.
    pub stop: Option<Stop>,
}

/// How far `UFFDIO_COPY` or `UFFDIO_ZEROPAGE` came.
pub type Filled = Moved;

/// What `UFFDIO_WRITEPROTECT` and the register calls can say in normal operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Protected {
    /// Done.
    Done,
    /// Mappings are changing: read the events, then try again.
    Again,
    /// The range, or a part of it, is not mapped or not registered (any more).
    NotThere,
}

fn stop_of(error: Errno) -> Result<Stop, Errno> {
    match error {
        Errno::AGAIN | Errno::INTR => Ok(Stop::Again),
        Errno::BUSY => Ok(Stop::Busy),
        Errno::EXIST => Ok(Stop::Exists),
        Errno::NOENT | Errno::SRCH => Ok(Stop::NotThere),
        Errno::INVAL => Ok(Stop::Refused),
        Errno::NOMEM => Ok(Stop::NoMemory),
        other => Err(other),
    }
}

/// The kernel writes bytes done, or a negative errno, beside what the ioctl returns.
fn moved(call: Result<(), Errno>, done: i64, len: u64) -> Result<Moved, Errno> {
    let bytes = u64::try_from(done).unwrap_or(0);
    match call {
        Ok(()) => Ok(Moved {
            bytes: len,
            stop: None,
        }),
        Err(error) => Ok(Moved {
            bytes,
            stop: Some(stop_of(error)?),
        }),
    }
}

/// What a call that protects a range, or lifts that, said.
pub(super) fn protected(call: Result<(), Errno>) -> Result<Protected, Errno> {
    match call {
        Ok(()) => Ok(Protected::Done),
        Err(Errno::AGAIN | Errno::INTR) => Ok(Protected::Again),
        Err(Errno::NOENT | Errno::INVAL | Errno::SRCH) => Ok(Protected::NotThere),
        Err(other) => Err(other),
    }
}

/// Registers a range with a context, for those modes.
pub(super) fn register(uffd: impl AsFd, (start, len): (u64, u64), mode: u64) -> Result<(), Errno> {
    let mut arg = abi::uffdio_register {
        range: abi::uffdio_range { start, len },
        mode,
        ioctls: 0,
    };
    // SAFETY: the opcode was computed from the type of `arg`, which outlives the call;
    // registering changes no content.
    unsafe { ioctl::ioctl(uffd, ioctl::Updater::<REGISTER, _>::new(&mut arg)) }
}

/// Takes a range out of a context.
pub(super) fn unregister(uffd: impl AsFd, start: u64, len: u64) -> Result<(), Errno> {
    let mut arg = abi::uffdio_range { start, len };
    // SAFETY: as for `register`.
    unsafe { ioctl::ioctl(uffd, ioctl::Updater::<UNREGISTER, _>::new(&mut arg)) }
}

impl Uffd {
    /// Registers a range for missing pages (if asked) and write protection.
    ///
    /// # Errors
    ///
    /// `EBUSY` where the program registered it with a userfaultfd of its own, `EINVAL` where the
    /// kind of mapping has no support, `ENOMEM` at the limit of mappings.
    pub fn register(&self, start: u64, len: u64, missing: bool) -> Result<(), Errno> {
        let modes = abi::UFFDIO_REGISTER_MODE_WP
            | if missing {
                abi::UFFDIO_REGISTER_MODE_MISSING
            } else {
                0
            };
        register(self, (start, len), u64::from(modes))
    }

    /// Takes a range out again; lifts its protection and wakes who waits on it.
    ///
    /// The kernel wakes before it takes the mapping's own lock, under which faults are taken (seen on
    /// 6.18): a thread that lies down in between would sleep for ever. Once the call is over nobody
    /// can lie down any more, so the range is woken once more.
    ///
    /// # Errors
    ///
    /// `EINVAL` where nothing is mapped.
    pub fn unregister(&self, start: u64, len: u64) -> Result<(), Errno> {
        unregister(self, start, len)?;
        self.wake(start, len);
        Ok(())
    }

    /// Wakes the threads that wait for a page of the range.
    pub fn wake(&self, start: u64, len: u64) {
        let mut arg = abi::uffdio_range { start, len };
        // SAFETY: as for `register`. The only errors are a bad range, on which nobody waits, and
        // a closed context, whose waiters were woken.
        let _ = unsafe { ioctl::ioctl(self, ioctl::Updater::<WAKE, _>::new(&mut arg)) };
    }

    /// Write-protects the pages of a range, or lifts that (and then wakes).
    ///
    /// # Errors
    ///
    /// Anything but what [`Protected`] names.
    pub fn write_protect(&self, start: u64, len: u64, on: bool) -> Result<Protected, Errno> {
        let mut arg = abi::uffdio_writeprotect {
            range: abi::uffdio_range { start, len },
            mode: if on { MODE_WP } else { 0 },
        };
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call;
        // protection changes no content.
        protected(unsafe { ioctl::ioctl(self, ioctl::Updater::<WRITEPROTECT, _>::new(&mut arg)) })
    }

    /// Maps the zero page where nothing is, from `start` on.
    ///
    /// # Errors
    ///
    /// Anything but what [`Stop`] names.
    pub fn zero_page(&self, start: u64, len: u64, dont_wake: bool) -> Result<Filled, Errno> {
        let mut arg = abi::uffdio_zeropage {
            range: abi::uffdio_range { start, len },
            mode: u64::from(dont_wake),
            zeropage: 0,
        };
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call; the
        // kernel fills only what is empty and would read as zero anyway.
        let call = unsafe { ioctl::ioctl(self, ioctl::Updater::<ZEROPAGE, _>::new(&mut arg)) };
        moved(call, arg.zeropage, len)
    }

    /// Fills empty pages at `dst` with a copy of `src`, which is memory of the calling process.
    /// `dst` belongs to the process of the context. With `protected` the new page is
    /// write-protected from its first moment on. Memory comes by the policy of the destination's
    /// mapping, or else of the calling thread.
    ///
    /// # Safety
    ///
    /// `src..src + len` must be readable, and no Rust reference may point into the destination.
    ///
    /// # Errors
    ///
    /// Anything but what [`Stop`] names.
    pub unsafe fn copy(
        &self,
        dst: u64,
        src: u64,
        len: u64,
        protected: bool,
    ) -> Result<Filled, Errno> {
        let mut arg = abi::uffdio_copy {
            dst,
            src,
            len,
            mode: if protected { COPY_MODE_WP } else { 0 },
            copy: 0,
        };
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call; the
        // caller answers for both ranges.
        let call = unsafe { ioctl::ioctl(self, ioctl::Updater::<COPY, _>::new(&mut arg)) };
        moved(call, arg.copy, len)
    }

    /// Moves pages from `src` to `dst` without a copy.
    ///
    /// # Safety
    ///
    /// No Rust reference may point into either range during or after the call: afterwards `src`
    /// reads as not present and `dst` holds the bytes.
    ///
    /// # Errors
    ///
    /// Anything but what [`Stop`] names.
    pub unsafe fn move_pages(
        &self,
        dst: u64,
        src: u64,
        len: u64,
        dont_wake: bool,
    ) -> Result<Moved, Errno> {
        let mut arg = abi::uffdio_move {
            dst,
            src,
            len,
            mode: if dont_wake { MODE_DONTWAKE } else { 0 },
            move_: 0,
        };
        // SAFETY: the opcode was computed from the type of `arg`, which outlives the call; the
        // caller answers for both ranges.
        let call = unsafe { ioctl::ioctl(self, ioctl::Updater::<MOVE, _>::new(&mut arg)) };
        moved(call, arg.move_, len)
    }
}
