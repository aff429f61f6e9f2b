// SPDX-License-Identifier: MIT OR Apache-2.0
//! The event loop of one run: waits on everything for its [`Domain`], starts the program, sees its end.
//!
//! One thread. What it waits for: what the domain reads of (tracker, movers, agents), agents that connect, the
//! control socket, signals, the program's end, the domain's next deadline. Whatever ends the run (the
//! program, a signal, an error), kernel settings are put back by their guard, and agents see the socket
//! close and go quiet.

use std::ops::Range;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_api::Answer;
use terrace_api::Request;
use terrace_api::Status;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_sys::clock;
use terrace_sys::process::PidFd;
use terrace_sys::procmaps::MapsFile;

use crate::control;
use crate::control::Control;
use crate::domain;
use crate::domain::Domain;
use crate::family::Family;
use crate::footprint;
use crate::group::Members;
use crate::host::Host;
use crate::links::AgentSocket;
use crate::options::Options;
use crate::options::Target;
use crate::program;
use crate::program::End;
use crate::signals::Signals;

/// Who ended is looked for so often, if nothing tells of it.
const REAP_INTERVAL: Nanos = Nanos::from_millis(200);

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// How the program ended.
    pub end: End,
    /// The last figures.
    pub status: Status,
}

struct Session {
    options: Options,
    domain: Domain,
    socket: Option<AgentSocket>,
    control: Control,
    reap_due: Nanos,
}

/// Runs until the program ends or a signal comes.
///
/// # Errors
///
/// Where the run cannot be set up; nothing was changed then.
pub fn run(options: Options, host: Host) -> anyhow::Result<Finished> {
    let starts = matches!(options.target, Target::Program(_));
    let mut signals = Signals::register(starts).context("Cannot watch signals")?;
    let mut session = Session::open(options, host)?;
    let end = session.manage(&mut signals)?;
    session.domain.settle();
    Ok(Finished {
        end,
        status: session.domain.status(),
    })
}

/// Whose end ends the run.
#[derive(Debug)]
enum Waiting {
    /// A process that is not ours.
    On(PidFd),
    /// The program and what descends from it.
    For(Family),
}

/// What the waiting found ready.
#[derive(Debug, Clone, Default)]
struct Ready {
    ended: bool,
    signalled: bool,
    asked: bool,
    connecting: bool,
    domain: domain::Ready,
}

impl Session {
    fn open(options: Options, host: Host) -> anyhow::Result<Self> {
        let dir = control::run_dir();
        let control = Control::open(&dir)?;
        let wants_agent = host.fit.agent() && !matches!(options.target, Target::Running(_));
        let socket = wants_agent.then(|| AgentSocket::open(&dir)).transpose();
        Ok(Self {
            socket: socket.context("Cannot open the agents' socket")?,
            domain: Domain::open(&options, host, members(&options, &dir)?)?,
            control,
            reap_due: clock::now(),
            options,
        })
    }

    /// Starts or adopts the program, then waits for its end.
    fn manage(&mut self, signals: &mut Signals) -> anyhow::Result<End> {
        match self.options.target.clone() {
            Target::Running(pid) => {
                let process =
                    PidFd::open(pid).with_context(|| format!("Cannot attach to process {pid}"))?;
                // As ptrace(2) would ask, PTRACE_MODE_READ.
                MapsFile::of(pid.0)
                    .with_context(|| format!("Cannot attach to process {pid}: it is not yours"))?;
                footprint::settle(self.domain.tiers());
                self.domain.add_family(pid);
                self.wait_loop(signals, Waiting::On(process))
            }
            Target::Group(_) => {
                let process = PidFd::open(Pid(std::process::id()))
                    .context("Cannot watch the supervisor itself")?;
                footprint::settle(self.domain.tiers());
                self.wait_loop(signals, Waiting::On(process))
            }
            Target::Program(argv) => {
                let library = match &self.socket {
                    Some(_) => Some(program::find_agent(self.options.agent_path.as_deref())?),
                    None => None,
                };
                let agent = library
                    .as_deref()
                    .zip(self.socket.as_ref().map(AgentSocket::path));
                let follow = self.options.follow;
                let placement = self.domain.first_placement();
                let family =
                    footprint::started_with(placement, || Family::start(&argv, agent, follow))?;
                self.domain.add(family.pid());
                self.domain.add_new(|| family.members());
                footprint::settle(self.domain.tiers());
                self.wait_loop(signals, Waiting::For(family))
            }
        }
    }

