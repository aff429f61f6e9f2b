// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run: waits on everything, feeds the engine, carries its actions to the movers.
//!
//! One thread. What it waits for: the tracker's ring, agents (connections, reports, their end), the
//! ordinary mover, the control socket, signals, the program's end, the policy's next deadline.
//! Whatever ends the run (the program, a signal, an error), kernel settings are put back by their
//! guard, and agents see the socket close and go quiet. `intake` is what comes in, `answers` what is
//! told over the control socket.

mod answers;
mod intake;
mod samples;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use rustix::event::Timespec;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_mover::ordinary::OrdinaryMover;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Evidence;
use terrace_sys::clock;
use terrace_sys::memory_blocks::MemoryBlocks;
use terrace_sys::process::PidFd;
use terrace_sys::procmaps::MapsFile;
use terrace_sys::topology::memory::MemoryReader;

use crate::control;
use crate::control::Control;
use crate::cpu::Agents;
use crate::footprint;
use crate::group::Members;
use crate::inventory::Inventory;
use crate::latencies::Latencies;
use crate::links::AgentSocket;
use crate::machine::LinuxMachine;
use crate::mappings::Mappings;
use crate::memory::largest;
use crate::options::Options;
use crate::options::Target;
use crate::program;
use crate::program::End;
use crate::report::Status;
use crate::signals::Signals;
use crate::tracking;
use crate::tracking::Tracking;

/// Reads of the tracker are this far apart, unless much waits to be read; for samples, at most.
/// Faults carry their own times, so nothing but the age of a decision depends on it, and many at a
/// time are cheaper: neighbours share what has to be looked up.
const TRACK_INTERVAL: Duration = Duration::from_millis(100);

/// How a run ended.
#[derive(Debug)]
pub struct Finished {
    /// How the program ended.
    pub end: End,
    /// The last figures.
    pub status: Status,
}

/// What is in the machine.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Its tiers, as the policy sees them.
    pub tiers: Tiers,
    /// Why something does not work as asked.
    pub limits: Vec<String>,
    /// The slow tier is there in name only: nothing can be moved, so nothing is watched.
    pub in_name: bool,
}

struct Session {
    options: Options,
    setting: Setting,
    engine: Engine,
    machine: LinuxMachine,
    tracking: Option<Tracking>,
    /// The policy decides by samples, and wants to know what is mapped.
    mappings: Option<Mappings>,
    blocks: MemoryBlocks,
    socket: Option<AgentSocket>,
    control: Control,
    members: Option<Members>,
    memory: MemoryReader,
    latencies: Option<Latencies>,
    inventory: Inventory,
    managed: BTreeSet<Pid>,
    started: Nanos,
    memory_due: Nanos,
    watermarks_due: Nanos,
    track_due: Nanos,
    agents_cpu: Agents,
}

/// Runs until the program ends or a signal comes.
///
/// # Errors
///
/// Where the run cannot be set up; nothing was changed then.
pub fn run(options: Options, setting: Setting) -> anyhow::Result<Finished> {
    let mut settings = options.settings.clone();
    let policy = terrace_policy::with_settings(&options.policy, &setting.tiers, &mut settings)?;
    settings.finish()?;
    let mut signals = Signals::register().context("Cannot watch signals")?;
    let mut session = Session::open(options, setting, policy)?;
    let end = session.manage(&mut signals)?;
    session.settle();
    Ok(Finished {
        end,
        status: session.status(),
    })
}

/// What the waiting found ready. What is not is not asked: a question to the kernel costs as much
/// as the handling of a hint fault, and there are thousands of rounds.
#[derive(Debug, Clone)]
struct Ready {
    ended: bool,
    signalled: bool,
    asked: bool,
    moved: bool,
    tracked: bool,
    connecting: bool,
    /// Agents that rang.
    reporting: Vec<Pid>,
    /// Agents that have gone.
    leaving: Vec<Pid>,
}

