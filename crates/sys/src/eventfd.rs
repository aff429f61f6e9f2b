// SPDX-License-Identifier: MIT OR Apache-2.0
//! eventfd(2): one side rings, the other waits. Non-blocking, close-on-exec.

use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::io::ReadWriteFlags;

/// A bell.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// `EMFILE` and `ENFILE`.
    pub fn new() -> Result<Self, Errno> {
        let flags = EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC;
        rustix::event::eventfd(0, flags).map(|fd| Self { fd })
    }

    /// Takes one that came over a socket; makes it non-blocking, whatever it was.
    ///
    /// # Errors
    ///
    /// What fcntl(2) says of a bad descriptor.
    pub fn from_fd(fd: OwnedFd) -> Result<Self, Errno> {
        let flags = rustix::fs::fcntl_getfl(&fd)? | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&fd, flags)?;
        Ok(Self { fd })
    }

    /// Rings. A bell that rings already goes on ringing.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// As [`Self::silence`], where the other side is not trusted: it may have taken `O_NONBLOCK` away, which is
    /// one for both, and reading would wait. `RWF_NOWAIT` (Linux 4.14, for eventfds 5.8) is this call's own.
    pub fn silence_shared(&self) -> bool {
        let mut count = [0; 8];
        let mut pieces = [IoSliceMut::new(&mut count)];
        // At the file's own position, of which an eventfd has none.
        let got = rustix::io::preadv2(&self.fd, &mut pieces, u64::MAX, ReadWriteFlags::NOWAIT);
        match got {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.silence(),
            got => got.is_ok(),
        }
    }

    /// Silences it; whether it rang.
    pub fn silence(&self) -> bool {
        let mut count = [0; 8];
        rustix::io::read(&self.fd, &mut count).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_until_silenced() {
        let bell = EventFd::new().expect("a descriptor");
        assert!(!bell.silence());
        bell.ring();
        bell.ring();
        assert!(bell.silence());
        assert!(!bell.silence());
    }

    #[test]
    fn a_shared_bell_never_makes_its_reader_wait() {
        let bell = EventFd::new().expect("a descriptor");
        bell.ring();
        let flags = rustix::fs::fcntl_getfl(&bell).expect("flags");
        rustix::fs::fcntl_setfl(&bell, flags - rustix::fs::OFlags::NONBLOCK).expect("set");
        assert!(bell.silence_shared());
        assert!(!bell.silence_shared(), "read(2) would wait for ever");
    }
}
