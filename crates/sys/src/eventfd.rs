// SPDX-License-Identifier: MIT OR Apache-2.0
//! eventfd(2): one side rings, the other waits. Non-blocking, close-on-exec.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;

use rustix::event::EventfdFlags;
use rustix::io::Errno;

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
}
