// SPDX-License-Identifier: MIT OR Apache-2.0
//! Several programs under one supervisor: they share one policy and one budget (HeMem 3.4).
//!
//! `terrace run --group NAME` runs its program itself, as a *member*, and lets the group's supervisor
//! manage it; the first member starts that one in the background. The group's name is a link in the
//! run directory to the supervisor's control socket. A member says twice who it is: before its
//! program starts (whatever descends from the member belongs to the group) and afterwards (which
//! process it is, for programs without an agent). The supervisor ends when its last member has.
//!
//! [`Members`] is the supervisor's part, [`join`] and [`run_member`] the member's.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

use anyhow::Context;
use anyhow::bail;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use rustix::fs::FlockOperation;
use terrace_api::Join;
use terrace_api::Request;
use terrace_api::Status;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_policy::Share;
use terrace_sys::process::Stat;
use terrace_sys::process::lineage;

use crate::control;
use crate::family::Family;
use crate::links::AgentSocket;
use crate::program;
use crate::program::End;
use crate::signals::Signals;

/// How long the supervisor waits for its first member, and a member for its supervisor.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the members are looked at.
const LOOK: Nanos = Nanos::from_millis(200);
/// A member looks so often who of its program's descendants has ended, if nothing tells of it.
const LOOK_AGAIN: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// The members of a group, as their supervisor knows them.
#[derive(Debug)]
pub struct Members {
    link: PathBuf,
    /// What each member has beside the others.
    hosts: BTreeMap<Pid, Share>,
    next_look: Nanos,
    empty_since: Nanos,
    anybody: bool,
}

impl Members {
    /// Gives the group its name: a link to this supervisor's control socket.
    ///
    /// # Errors
    ///
    /// What the file system says.
    pub fn open(dir: &Path, name: &str, now: Nanos) -> io::Result<Self> {
        let link = link(dir, name);
        let _ = fs::remove_file(&link);
        symlink(format!("{}.sock", std::process::id()), &link)?;
        Ok(Self {
            link,
            hosts: BTreeMap::new(),
            next_look: now,
            empty_since: now,
            anybody: false,
        })
    }

    /// A member says who it is.
    pub fn joined(&mut self, join: Join) {
        self.anybody = true;
        self.hosts.insert(Pid(join.member), join.share());
    }

    /// What a process has that descends from a member, together with all that do.
    #[must_use]
    pub fn share(&self, pid: Pid) -> Option<Share> {
        lineage(pid).find_map(|pid| self.hosts.get(&pid).copied())
    }

    /// Forgets members that have ended; whether the group has come to its end.
    pub fn is_over(&mut self, now: Nanos) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + LOOK;
        self.hosts
            .retain(|pid, _| Stat::read(*pid).is_ok_and(|stat| stat.state != 'Z'));
        if !self.hosts.is_empty() {
            self.empty_since = now;
        }
        let wait = if self.anybody {
            LOOK
        } else {
            Nanos::from(PATIENCE)
        };
        now.since(self.empty_since) > wait
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.link);
    }
}

fn link(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("group-{name}"))
}

/// Whether a group may be called so.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !name.is_empty() && name.len() <= 64 && name.chars().all(plain)
}

