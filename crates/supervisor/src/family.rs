// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that a run starts and what descends from it: how long the run goes on, and how it ends.
//!
//! As with `strace -f`: the run ends when the last of them has, and as the program itself did. A program that
//! puts itself into the background (forks, and its first process ends) is managed on. For that this process
//! is the one to whom its orphans go, instead of init (`PR_SET_CHILD_SUBREAPER`, Linux 3.4), and what init does
//! for them it does: it takes note of their ends and nothing else. Who was a child of this process before the
//! program was started is none of the family.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::Context;
use rustix::process::WaitOptions;
use terrace_core::Pid;
use terrace_sys::job_control;
use terrace_sys::process;
use terrace_sys::process::PidFd;
use terrace_sys::process::ProcessError;
use terrace_sys::process::Signal;
use terrace_sys::process::Stat;
use terrace_sys::process::lineage;

use crate::program;
use crate::program::End;
use crate::signals;
use crate::signals::Signals;

/// Ends noted in one go.
const REAPED_AT_ONCE: usize = 1024;

/// The program and its descendants.
#[derive(Debug)]
pub(crate) struct Family {
    program: PidFd,
    /// Descendants count, too.
    follow: bool,
    /// Children of this process that it had before.
    strangers: BTreeSet<Pid>,
    /// The program has stopped as a job of a shell does, and this process not yet.
    stopped: bool,
    /// How the program ended.
    end: Option<End>,
    over: bool,
}

impl Family {
    /// Starts the program; `agent` is the library and the supervisor's socket.
    ///
    /// # Errors
    ///
    /// Where it cannot be started.
    pub(crate) fn start(
        argv: &[OsString],
        agent: Option<(&Path, &Path)>,
        follow: bool,
    ) -> anyhow::Result<Self> {
        let strangers = own_children().unwrap_or_default().into_iter().collect();
        if follow && let Err(error) = process::adopt_orphans() {
            tracing::warn!("The run ends with its first process: {error}");
        }
        // Its end is noted here, not by std.
        let pid = Pid(program::start(argv, agent)?.id());
        Ok(Self {
            program: PidFd::open(pid).context("Cannot watch the program")?,
            follow,
            strangers,
            stopped: false,
            end: None,
            over: false,
        })
    }

    pub(crate) const fn pid(&self) -> Pid {
        self.program.pid()
    }

    /// Readable when the program ends; none when it has. The end of others makes a SIGCHLD.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.end.is_none().then(|| self.program.as_fd())
    }

    /// How it came out, when all is over.
    pub(crate) fn end(&self) -> Option<End> {
        self.end.filter(|_| self.over)
    }

    /// Notes who has ended, and whether the program has stopped.
    pub(crate) fn reap(&mut self) {
        for _ in 0..REAPED_AT_ONCE {
            match rustix::process::wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
                Ok(Some((pid, status))) => {
                    if pid.as_raw_nonzero().get().cast_unsigned() == self.pid().0 {
                        self.stopped = status.stopping_signal() == Some(signals::STOP);
                        let ended = !status.stopped();
                        self.end = ended.then(|| End::of(ExitStatus::from_raw(status.as_raw())));
                    }
                }
                Err(rustix::io::Errno::INTR) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.over = self.end.is_some() && !(self.follow && self.has_others());
    }

    /// Whether somebody is left. Where the kernel does not tell children, nobody is taken to be; where they cannot be told now,
    /// for lack of a descriptor, somebody is.
    fn has_others(&self) -> bool {
        match own_children() {
            Ok(children) => children.iter().any(|pid| !self.strangers.contains(pid)),
            Err(error) => !matches!(error, ProcessError::Gone(_)),
        }
    }

    /// Signals that came are the program's; once it has ended, they let go what is left of the family.
    pub(crate) fn heed(&mut self, signals: &mut Signals) {
        for came in signals.take() {
            let from_family = came.sender.is_some_and(|sender| self.includes(sender));
            match came.sender {
                // Of the program alone there is no job left.
                _ if came.signal == signals::STOP && self.end.is_some() => stop(),
                _ if from_family => {}
                _ if self.end.is_some() => self.over = true,
                Some(_) => came.pass_on(&self.program),
                // The terminal has sent it to the program as well.
                None => {}
            }
        }
    }

    /// Stops where the program has, and continues with it. One that was stopped otherwise (SIGSTOP) is theirs who
    /// did that.
    pub(crate) fn stop_with_it(&mut self) {
        while std::mem::take(&mut self.stopped) {
            stop();
            let halted = Stat::read(self.pid()).is_ok_and(|stat| stat.state == 'T');
            // Whether that is another stop: then this process is to follow again.
            self.reap();
            // Who continued this process alone meant both.
            if halted && !self.stopped {
                let _ = self.program.signal(Signal::CONT);
            }
        }
    }

    /// All of it that live, but for who is forked meanwhile.
    pub(crate) fn members(&self) -> Vec<Pid> {
        let children = own_children().unwrap_or_default();
        let own = children
            .into_iter()
            .filter(|child| !self.strangers.contains(child));
        own.flat_map(|child| {
            let below = process::descendants(child).unwrap_or_default();
            std::iter::once(child).chain(below)
        })
        .filter(|pid| Stat::read(*pid).is_ok_and(|stat| stat.state != 'Z'))
        .collect()
    }

    /// Whether a process is of the family. One that has ended is taken for a stranger.
    fn includes(&self, pid: Pid) -> bool {
        let me = Pid(std::process::id());
        let mut below = None;
        for one in lineage(pid) {
            if one == me {
                return below.is_some_and(|child| !self.strangers.contains(&child));
            }
            below = Some(one);
        }
        false
    }
}

/// As a job of a shell.
fn stop() {
    if let Err(error) = job_control::stop_by(signals::STOP) {
        tracing::warn!("Cannot stop with the program: {error}");
    }
}

fn own_children() -> Result<Vec<Pid>, ProcessError> {
    process::children(Pid(std::process::id()))
}
