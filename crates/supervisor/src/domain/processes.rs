// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who belongs to a domain: who comes, who goes, whose agent is heard.

use terrace_api::Join;
use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_sys::clock;
use terrace_sys::process;
use terrace_sys::process::ProcessError;
use terrace_sys::process::lineage;
use terrace_track::TrackEvent;

use super::Domain;
use crate::group::Members;
use crate::machine::managed::Managed;
use crate::tracking::Tracking;

/// Looks at a family that forks faster than it can be added.
const FAMILY_LOOKS: u32 = 16;
/// Processes with an agent: each takes three descriptors, of which there are 1,024 by default.
const LINKS_MAX: usize = 256;
/// Lines of what does not work as asked.
const LIMITS_MAX: usize = 64;

impl Domain {
    /// Whether it is a group that has come to its end.
    pub fn is_over(&mut self, now: Nanos) -> bool {
        self.members.as_mut().is_some_and(|m| m.is_over(now))
    }

    /// Manages a process.
    pub fn add(&mut self, pid: Pid) {
        self.memory.wanted();
        if let Err(error) = self.machine.add(pid, self.follow) {
            self.limit(format!("process {pid} is not tracked: {error:#}"));
        }
    }

    /// Manages a process and, where children are followed, those that it has: one that it forked before
    /// it was tracked is told by nobody.
    pub fn add_family(&mut self, pid: Pid) {
        self.add(pid);
        self.add_new(|| process::descendants(pid).unwrap_or_default());
    }

    /// Where children are followed, manages who of these is not managed yet.
    pub fn add_new(&mut self, family: impl Fn() -> Vec<Pid>) {
        if !self.follow {
            return;
        }
        // Who is forked by one that was added is told: with nobody new in a look, all are there.
        for _ in 0..FAMILY_LOOKS {
            let managed = |one: &Pid| self.machine.managed.pids.contains(one);
            let new: Vec<Pid> = family().into_iter().filter(|one| !managed(one)).collect();
            if new.is_empty() {
                return;
            }
            new.into_iter().for_each(|one| self.add(one));
        }
    }

    /// A member of the group says who it is, and of its program once that runs.
    pub fn join(&mut self, join: Join) {
        let Some(members) = &mut self.members else {
            return;
        };
        members.joined(join);
        let Some(pid) = join.program.map(Pid) else {
            return;
        };
        if !self.machine.managed.pids.contains(&pid) {
            self.add(pid);
            // The first member is the parent of this process, too.
            let me = Pid(std::process::id());
            let below = move || {
                let all = process::descendants(Pid(join.member)).unwrap_or_default();
                all.into_iter().filter(|pid| *pid != me).collect()
            };
            self.add_new(below);
        }
        tell_share(clock::now(), pid, self.members.as_ref(), &mut self.engine);
    }

    /// Whether a process is managed or shall be. A process that is not gets no orders, so its agent does nothing.
    #[must_use]
    pub fn is_ours(&self, pid: Pid) -> bool {
        self.machine.managed.pids.contains(&pid) || (self.follow && self.descends(pid))
    }

    /// Whether a managed process, or a member of the group, is among the ancestors.
    fn descends(&self, pid: Pid) -> bool {
        if self
            .members
            .as_ref()
            .is_some_and(|m| m.share(pid).is_some())
        {
            return true;
        }
        // Orphans of the program are this process's children.
        let me = Pid(std::process::id());
        let managed = &self.machine.managed.pids;
        lineage(pid).any(|one| managed.contains(&one) || (self.adopts && one == me && pid != me))
    }

    /// An agent has introduced itself.
    pub fn connected(&mut self, now: Nanos, link: AgentLink) {
        let pid = link.pid();
        if !self.is_ours(pid) {
            return;
        }
        // Its fork or exec may be in the tracker's ring still.
        if !self.machine.managed.pids.contains(&pid) {
            self.add(pid);
        }
        let links = &self.machine.managed.movers.links;
        if links.len() >= LINKS_MAX && !links.contains_key(&pid) {
            self.limit(format!(
                "more than {LINKS_MAX} processes with an agent: the others' pages go by move_pages"
            ));
            return;
        }
        if !link.can_transact() {
            let why = std::io::Error::from_raw_os_error(link.hello().errno.cast_signed());
            let text = format!("process {pid}: no transactions, move_pages instead: {why}");
            self.limit(text);
        } else if !link.keeps_shadows() {
            let text = "no shadows: the kernel has no asynchronous write protection".to_owned();
            self.limit(text);
        }
        self.engine.stats_mut().agents += u64::from(link.can_transact());
        let movers = &mut self.machine.managed.movers;
        movers.forget(now, pid, &mut self.engine);
        movers.links.insert(pid, link);
        tell_share(now, pid, self.members.as_ref(), &mut self.engine);
    }

    /// Reads the trackers that are due; whether they had anything to tell.
    pub(super) fn track(&mut self, now: Nanos, due: impl Fn(&Tracking) -> bool) -> bool {
        let members = self.members.as_ref();
        let processes = |event, managed: &mut Managed, engine: &mut Engine| {
            process_event(now, &event, managed, members, engine);
        };
        self.machine.track(now, &mut self.engine, due, processes)
    }

    /// Forgets processes that are gone and of which nobody told: without a tracker, or where its record was lost.
    pub(super) fn bury(&mut self, now: Nanos) {
        let managed = &mut self.machine.managed;
        // One that cannot be read, for lack of a descriptor, is not gone.
        let is_gone = |pid: &Pid| matches!(process::Stat::read(*pid), Err(ProcessError::Gone(_)));
        let gone: Vec<Pid> = managed.pids.iter().copied().filter(is_gone).collect();
        for pid in gone {
            managed.remove(now, pid, &mut self.engine);
        }
    }

    /// Notes that something does not work as asked, once, and not without end.
    fn limit(&mut self, text: String) {
        if self.limits.len() < LIMITS_MAX && !self.limits.contains(&text) {
            self.limits.push(text);
        }
    }
}

fn process_event(
    now: Nanos,
    event: &TrackEvent,
    managed: &mut Managed,
    members: Option<&Members>,
    engine: &mut Engine,
) {
    match *event {
        TrackEvent::Forked { child, .. } => {
            managed.pids.insert(child);
            tell_share(now, child, members, engine);
        }
        TrackEvent::Execed { pid, .. } => {
            managed.replaced(now, pid, engine);
            tell_share(now, pid, members, engine);
        }
        TrackEvent::Exited { pid, .. } => managed.remove(now, pid, engine),
        TrackEvent::HintFault(_) | TrackEvent::Scanned { .. } | TrackEvent::Sample(_) => {}
    }
}

/// Tells the policy what a process has by its group.
fn tell_share(now: Nanos, pid: Pid, members: Option<&Members>, engine: &mut Engine) {
    if let Some(share) = members.and_then(|members| members.share(pid)) {
        engine.observe(now, &Event::Share { pid, share });
    }
}