    fn wait_loop(&mut self, signals: &mut Signals, mut until: Waiting) -> anyhow::Result<End> {
        let mut ready = self.wait(Nanos::ZERO, signals, &until)?;
        loop {
            let now = clock::now();
            let deadline = self.work(now, &ready);
            ready = self.wait(deadline.since(now), signals, &until)?;
            if self.domain.is_over(now) {
                return Ok(End::Code(0));
            }
            match &mut until {
                // A program that runs anyway is let go, as is a group.
                Waiting::On(_) => {
                    let told = ready.signalled && !signals.take().is_empty();
                    if told || ready.ended {
                        return Ok(End::Code(0));
                    }
                }
                Waiting::For(family) => {
                    if ready.signalled || ready.ended || now >= self.reap_due {
                        self.reap_due = now + REAP_INTERVAL;
                        let lived = family.fd().is_some();
                        family.reap();
                        // It may have ended before it was tracked, and nobody told of its children.
                        if lived && family.fd().is_none() {
                            self.domain.add_new(|| family.members());
                        }
                        family.heed(signals);
                        family.stop_with_it();
                    }
                    if let Some(end) = family.end() {
                        return Ok(end);
                    }
                }
            }
        }
    }

    /// One round: events in, actions out. Gives the time of the next one at the latest.
    fn work(&mut self, now: Nanos, ready: &Ready) -> Nanos {
        self.domain.take_in(now, &ready.domain);
        let silent = self.socket.as_ref().and_then(AgentSocket::due);
        if ready.connecting || silent.is_some_and(|due| now >= due) {
            self.take_connections(now);
        }
        if ready.asked {
            self.serve();
        }
        let deadline = self.domain.act(now);
        let silent = self.socket.as_ref().and_then(AgentSocket::due);
        silent.into_iter().fold(deadline, Nanos::min)
    }

    fn take_connections(&mut self, now: Nanos) {
        if let Some(socket) = &mut self.socket {
            socket.take(now, |pid| self.domain.is_ours(pid));
            for link in socket.hear(now, self.domain.terms()) {
                self.domain.connected(now, link);
            }
        }
    }

    /// Answers who asks over the control socket.
    fn serve(&mut self) {
        while let Some(question) = self.control.next() {
            match question.request {
                Request::Status => {}
                Request::Pause => self.domain.pause(true),
                Request::Resume => self.domain.pause(false),
                Request::Join(join) => self.domain.join(join),
                Request::Why(about) => {
                    question.answer(&Answer::Why(Box::new(self.domain.why(about))));
                    continue;
                }
            }
            question.answer(&Answer::Status(Box::new(self.domain.status())));
        }
    }

    fn wait(&self, timeout: Nanos, signals: &Signals, until: &Waiting) -> anyhow::Result<Ready> {
        let now = clock::now();
        let end = match until {
            Waiting::On(process) => Some(process.as_fd()),
            Waiting::For(family) => family.fd(),
        };
        let mut fds = vec![
            match end {
                Some(end) => PollFd::from_borrowed_fd(end, PollFlags::IN),
                // Never ready.
                None => PollFd::new(signals, PollFlags::empty()),
            },
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
        ];
        let connecting = extend(&mut fds, self.half_open(now));
        let domain = extend(&mut fds, self.domain.fds(now));
        let timeout = Timespec::try_from(Duration::from(timeout)).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("Cannot wait for events"),
        }
        let hit = |fd: &PollFd<'_>| !fd.revents().is_empty();
        Ok(Ready {
            ended: hit(&fds[0]),
            signalled: hit(&fds[1]),
            asked: hit(&fds[2]),
            connecting: fds[connecting].iter().any(hit),
            domain: self.domain.ready(&fds[domain]),
        })
    }

    /// Connections of agents that have not introduced themselves yet.
    fn half_open(&self, now: Nanos) -> impl Iterator<Item = PollFd<'_>> {
        let fds = self.socket.iter().flat_map(move |socket| socket.fds(now));
        fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
    }
}

/// Adds descriptors; gives where they are.
fn extend<'a>(
    fds: &mut Vec<PollFd<'a>>,
    more: impl IntoIterator<Item = PollFd<'a>>,
) -> Range<usize> {
    let from = fds.len();
    fds.extend(more);
    from..fds.len()
}

/// Of a group: its name, and nobody in it yet.
fn members(options: &Options, dir: &Path) -> anyhow::Result<Option<Members>> {
    let Target::Group(name) = &options.target else {
        return Ok(None);
    };
    let members = Members::open(dir, name, clock::now());
    Ok(Some(members.context("Cannot give the group its name")?))
}
