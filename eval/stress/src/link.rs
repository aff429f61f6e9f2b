// SPDX-License-Identifier: MIT OR Apache-2.0
//! The supervisor's end of one agent connection.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_proto::Command;
use terrace_proto::HELLO_BYTES;
use terrace_proto::Hello;
use terrace_proto::Report;
use terrace_proto::Welcome;
use terrace_proto::ring;
use terrace_proto::ring::Ring;
use terrace_sys::eventfd::EventFd;
use terrace_sys::shm::Mapped;
use terrace_sys::shm::SharedFile;
use terrace_sys::unix_channel::Channel;
use terrace_sys::unix_channel::Listener;

const RECORDS: usize = 4096;

/// A connected agent.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) hello: Hello,
    socket: Channel,
    memory: Mapped,
    ring_words: usize,
    to_agent: EventFd,
    from_agent: EventFd,
}

impl Link {
    /// Waits for an agent and greets it; the rings' size is ours to say.
    pub(crate) fn accept(listener: &Listener, welcome: Welcome) -> anyhow::Result<Self> {
        let socket = listener.accept().context("Accepting the agent failed")?;
        socket.set_timeout(Duration::from_secs(10))?;
        let mut wire = [0; HELLO_BYTES];
        socket
            .receive(&mut wire)
            .context("The agent did not introduce itself")?;
        let hello = Hello::decode(&wire)?;
        let ring_bytes = ring::bytes_for(RECORDS);
        let file = SharedFile::new("terrace-rings", 2 * ring_bytes as u64)?;
        let (to_agent, from_agent) = (EventFd::new()?, EventFd::new()?);
        let welcome = Welcome {
            ring_bytes: ring_bytes as u64,
            ..welcome
        };
        socket.send(
            &welcome.encode(),
            &[file.as_fd(), to_agent.as_fd(), from_agent.as_fd()],
        )?;
        Ok(Self {
            hello,
            socket,
            memory: file.map()?,
            ring_words: ring_bytes / 8,
            to_agent,
            from_agent,
        })
    }

    /// Whether the agent can move pages; else `hello.errno` says why not.
    pub(crate) const fn can_transact(&self) -> bool {
        self.hello.features & terrace_proto::features::TRANSACTIONS != 0
    }

    /// Whether the process is still there.
    pub(crate) fn is_there(&self) -> anyhow::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(
            self.socket.as_fd(),
            PollFlags::RDHUP,
        )];
        rustix::event::poll(&mut fds, Some(&Timespec::default()))?;
        Ok(fds[0].revents().is_empty())
    }

    fn ring(&self, second: bool) -> Ring<'_> {
        let start = if second { self.ring_words } else { 0 };
        Ring::new(&self.memory.words()[start..start + self.ring_words])
            .expect("a ring of 4096 records")
    }

    /// Sends a command; `false` where the ring is full.
    pub(crate) fn send(&self, command: &Command) -> bool {
        self.ring(false).push(&command.encode())
    }

    /// Wakes the agent.
    pub(crate) fn ring_bell(&self) {
        self.to_agent.ring();
    }

    /// The next report, if one waits.
    pub(crate) fn report(&self) -> anyhow::Result<Option<Report>> {
        self.ring(true)
            .pop()
            .map(|words| Report::decode(&words).context("Unreadable report"))
            .transpose()
    }

    /// Waits for reports, at most 100 ms; `false` where the agent is gone.
    pub(crate) fn wait(&self) -> anyhow::Result<bool> {
        let mut fds = [
            PollFd::from_borrowed_fd(self.from_agent.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::RDHUP),
        ];
        let limit = Timespec {
            tv_sec: 0,
            tv_nsec: 100_000_000,
        };
        rustix::event::poll(&mut fds, Some(&limit))?;
        self.from_agent.silence();
        Ok(fds[1].revents().is_empty())
    }
}
