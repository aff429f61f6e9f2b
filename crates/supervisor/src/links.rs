// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agents' socket: who connects becomes a link.

use std::fs;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::io::Errno;
use terrace_mover::agent::AgentLink;
use terrace_mover::agent::LinkError;
use terrace_mover::agent::Terms;
use terrace_sys::unix_channel::Listener;

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub struct AgentSocket {
    listener: Listener,
    path: PathBuf,
}

impl AgentSocket {
    /// Opens `agent-<pid>` in the run directory, which is there ([`crate::control::own_directory`]). Anybody may connect, as a managed program may run
    /// as any user; who it is is known by the kernel's word, and only managed processes are taken.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn open(dir: &Path) -> std::io::Result<Self> {
        let path = Self::path_of(dir, std::process::id());
        let _ = fs::remove_file(&path);
        let listener = Listener::bind(&path)?;
        // The program may run as another user by the time its agent connects.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        let flags = rustix::fs::fcntl_getfl(&listener)? | rustix::fs::OFlags::NONBLOCK;
        rustix::fs::fcntl_setfl(&listener, flags)?;
        Ok(Self { listener, path })
    }

    /// Where the supervisor with that process id has it.
    #[must_use]
    pub fn path_of(dir: &Path, supervisor: u32) -> PathBuf {
        dir.join(format!("agent-{supervisor}"))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Takes one waiting connection, if there is one.
    ///
    /// # Errors
    ///
    /// Where the peer is no agent of this version.
    pub fn accept(&self, terms: Terms) -> Option<Result<AgentLink, LinkError>> {
        match self.listener.accept() {
            Ok(channel) => Some(AgentLink::accept(channel, terms)),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(source) => Some(Err(LinkError::Socket {
                step: "accept a connection",
                source,
            })),
        }
    }
}

impl AsFd for AgentSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