/// Joins the group, starting its supervisor by `host` where none runs. Gives what the supervisor
/// says of itself.
///
/// # Errors
///
/// Where the supervisor does not come up.
pub fn join(name: &str, share: Share, host: &mut Command) -> anyhow::Result<Status> {
    let dir = control::run_dir();
    control::own_directory(&dir)?;
    let lock = File::create(dir.join(format!("group-{name}.lock")))
        .with_context(|| format!("Cannot write to {}", dir.display()))?;
    // One member at a time, so that one supervisor is started.
    rustix::fs::flock(&lock, FlockOperation::LockExclusive)?;
    let me = Request::Join(me(share, None));
    if let Some(status) = ask(&dir, name, me)? {
        return Ok(status);
    }
    let log = dir.join(format!("group-{name}.log"));
    let errors = File::create(&log).with_context(|| format!("Cannot write {}", log.display()))?;
    let mut supervisor = host
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors)
        // It outlives this member, and the terminal's Ctrl-C is not meant for it.
        .process_group(0)
        .spawn()
        .context("Cannot start the group's supervisor")?;
    let begun = Instant::now();
    loop {
        if let Some(status) = ask(&dir, name, me)? {
            return Ok(status);
        }
        let ended = supervisor.try_wait()?;
        if ended.is_some() || begun.elapsed() > PATIENCE {
            let text = fs::read_to_string(&log).unwrap_or_default();
            bail!(
                "The supervisor of group '{name}' did not come up: {}",
                text.trim_end()
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// This process as a member, whose program is that.
fn me(share: Share, program: Option<u32>) -> Join {
    Join {
        member: std::process::id(),
        priority: share.priority,
        floor_bytes: share.floor_bytes,
        ceiling_bytes: share.ceiling_bytes,
        program,
    }
}

fn ask(dir: &Path, name: &str, request: Request) -> anyhow::Result<Option<Status>> {
    let path = link(dir, name);
    if !path.exists() {
        return Ok(None);
    }
    Ok(control::ask(&path, request)?)
}

/// How a program is a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Membership {
    /// What it has beside the others.
    pub share: Share,
    /// It gets the agent.
    pub agent: bool,
    /// What descends from it is managed, too.
    pub follow: bool,
}

/// Runs a program as member of the group whose supervisor is `supervisor`. Gives how it ended and the
/// group's last figures.
///
/// # Errors
///
/// Where the program cannot be started.
pub fn run_member(
    name: &str,
    supervisor: &Status,
    join: Membership,
    argv: &[OsString],
) -> anyhow::Result<(End, Option<Status>)> {
    let Membership {
        share,
        agent,
        follow,
    } = join;
    let dir = control::run_dir();
    let mut signals = Signals::register(false).context("Cannot watch signals")?;
    let library = program::find_agent(None)?;
    let socket = AgentSocket::path_of(&dir, supervisor.supervisor_pid);
    let preload = agent.then_some((library.as_path(), socket.as_path()));
    let mut family = Family::start(argv, preload, follow)?;
    let me = Request::Join(me(share, Some(family.pid().0)));
    // Without its supervisor the program runs on as it is.
    if let Err(error) = ask(&dir, name, me) {
        tracing::warn!("Group '{name}': {error:#}");
    }
    let end = loop {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        let ends = family.fd();
        fds.extend(ends.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        match rustix::event::poll(&mut fds, Some(&LOOK_AGAIN)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("Cannot wait for the program"),
        }
        drop(fds);
        family.reap();
        family.heed(&mut signals);
        if let Some(end) = family.end() {
            break end;
        }
    };
    let figures = ask(&dir, name, Request::Status).ok().flatten();
    Ok((end, figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert!(is_name("web-1_a"));
        for bad in ["", "a/b", "..", "a b", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_group_ends_with_its_last_member_and_its_name_goes() {
        let dir = std::env::temp_dir().join(format!("terrace-group-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let second = Nanos::from_millis(1000);
        let mut members = Members::open(&dir, "g", second).expect("a link");
        assert!(!members.is_over(second + second), "nobody was there yet");
        let me = std::process::id();
        let share = Share {
            whose: Some(Pid(me)),
            priority: 3,
            floor_bytes: 1 << 30,
            ceiling_bytes: None,
        };
        members.joined(super::me(share, None));
        assert_eq!(members.share(Pid(me)), Some(share));
        assert_eq!(members.share(Pid(1)), None);
        let mut child = Command::new("true").spawn().expect("a child");
        assert_eq!(members.share(Pid(child.id())), Some(share));
        child.wait().expect("it ends");
        let mut now = second + second + second;
        assert!(!members.is_over(now));
        members.hosts.clear();
        members.joined(Join {
            member: child.id(),
            ..super::me(Share::default(), None)
        });
        let _ = members.is_over(now + LOOK);
        now = now + second;
        assert!(members.is_over(now));
        drop(members);
        assert!(!link(&dir, "g").is_symlink());
        let _ = fs::remove_dir_all(&dir);
    }
}
