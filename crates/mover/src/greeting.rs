// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection whose agent has not introduced itself yet.
//!
//! Whoever can run a program under Terrace can connect and say nothing, or half of it. So nothing here waits: the
//! caller looks when there is something to read, and drops who is not done within [`PATIENCE`]. Until
//! then a connection costs a descriptor and some bytes.

use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_proto::HELLO_BYTES;
use terrace_proto::Hello;
use terrace_sys::unix_channel::Channel;

use crate::agent::AgentLink;
use crate::agent::LinkError;
use crate::agent::Terms;
use crate::agent::socket;

/// An agent says who it is as soon as it has connected.
pub const PATIENCE: Nanos = Nanos::from_millis(1_000);

/// Half a connection.
#[derive(Debug)]
pub struct Greeting {
    pid: Pid,
    channel: Channel,
    wire: [u8; HELLO_BYTES],
    have: usize,
    until: Nanos,
}

/// How far it has come.
#[derive(Debug)]
pub enum Progress {
    /// There is more to come.
    Waiting(Greeting),
    /// It is an agent.
    Done(AgentLink),
    /// It is not, or took too long.
    Refused(LinkError),
}

impl Greeting {
    /// Of a process that has just connected.
    ///
    /// # Errors
    ///
    /// Where the kernel does not say who it is.
    pub fn new(channel: Channel, now: Nanos) -> Result<Self, LinkError> {
        let pid = channel
            .peer_pid()
            .map_err(socket("learn the peer's process id"))?;
        Ok(Self {
            pid: Pid(pid),
            channel,
            wire: [0; HELLO_BYTES],
            have: 0,
            until: now + PATIENCE,
        })
    }

    /// The process, as the kernel vouches for it.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// When it will be dropped.
    #[must_use]
    pub const fn until(&self) -> Nanos {
        self.until
    }

    /// Reads what is there, and answers when that is all.
    #[must_use]
    pub fn advance(mut self, now: Nanos, terms: Terms) -> Progress {
        match self.channel.receive_now(&mut self.wire[self.have..]) {
            Ok(bytes) => self.have += bytes,
            Err(source) => {
                let step = "receive the agent's hello";
                return Progress::Refused(LinkError::Socket { step, source });
            }
        }
        if self.have < HELLO_BYTES {
            return if now < self.until {
                Progress::Waiting(self)
            } else {
                Progress::Refused(LinkError::Silent)
            };
        }
        let opened = Hello::decode(&self.wire)
            .map_err(LinkError::from)
            .and_then(|hello| AgentLink::open(self.pid, hello, self.channel, terms));
        match opened {
            Ok(link) => Progress::Done(link),
            Err(error) => Progress::Refused(error),
        }
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
