// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor's end of an agent's connection.
//!
//! The protocol is `terrace-proto`'s. The agent lives in the managed program and is not trusted:
//! what it writes into the rings is decoded with care, and the process id that counts is the one
//! the kernel vouches for.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;
use terrace_core::Pid;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::DecodeError;
use terrace_proto::HELLO_BYTES;
use terrace_proto::HandshakeError;
use terrace_proto::Hello;
use terrace_proto::Report;
use terrace_proto::Welcome;
use terrace_proto::features;
use terrace_proto::ring;
use terrace_proto::ring::Ring;
use terrace_sys::eventfd::EventFd;
use terrace_sys::shm::Mapped;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;
use thiserror::Error;

/// Records of each ring. A report ring that holds four times what may be in flight is never full
/// of reports; notices may be dropped and are counted.
const RING_RECORDS: usize = 8192;

/// Why a connection came to nothing.
#[derive(Debug, Error)]
pub enum LinkError {
    /// The socket.
    #[error("Agent connection: cannot {step}")]
    Socket {
        /// What was tried.
        step: &'static str,
        /// Why.
        #[source]
        source: Errno,
    },
    /// The other side speaks something else.
    #[error("Agent connection refused")]
    Handshake(#[from] HandshakeError),
    /// The rings do not fit the memory. A bug.
    #[error("Agent connection: the rings do not fit their memory")]
    Rings,
}

fn socket(step: &'static str) -> impl FnOnce(Errno) -> LinkError {
    move |source| LinkError::Socket { step, source }
}

/// What an agent is told about its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Copy workers, at least 1.
    pub copy_workers: u32,
    /// Pages of one batch, at least 1.
    pub batch_pages: u32,
    /// When pages are copied, and what writers do meanwhile.
    pub commit: Commit,
    /// Threads that copy one huge page together, at least 1.
    pub copy_threads: u8,
    /// Copy huge pages past the caches.
    pub streaming: bool,
}

/// A connected agent.
#[derive(Debug)]
pub struct AgentLink {
    pid: Pid,
    hello: Hello,
    channel: Channel,
    memory: Mapped,
    ring_words: usize,
    wake_agent: EventFd,
    wake_us: EventFd,
    commit: Commit,
    submitted: bool,
}

impl AgentLink {
    /// Answers an agent that has connected.
    ///
    /// # Errors
    ///
    /// Where it does not introduce itself within a second, or speaks another version.
    pub fn accept(channel: Channel, terms: Terms) -> Result<Self, LinkError> {
        channel
            .set_timeout(Duration::from_secs(1))
            .map_err(socket("set a time limit"))?;
        let pid = Pid(channel
            .peer_pid()
            .map_err(socket("learn the peer's process id"))?);
        let mut wire = [0; HELLO_BYTES];
        channel
            .receive(&mut wire)
            .map_err(socket("receive the agent's hello"))?;
        let hello = Hello::decode(&wire)?;

        let ring_bytes = ring::bytes_for(RING_RECORDS).next_multiple_of(4096);
        let file = SharedFile::new("terrace-rings", 2 * ring_bytes as u64)
            .map_err(socket("make the rings"))?;
        let memory = file.map().map_err(socket("map the rings"))?;
        let wake_agent = EventFd::new().map_err(socket("make an eventfd"))?;
        let wake_us = EventFd::new().map_err(socket("make an eventfd"))?;
        let welcome = Welcome {
            ring_bytes: ring_bytes as u64,
            copy_workers: terms.copy_workers,
            batch_pages: terms.batch_pages,
            commit: terms.commit,
            copy_threads: terms.copy_threads,
            streaming: terms.streaming,
        };
        channel
            .send(
                &welcome.encode(),
                &[file.as_fd(), wake_agent.as_fd(), wake_us.as_fd()],
            )
            .map_err(socket("answer the agent"))?;
        let link = Self {
            pid,
            hello,
            channel,
            memory,
            ring_words: ring_bytes / 8,
            wake_agent,
            wake_us,
            commit: terms.commit,
            submitted: false,
        };
        if link.commands().is_none() || link.reports().is_none() {
            return Err(LinkError::Rings);
        }
        Ok(link)
    }

    fn commands(&self) -> Option<Ring<'_>> {
        Ring::new(self.memory.words().get(..self.ring_words)?)
    }

    fn reports(&self) -> Option<Ring<'_>> {
        Ring::new(self.memory.words().get(self.ring_words..)?)
    }

    /// The process, as the kernel vouches for it.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// What the agent said of itself.
    #[must_use]
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Whether it can do transactions.
    #[must_use]
    pub const fn can_transact(&self) -> bool {
        self.hello.features & features::TRANSACTIONS != 0
    }

    /// When it was told to copy pages.
    #[must_use]
    pub const fn commit(&self) -> Commit {
        self.commit
    }

    /// Queues a command; `false` where the ring is full. [`Self::flush`] sends what is queued.
    #[must_use]
    pub fn submit(&mut self, command: &Command) -> bool {
        let pushed = self
            .commands()
            .is_some_and(|ring| ring.push(&command.encode()));
        self.submitted |= pushed;
        pushed
    }

    /// Wakes the agent if anything was queued since the last time.
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.submitted) {
            self.wake_agent.ring();
        }
    }

    /// Forgets that the agent rang; call before taking the reports.
    pub fn silence(&self) {
        self.wake_us.silence();
    }

    /// Takes all reports that are there. Not all of them make the agent ring.
    ///
    /// # Errors
    ///
    /// Where the agent said something unknown; the connection is of no use then.
    pub fn reports_each(&mut self, mut each: impl FnMut(Report)) -> Result<(), DecodeError> {
        let Some(ring) = self.reports() else {
            return Ok(());
        };
        while let Some(words) = ring.pop() {
            each(Report::decode(&words)?);
        }
        Ok(())
    }

    /// Whether the agent has closed the connection, as it does when its program ends or executes
    /// another.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.channel, PollFlags::RDHUP)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&now)).is_ok_and(|n| n > 0)
    }

    /// Readable when reports are there.
    #[must_use]
    pub fn report_fd(&self) -> BorrowedFd<'_> {
        self.wake_us.as_fd()
    }

    /// Readable when the agent is gone.
    #[must_use]
    pub fn socket_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
