// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is managed together: an engine, the machine under it, the processes, the budget.
//!
//! A domain waits for nothing and knows no signal, socket or program: who has a loop ([`crate::session`]) polls its
//! descriptors, hands it what is ready ([`Domain::take_in`]), lets it act ([`Domain::act`]) and comes back at the
//! time it gives. So one loop can have many. [`processes`] is who belongs to it, [`status`] its figures.

mod looks;
mod processes;
mod status;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use anyhow::Context;
use rustix::event::PollFd;
use rustix::event::PollFlags;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_mover::agent::Terms;
use terrace_policy::Engine;
use terrace_policy::MachineOptions;
use terrace_sys::clock;
use terrace_sys::mempolicy;

use crate::budget::Budget;
use crate::cpu::Agents;
use crate::footprint;
use crate::group::Members;
use crate::host::Host;
use crate::machine::LinuxMachine;
use crate::options::Options;
use crate::options::Target;
use crate::tracking;
use crate::tracking::Trackers;
use looks::MemoryLooks;
use looks::TrackLooks;

/// What changes slowly is looked at so often: watermarks, sizes, who is gone and nobody told.
const REFRESH_INTERVAL: Nanos = Nanos::from_secs(10);
/// After the end, movers are waited for so long.
const SETTLE_MAX: Nanos = Nanos::from_millis(200);

/// See the module.
#[derive(Debug)]
pub struct Domain {
    engine: Engine,
    machine: LinuxMachine,
    /// With a cap on the fast tier.
    budget: Option<Budget>,
    /// Of a group: its members and their priorities.
    members: Option<Members>,
    /// Children of its processes belong to it.
    follow: bool,
    /// Its program is started by this process, to whom its orphans go.
    adopts: bool,
    terms: Terms,
    /// Why something does not work as asked.
    limits: Vec<String>,
    agents_cpu: Agents,
    started: Nanos,
    refresh_due: Nanos,
    track: TrackLooks,
    memory: MemoryLooks,
}

/// What is ready to be read. What is not is not asked: a question to the kernel costs as much
/// as the handling of a hint fault, and there are thousands of rounds.
#[derive(Debug, Clone, Default)]
pub struct Ready {
    moved: bool,
    tracked: bool,
    /// Agents that rang.
    reporting: Vec<Pid>,
    /// Agents that have gone.
    leaving: Vec<Pid>,
}

impl Domain {
    /// With nobody in it yet.
    ///
    /// # Errors
    ///
    /// Where there is no such policy, or a thread or a file that it needs.
    pub fn open(options: &Options, host: Host, members: Option<Members>) -> anyhow::Result<Self> {
        let mut settings = options.settings.clone();
        let policy =
            terrace_policy::with_settings(&options.policy, &host.for_policy(), &mut settings)?;
        settings.finish()?;
        let mut limits = host.limits.clone();
        let wanted = policy.machine_options();
        let trackers = open_trackers(options, wanted, &host, &mut limits);
        let budget = options.fast_bytes.map(Budget::start).transpose();
        let now = clock::now();
        let mut domain = Self {
            machine: LinuxMachine::open(host.tiers, host.fit.takes, trackers)?,
            engine: Engine::new(policy),
            budget: budget.context("Cannot start the thread that reads numa_maps")?,
            members,
            follow: options.follow,
            adopts: matches!(options.target, Target::Program(_)),
            terms: options.terms(wanted)?,
            limits,
            agents_cpu: Agents::default(),
            started: now,
            refresh_due: now,
            track: TrackLooks::new(now),
            memory: MemoryLooks::new(now),
        };
        domain.pause(options.paused);
        Ok(domain)
    }

    /// Its nodes.
    #[must_use]
    pub const fn tiers(&self) -> &Tiers {
        &self.machine.tiers
    }

    /// What a program is to be started with, if anything.
    pub(crate) fn first_placement(&self) -> Option<mempolicy::Policy> {
        let wanted = self.engine.policy().machine_options().first_placement;
        footprint::first_placement(&self.machine.tiers, wanted)
    }

    /// What its agents are told about their work.
    #[must_use]
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Keeps it from acting, or lets it again.
    pub fn pause(&mut self, paused: bool) {
        if self.engine.paused() != paused {
            self.engine.set_paused(paused);
            self.machine.trackers.pause(paused);
        }
    }

    /// What to wait for: the mover, the trackers, each agent's reports and its end.
    #[must_use]
    pub fn fds(&self, now: Nanos) -> Vec<PollFd<'_>> {
        let movers = &self.machine.managed.movers;
        let mut fds = vec![PollFd::from_borrowed_fd(
            movers.move_pages.fd(),
            PollFlags::IN,
        )];
        let trackers = self.heard();
        fds.extend(trackers.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        for link in movers.links.values() {
            // An eventfd whose count is at its most is in error, and always ready.
            fds.push(match link.deaf_until(now) {
                None => PollFd::from_borrowed_fd(link.report_fd(), PollFlags::IN),
                Some(_) => PollFd::from_borrowed_fd(link.socket_fd(), PollFlags::RDHUP),
            });
            fds.push(PollFd::from_borrowed_fd(link.socket_fd(), PollFlags::RDHUP));
        }
        fds
    }

