// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agents' socket: who connects and introduces itself becomes a link.
//!
//! Anybody can connect. Who is not of the managed processes is dropped at once; of those each has one connection
//! that has not introduced itself yet, and all together [`HALF_OPEN_MAX`].

use std::fs;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;

use rustix::io::Errno;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_mover::agent::Terms;
use terrace_mover::greeting::Greeting;
use terrace_mover::greeting::Progress;
use terrace_sys::unix_channel::Listener;

/// Connections that have not introduced themselves yet.
pub const HALF_OPEN_MAX: usize = 64;
/// Accepted in one round; others wait in the kernel.
const ACCEPTED_AT_ONCE: usize = 16;
/// No connection is accepted for so long after one could not be.
const REST: Nanos = Nanos::from_millis(100);

/// The listening socket; removed when dropped.
#[derive(Debug)]
pub struct AgentSocket {
    listener: Listener,
    greetings: Vec<Greeting>,
    /// Nobody is accepted before.
    rests_until: Nanos,
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
        Ok(Self {
            listener,
            greetings: Vec::new(),
            rests_until: Nanos::ZERO,
            path,
        })
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

    /// Takes connections that wait, of processes that are `ours`.
    pub fn take(&mut self, now: Nanos, ours: impl Fn(Pid) -> bool) {
        for _ in 0..ACCEPTED_AT_ONCE {
            let channel = match self.listener.accept() {
                Ok(channel) => channel,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(error) => {
                    // No descriptor is left, for one; it would be told at once again.
                    tracing::warn!("Cannot accept an agent's connection: {error}");
                    self.rests_until = now + REST;
                    return;
                }
            };
            let Ok(greeting) = Greeting::new(channel, now) else {
                continue;
            };
            self.greetings.retain(|other| other.pid() != greeting.pid());
            if self.greetings.len() < HALF_OPEN_MAX && ours(greeting.pid()) {
                self.greetings.push(greeting);
            }
        }
    }

    /// Hears those that have connected; gives who has introduced itself.
    pub fn hear(&mut self, now: Nanos, terms: Terms) -> Vec<AgentLink> {
        let mut links = Vec::new();
        for greeting in std::mem::take(&mut self.greetings) {
            match greeting.advance(now, terms) {
                Progress::Waiting(greeting) => self.greetings.push(greeting),
                Progress::Done(link) => links.push(link),
                Progress::Refused(error) => tracing::debug!("{error:#}"),
            }
        }
        links
    }

    /// What to wait for.
    pub fn fds(&self, now: Nanos) -> impl Iterator<Item = BorrowedFd<'_>> {
        let listener = (now >= self.rests_until).then(|| self.listener.as_fd());
        listener
            .into_iter()
            .chain(self.greetings.iter().map(AsFd::as_fd))
    }

    /// When to look again at the latest.
    #[must_use]
    pub fn due(&self) -> Option<Nanos> {
        self.greetings.iter().map(Greeting::until).min()
    }
}

impl Drop for AgentSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn silent_connections_cost_nothing_and_strangers_are_dropped() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut socket = AgentSocket::open(dir.path()).expect("listening");
        let terms = Terms {
            copy_workers: 1,
            batch_pages: 1,
            commit: terrace_proto::Commit::Copy,
            copy_threads: 1,
            streaming: false,
        };
        let path = socket.path().to_owned();
        let connect = || UnixStream::connect(&path).expect("connects");
        let silent: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
        let begun = std::time::Instant::now();
        let now = Nanos::from_millis(5);
        for round in 0..5 {
            socket.take(now, |_| round > 0);
            assert!(socket.hear(now, terms).is_empty());
            // One process has one, and a stranger none.
            assert_eq!(socket.greetings.len(), usize::from(round > 0 && round < 5));
        }
        assert!(
            begun.elapsed().as_millis() < 500,
            "each would take a second"
        );
        let due = socket.due().expect("it is dropped then");
        assert_eq!(socket.fds(now).count(), 2);
        assert!(socket.hear(due, terms).is_empty());
        assert!(socket.greetings.is_empty() && socket.due().is_none());
        drop(silent);
    }
}