impl Session {
    fn open(
        options: Options,
        mut setting: Setting,
        policy: Box<dyn terrace_policy::Policy>,
    ) -> anyhow::Result<Self> {
        let dir = control::run_dir();
        let control = Control::open(&dir)?;
        let wants_agent = options.agent && !matches!(options.target, Target::Running(_));
        let socket = if wants_agent {
            Some(AgentSocket::open(&dir).context("Cannot open the agents' socket")?)
        } else {
            None
        };
        let members = match &options.target {
            Target::Group(name) => Some(
                Members::open(&dir, name, clock::now())
                    .context("Cannot give the group its name")?,
            ),
            _ => None,
        };
        let evidence = policy.evidence();
        let mut tracking = Self::open_tracking(&options, &mut setting, evidence)?;
        if let Some(tracking) = &mut tracking
            && options.paused
        {
            tracking.pause(true);
        }
        let mut engine = Engine::new(policy);
        engine.set_paused(options.paused);
        let now = clock::now();
        Ok(Self {
            engine,
            machine: LinuxMachine::new(OrdinaryMover::start().context("Cannot start the mover")?),
            tracking,
            mappings: (evidence == Evidence::Samples).then(Mappings::default),
            blocks: MemoryBlocks::read(Path::new("/")),
            socket,
            control,
            members,
            memory: MemoryReader::open(Path::new("/"))?,
            latencies: (evidence == Evidence::AccessedBits).then(Latencies::default),
            inventory: Inventory::default(),
            managed: BTreeSet::new(),
            started: now,
            memory_due: now,
            watermarks_due: now,
            track_due: now,
            agents_cpu: Agents::default(),
            options,
            setting,
        })
    }

