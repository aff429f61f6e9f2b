// SPDX-License-Identifier: MIT OR Apache-2.0
//! Unix stream sockets that carry short messages and descriptors: unix(7), `SCM_RIGHTS`.
//!
//! Kernel contract: a message of a few dozen bytes is sent and received whole when the buffer is
//! empty, which a handshake guarantees; descriptors arrive with its first byte, close-on-exec.
//! The end of the peer shows as hang-up in poll(2).

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;
use rustix::net::SocketAddrUnix;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::net::sockopt;

/// Most descriptors of one message.
pub const FDS_MAX: usize = 4;

/// A connected socket.
#[derive(Debug)]
pub struct Channel {
    fd: OwnedFd,
}

/// A socket that waits for connections.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
}

fn socket() -> Result<OwnedFd, Errno> {
    rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
}

impl Listener {
    /// Listens at a path, which must not exist.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE`, or what the file system says.
    pub fn bind(path: &Path) -> Result<Self, Errno> {
        let fd = socket()?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(path)?)?;
        rustix::net::listen(&fd, 64)?;
        Ok(Self { fd })
    }

    /// Takes the next connection, waiting for it.
    ///
    /// # Errors
    ///
    /// `EMFILE`, or `EAGAIN` where the descriptor was made non-blocking.
    pub fn accept(&self) -> Result<Channel, Errno> {
        let fd = rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC)?;
        Ok(Channel { fd })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Channel {
    /// Connects to a path.
    ///
    /// # Errors
    ///
    /// `ECONNREFUSED`, `ENOENT`, `EACCES`.
    pub fn connect(path: &Path) -> Result<Self, Errno> {
        let fd = socket()?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Self { fd })
    }

    /// Limits how long [`Self::receive`] and [`Self::send`] wait; `EAGAIN` then.
    ///
    /// # Errors
    ///
    /// What setsockopt(2) says.
    pub fn set_timeout(&self, limit: Duration) -> Result<(), Errno> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, Some(limit))?;
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Send, Some(limit))
    }

    /// The peer's process id as the kernel vouches for it.
    ///
    /// # Errors
    ///
    /// What getsockopt(2) says.
    pub fn peer_pid(&self) -> Result<u32, Errno> {
        let peer = sockopt::socket_peercred(&self.fd)?;
        u32::try_from(peer.pid.as_raw_nonzero().get()).map_err(|_| Errno::RANGE)
    }

    /// Sends a message with descriptors.
    ///
    /// # Errors
    ///
    /// `EPIPE` where the peer is gone (no signal is raised), `EMSGSIZE` where it went in part.
    pub fn send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.send_with(message, fds, SendFlags::NOSIGNAL)
    }

    fn send_with(
        &self,
        message: &[u8],
        fds: &[BorrowedFd<'_>],
        flags: SendFlags,
    ) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(Errno::INVAL);
        }
        let pieces = [std::io::IoSlice::new(message)];
        let sent = rustix::net::sendmsg(&self.fd, &pieces, &mut control, flags)?;
        if sent == message.len() {
            Ok(())
        } else {
            Err(Errno::MSGSIZE)
        }
    }

    /// Receives what is there, without waiting and without descriptors: 0 where nothing is.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` where the peer ended early.
    pub fn receive_now(&self, part: &mut [u8]) -> Result<usize, Errno> {
        match rustix::net::recv(&self.fd, part, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Err(Errno::CONNRESET),
            Ok((_, bytes)) => Ok(bytes),
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// As [`Self::send`], without waiting.
    ///
    /// # Errors
    ///
    /// As [`Self::send`], and `EAGAIN` where there is no room.
    pub fn send_now(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        self.send_with(message, fds, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// Receives a message that fills the buffer, and the descriptors that came with it.
    ///
    /// # Errors
    ///
    /// `ECONNRESET` where the peer ended early, `EAGAIN` after the time limit.
    pub fn receive(&self, message: &mut [u8]) -> Result<Vec<OwnedFd>, Errno> {
        let mut fds = Vec::new();
        let mut have = 0;
        while have < message.len() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut pieces = [IoSliceMut::new(&mut message[have..])];
            let flags = RecvFlags::CMSG_CLOEXEC;
            let got = rustix::net::recvmsg(&self.fd, &mut pieces, &mut control, flags)?;
            for item in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = item {
                    fds.extend(rights);
                }
            }
            if got.bytes == 0 {
                return Err(Errno::CONNRESET);
            }
            have += got.bytes;
        }
        Ok(fds)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    #[test]
    fn a_message_brings_its_descriptors() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let listener = Listener::bind(&path).expect("listening");
        let bell = EventFd::new().expect("a bell");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let peer = listener.accept().expect("a connection");
                peer.send(b"hello", &[bell.as_fd(), bell.as_fd()])
                    .expect("sent");
            });
            let channel = Channel::connect(&path).expect("connected");
            assert_eq!(channel.peer_pid(), Ok(std::process::id()));
            let mut message = [0; 5];
            let fds = channel.receive(&mut message).expect("received");
            assert_eq!((&message, fds.len()), (b"hello", 2));
            for fd in fds {
                EventFd::from_fd(fd).expect("an eventfd").ring();
            }
        });
        assert!(bell.silence());
    }

    #[test]
    fn a_peer_that_ends_early_is_told() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("socket");
        let listener = Listener::bind(&path).expect("listening");
        let channel = Channel::connect(&path).expect("connected");
        drop(listener.accept());
        assert_eq!(
            channel.receive(&mut [0; 8]).map(|_| ()),
            Err(Errno::CONNRESET)
        );
    }
}
