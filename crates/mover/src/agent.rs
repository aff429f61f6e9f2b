// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor's end of an agent's connection.
//!
//! The protocol is `terrace-proto`'s. The agent lives in the managed program and is not trusted:
//! what it writes into the rings is decoded with care, where we are in them is remembered here, and the process id
//! that counts is the one the kernel vouches for. No call waits, whatever it does to the descriptors that
//! it shares, and it is listened to so often and so long in each [`WINDOW`].

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::io::Errno;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_proto::Command;
use terrace_proto::Commit;
use terrace_proto::DecodeError;
use terrace_proto::HandshakeError;
use terrace_proto::Hello;
use terrace_proto::Report;
use terrace_proto::Welcome;
use terrace_proto::features;
use terrace_proto::ring;
use terrace_proto::ring::Ring;
use terrace_sys::eventfd::EventFd;
use terrace_sys::ringer::Ringer;
use terrace_sys::shm::Mapped;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;
use thiserror::Error;

/// Records of each ring. A report ring that holds four times what may be in flight is never full
/// of reports; notices may be dropped and are counted.
const RING_RECORDS: usize = 8192;
/// Orders that one agent may have at a time. An agent that answers has far fewer.
pub const ORDERS_MAX: usize = RING_RECORDS / 4;

/// What follows is for so long.
pub const WINDOW: Nanos = Nanos::from_millis(10);
/// How often an agent is heard when it rings.
const RINGS: u32 = 32;
/// How many of its reports are taken: over 400,000 a second, as many as it can have orders for in some milliseconds.
pub const REPORTS: u32 = 4096;

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
    /// It connected and did not say who it is.
    #[error("Agent connection: no hello within a second")]
    Silent,
    /// The rings do not fit the memory. A bug.
    #[error("Agent connection: the rings do not fit their memory")]
    Rings,
}

pub(crate) fn socket(step: &'static str) -> impl FnOnce(Errno) -> LinkError {
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
    /// Where we are in the rings.
    commands_told: u64,
    reports_taken: u64,
    window: Window,
}

/// What an agent has had in a window.
#[derive(Debug, Default)]
struct Window {
    until: Nanos,
    rings: u32,
    reports: u32,
}

impl Window {
    fn at(&mut self, now: Nanos) -> &mut Self {
        if now >= self.until {
            *self = Self {
                until: now + WINDOW,
                ..Self::default()
            };
        }
        self
    }
}

impl AgentLink {
    /// Answers an agent that has introduced itself.
    ///
    /// # Errors
    ///
    /// Where there is no memory or descriptor for it, or it is gone.
    pub(crate) fn open(
        pid: Pid,
        hello: Hello,
        channel: Channel,
        terms: Terms,
    ) -> Result<Self, LinkError> {
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
            .send_now(
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
            commands_told: 0,
            reports_taken: 0,
            window: Window::default(),
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

    /// Whether pages can have shadows.
    #[must_use]
    pub const fn keeps_shadows(&self) -> bool {
        self.hello.features & features::SHADOWS != 0
    }

    /// Whether it can arm pages.
    #[must_use]
    pub const fn arms(&self) -> bool {
        self.can_transact() && self.hello.features & features::ARMS != 0
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
        let mut at = self.commands_told;
        let pushed = self
            .commands()
            .is_some_and(|ring| ring.push_at(&mut at, &command.encode()));
        self.commands_told = at;
        self.submitted |= pushed;
        pushed
    }

    /// Wakes the agent if anything was queued since the last time.
    pub fn flush(&mut self, ringer: &Ringer) {
        if std::mem::take(&mut self.submitted) {
            ringer.ring(&self.wake_agent);
        }
    }

    /// Until when it is not heard when it rings, if it has had its share.
    #[must_use]
    pub fn deaf_until(&self, now: Nanos) -> Option<Nanos> {
        let spent = self.window.rings >= RINGS || self.window.reports >= REPORTS;
        (spent && now < self.window.until).then_some(self.window.until)
    }

    /// Forgets that the agent rang; call before taking the reports.
    pub fn silence(&mut self, now: Nanos) {
        self.window.at(now).rings += 1;
        self.wake_us.silence_shared();
    }

    /// Takes the reports that are there, as many as are left of this window's. Not all of them make the agent ring.
    ///
    /// # Errors
    ///
    /// Where the agent said something unknown; the connection is of no use then.
    pub fn reports_each(
        &mut self,
        now: Nanos,
        mut each: impl FnMut(Report),
    ) -> Result<(), DecodeError> {
        let taken = self.window.at(now).reports;
        let (mut at, mut more) = (self.reports_taken, 0);
        let outcome = self.reports().map_or(Ok(()), |ring| {
            while taken + more < REPORTS
                && let Some(words) = ring.pop_at(&mut at)
            {
                more += 1;
                each(Report::decode(&words)?);
            }
            Ok(())
        });
        self.reports_taken = at;
        self.window.reports += more;
        outcome
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