    fn open_tracking(
        options: &Options,
        setting: &mut Setting,
        evidence: Evidence,
    ) -> anyhow::Result<Option<Tracking>> {
        let list = tracking::candidates(evidence, &options.trackers).with_context(|| {
            let name = &options.policy;
            format!("Policy '{name}' decides by hint faults; use --tracker hint-faults or auto")
        })?;
        if setting.tiers.count() < 2 || setting.in_name {
            return Ok(None);
        }
        let opened = tracking::open(evidence, &list, options, &setting.tiers);
        if let Some(limit) = opened.limit {
            (options.tell)(&limit);
            setting.limits.push(limit);
        }
        Ok(opened.tracking)
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
                footprint::live_in_the_slow_tier(&self.setting.tiers);
                self.add_family(pid);
                self.wait_loop(signals, &process)?;
                Ok(End::Code(0))
            }
            Target::Group(_) => {
                let process = PidFd::open(Pid(std::process::id()))
                    .context("Cannot watch the supervisor itself")?;
                footprint::live_in_the_slow_tier(&self.setting.tiers);
                self.wait_loop(signals, &process)?;
                Ok(End::Code(0))
            }
            Target::Program(argv) => {
                let library = match &self.socket {
                    Some(_) => Some(program::find_agent(self.options.agent_path.as_deref())?),
                    None => None,
                };
                let agent = library
                    .as_deref()
                    .zip(self.socket.as_ref().map(AgentSocket::path));
                let mut child = program::start(&argv, agent)?;
                footprint::live_in_the_slow_tier(&self.setting.tiers);
                let pid = Pid(child.id());
                let process = PidFd::open(pid).context("Cannot watch the program")?;
                self.add_family(pid);
                self.wait_loop(signals, &process)?;
                let status = child.wait().context("Cannot learn how the program ended")?;
                Ok(End::of(status))
            }
        }
    }

    fn wait_loop(&mut self, signals: &mut Signals, process: &PidFd) -> anyhow::Result<()> {
        let mut ready = self.wait(Nanos::ZERO, signals, process.as_fd())?;
        loop {
            let now = clock::now();
            let deadline = self.work(now, &ready);
            ready = self.wait(deadline.since(now), signals, process.as_fd())?;
            if self
                .members
                .as_mut()
                .is_some_and(|members| members.is_over(now))
            {
                return Ok(());
            }
            if ready.signalled {
                match self.options.target {
                    Target::Program(_) => signals.pass_on(process),
                    // A program that runs anyway is let go, as is a group.
                    Target::Running(_) | Target::Group(_) if !signals.take().is_empty() => {
                        return Ok(());
                    }
                    Target::Running(_) | Target::Group(_) => {}
                }
            }
            if ready.ended {
                return Ok(());
            }
        }
    }

    /// One round: events in, actions out. Gives the time of the next one at the latest.
    fn work(&mut self, now: Nanos, ready: &Ready) -> Nanos {
        self.sample_memory(now);
        self.measure_latencies(now);
        let samples = self.tracking.as_ref().is_some_and(Tracking::samples);
        if samples || ready.tracked || now >= self.track_due {
            self.track_due = now + Nanos::from(TRACK_INTERVAL);
            self.track(now);
        }
        self.look_at_mappings(now);
        if ready.moved {
            self.machine.ordinary.silence();
        }
        for pid in &ready.reporting {
            if let Some(link) = self.machine.links.get(pid) {
                link.silence();
            }
        }
        self.take_reports(now);
        if ready.connecting {
            self.take_connections(now);
        }
        for pid in &ready.leaving {
            self.drop_dead_link(now, *pid);
        }
        if ready.asked {
            self.serve();
        }
        if self.inventory.active() {
            let (tiers, engine) = (&self.setting.tiers, &mut self.engine);
            self.inventory.step(
                |node| tiers.is_top(node),
                |page, node| engine.observe(now, &Event::Resident { page, node }),
            );
        }
        let deadline = self.engine.pump(now, &mut self.machine);
        self.machine.flush();
        if std::mem::take(&mut self.machine.inventory_wanted) {
            self.inventory.start(self.managed.iter().copied());
        }
        if let Some((scope, period)) = self.machine.scan_wanted.take()
            && let Some(tracking) = &mut self.tracking
        {
            tracking.scan(scope, period, largest(self.managed.iter().copied()));
        }
        if let Some((shortest, pass)) = self.machine.read_wanted.take()
            && let Some(tracking) = &mut self.tracking
        {
            tracking.read(shortest, pass);
        }
        let busy = self.inventory.active();
        let next = deadline.min(self.memory_due).min(self.track_due);
        if busy { now } else { next }
    }

    /// After the end: what movers still say is counted, so that the books are closed.
    fn settle(&mut self) {
        let now = clock::now();
        let until = now + Nanos::from_millis(200);
        let pids: Vec<Pid> = self.machine.links.keys().copied().collect();
        self.take_reports(now);
        for pid in pids {
            self.machine.forget(now, pid, &mut self.engine);
        }
        self.machine.flush();
        while self.machine.in_flight() > 0 && clock::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.take_reports(clock::now());
        }
    }

    fn wait(
        &self,
        timeout: Nanos,
        signals: &Signals,
        end: BorrowedFd<'_>,
    ) -> anyhow::Result<Ready> {
        let mut fds = vec![
            PollFd::from_borrowed_fd(end, PollFlags::IN),
            PollFd::new(signals, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
            PollFd::from_borrowed_fd(self.machine.ordinary.fd(), PollFlags::IN),
        ];
        let fixed = fds.len();
        let tracker = self.tracking.as_ref().and_then(Tracking::fd);
        fds.extend(tracker.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let tracked = fixed..fds.len();
        fds.extend(self.socket.as_ref().map(|s| PollFd::new(s, PollFlags::IN)));
        let connecting = tracked.end..fds.len();
        for link in self.machine.links.values() {
            fds.push(PollFd::from_borrowed_fd(link.report_fd(), PollFlags::IN));
            fds.push(PollFd::from_borrowed_fd(link.socket_fd(), PollFlags::RDHUP));
        }
        let timeout = Timespec::try_from(Duration::from(timeout)).ok();
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("Cannot wait for events"),
        }
        let hit = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (mut reporting, mut leaving) = (Vec::new(), Vec::new());
        let links = fds[connecting.end..].chunks_exact(2);
        for (pid, fds) in self.machine.links.keys().zip(links) {
            reporting.extend(hit(&fds[0]).then_some(*pid));
            leaving.extend(hit(&fds[1]).then_some(*pid));
        }
        Ok(Ready {
            ended: hit(&fds[0]),
            signalled: hit(&fds[1]),
            asked: hit(&fds[2]),
            moved: hit(&fds[3]),
            tracked: fds[tracked].iter().any(hit),
            connecting: fds[connecting].iter().any(hit),
            reporting,
            leaving,
        })
    }
}
