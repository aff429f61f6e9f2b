// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ringing an eventfd that somebody shares who is not trusted, without ever waiting.
//!
//! write(2) on an eventfd waits while its count is at its most, unless it is non-blocking; both the count and
//! that flag belong to all who have the descriptor. What never waits is the kernel's own `eventfd_signal`, which
//! stops at the most. It is had by asynchronous I/O (io_submit(2), Linux 2.6.22): a completed operation rings the
//! eventfd that its request names. The operation here is the reading of a byte of a memfd. Where the kernel has
//! no asynchronous I/O, or no room for more (`fs.aio-max-nr`), it is a write.

use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;

use rustix::fs::MemfdFlags;

use crate::eventfd::EventFd;

/// `aio_context_t`.
type Context = libc::c_ulong;

/// `struct iocb` of `linux/aio_abi.h`, on a little-endian machine.
#[repr(C)]
#[derive(Default)]
struct Request {
    data: u64,
    key: u32,
    rw_flags: i32,
    opcode: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: u32,
}

/// `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    object: u64,
    result: [i64; 2],
}

const PREAD: u16 = 0;
/// `IOCB_FLAG_RESFD`.
const RINGS: u32 = 1;

/// Rings bells.
#[derive(Debug)]
pub struct Ringer {
    kernel: Option<(Context, OwnedFd)>,
}

impl Default for Ringer {
    fn default() -> Self {
        Self::new()
    }
}

impl Ringer {
    /// One for any number of bells.
    #[must_use]
    pub fn new() -> Self {
        Self { kernel: open() }
    }

    /// Rings it.
    pub fn ring(&self, bell: &EventFd) {
        if !self.signal(bell) {
            bell.ring();
        }
    }

    fn signal(&self, bell: &EventFd) -> bool {
        let Some((context, file)) = &self.kernel else {
            return false;
        };
        let raw = |fd: i32| u32::try_from(fd).unwrap_or(u32::MAX);
        let mut byte = 0_u8;
        let mut request = Request {
            opcode: PREAD,
            file: raw(file.as_raw_fd()),
            buffer: (&raw mut byte).addr() as u64,
            bytes: 1,
            flags: RINGS,
            eventfd: raw(bell.as_fd().as_raw_fd()),
            ..Request::default()
        };
        let mut list = [&raw mut request];
        // SAFETY: one valid request, whose buffer and file live; a memfd is read within the call.
        let sent =
            unsafe { libc::syscall(libc::SYS_io_submit, *context, 1_i64, list.as_mut_ptr()) };
        let mut event = Event::default();
        let mut at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: room for the one event that is asked for, and a valid time.
        let _ = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                *context,
                0_i64,
                1_i64,
                &raw mut event,
                &raw mut at_once,
            )
        };
        sent == 1
    }
}

fn open() -> Option<(Context, OwnedFd)> {
    let file = rustix::fs::memfd_create("terrace-ringer", MemfdFlags::CLOEXEC).ok()?;
    rustix::io::write(&file, b"x").ok()?;
    let mut context: Context = 0;
    // SAFETY: the context is zero before, as io_setup(2) wants it.
    let made = unsafe { libc::syscall(libc::SYS_io_setup, 4_u32, &raw mut context) };
    (made == 0).then_some((context, file))
}

impl Drop for Ringer {
    fn drop(&mut self) {
        if let Some((context, _)) = &self.kernel {
            // SAFETY: ours, and nothing is under way in it.
            let _ = unsafe { libc::syscall(libc::SYS_io_destroy, *context) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_that_is_full_and_waits_is_rung_at_once() {
        let ringer = Ringer::new();
        assert!(ringer.kernel.is_some(), "no asynchronous I/O here");
        let bell = EventFd::new().expect("a bell");
        for _ in 0..100 {
            ringer.ring(&bell);
        }
        assert!(bell.silence() && !bell.silence());
        let flags = rustix::fs::fcntl_getfl(&bell).expect("flags");
        rustix::fs::fcntl_setfl(&bell, flags - rustix::fs::OFlags::NONBLOCK).expect("set");
        rustix::io::write(&bell, &(u64::MAX - 1).to_ne_bytes()).expect("full");
        // write(2) would wait for ever now.
        ringer.ring(&bell);
        assert!(bell.silence_shared());
    }
}