    /// What of [`Self::fds`], polled since and in their order, is ready.
    #[must_use]
    pub fn ready(&self, fds: &[PollFd<'_>]) -> Ready {
        let hit = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let trackers = self.heard().count();
        let mut ready = Ready {
            moved: fds[..1].iter().any(hit),
            tracked: fds[1..=trackers].iter().any(hit),
            ..Ready::default()
        };
        let links = fds[1 + trackers..].chunks_exact(2);
        for (pid, fds) in self.machine.managed.movers.links.keys().zip(links) {
            ready.reporting.extend(hit(&fds[0]).then_some(*pid));
            ready.leaving.extend(hit(&fds[1]).then_some(*pid));
        }
        ready
    }

    /// The trackers' descriptors, but of those that are looked at anyway.
    fn heard(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.machine.trackers.fds(self.track.due().is_none())
    }

    /// Takes in what is ready, and what it is time to look at.
    pub fn take_in(&mut self, now: Nanos, ready: &Ready) {
        let all = ready.tracked || self.track.is_due(now);
        if all {
            self.memory.wanted();
        }
        self.sample_memory(now);
        self.machine.measure_latencies(now, &mut self.engine);
        let found = self.track(now, |tracking| all || tracking.samples());
        if all {
            self.track
                .looked(now, !found && self.machine.trackers.tell());
        }
        let (managed, engine) = (&mut self.machine.managed, &mut self.engine);
        managed.look_at_mappings(now, engine);
        if ready.moved {
            managed.movers.move_pages.silence();
        }
        for pid in &ready.reporting {
            if let Some(link) = managed.movers.links.get_mut(pid) {
                link.silence(now);
            }
        }
        self.take_reports(now);
        for pid in &ready.leaving {
            let managed = &mut self.machine.managed;
            managed.drop_dead_link(now, *pid, &mut self.engine);
        }
    }

    /// Lets the policy act. Gives the time to come back at the latest.
    pub fn act(&mut self, now: Nanos) -> Nanos {
        self.machine.take_inventory(now, &mut self.engine);
        let before = self.engine.stats_mut().ordered;
        let deadline = self.machine.pump(now, &mut self.engine);
        if self.engine.stats_mut().ordered > before {
            self.memory.ordered(now);
        }
        if self.machine.is_busy() {
            return now;
        }
        let managed = &self.machine.managed;
        let deaf = managed.movers.links.values();
        let deaf = deaf.filter_map(|link| link.deaf_until(now));
        let looks = [self.track.due(), managed.mappings_due()];
        deaf.chain(looks.into_iter().flatten())
            .fold(deadline.min(self.memory.due()), Nanos::min)
    }

    /// After the end: what movers still say is counted, so that the books are closed.
    pub fn settle(&mut self) {
        let now = clock::now();
        self.take_reports(now);
        let movers = &mut self.machine.managed.movers;
        let pids: Vec<Pid> = movers.links.keys().copied().collect();
        for pid in pids {
            movers.forget(now, pid, &mut self.engine);
        }
        movers.flush();
        let until = now + SETTLE_MAX;
        while self.machine.managed.movers.in_flight() > 0 && clock::now() < until {
            std::thread::sleep(Duration::from_millis(1));
            self.take_reports(clock::now());
        }
    }

    fn take_reports(&mut self, now: Nanos) {
        let budget = self.budget.as_ref();
        self.machine.take_reports(now, budget, &mut self.engine);
    }

    fn sample_memory(&mut self, now: Nanos) {
        if !self.memory.is_due(now) {
            return;
        }
        let links = &self.machine.managed.movers.links;
        self.agents_cpu.look(now, links.keys().copied());
        let refresh = now >= self.refresh_due;
        if refresh {
            self.refresh_due = now + REFRESH_INTERVAL;
            self.bury(now);
            self.machine.refresh();
        }
        self.machine
            .tell_where_they_run(now, refresh, &mut self.engine);
        let budget = self.budget.as_ref();
        if let Some(budget) = budget {
            budget.watch(self.machine.managed.pids.iter().copied());
        }
        let LinuxMachine { memory, tiers, .. } = &mut self.machine;
        let changed = memory.sample(now, tiers, budget, &mut self.engine);
        self.memory.looked(now, changed);
    }
}

/// The trackers, where there is something to be tracked for.
fn open_trackers(
    options: &Options,
    wanted: MachineOptions,
    host: &Host,
    limits: &mut Vec<String>,
) -> Trackers {
    if host.tiers.count() < 2 || host.simulated_tier {
        return Trackers::default();
    }
    let opened = tracking::open(&host.fit, options, wanted, &host.tiers);
    for limit in opened.limits {
        (options.tell)(&limit);
        limits.push(limit);
    }
    opened.trackers
}
