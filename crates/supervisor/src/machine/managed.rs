// SPDX-License-Identifier: MIT OR Apache-2.0
//! The processes that a machine acts on, and what is kept of each: its agent and orders, its mappings.

use std::collections::BTreeSet;

use terrace_core::Nanos;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_policy::Engine;
use terrace_policy::Event;

use super::mappings::Mappings;
use super::movers::Movers;
use super::runs_on::RunsOn;

/// See the module.
#[derive(Debug)]
pub struct Managed {
    /// Who.
    pub pids: BTreeSet<Pid>,
    /// Who moves their pages.
    pub movers: Movers,
    /// What is mapped, where the policy wants to know.
    pub mappings: Option<Mappings>,
    /// Where they run, as the policy was told.
    pub runs_on: RunsOn,
}

impl Managed {
    /// Nobody yet.
    #[must_use]
    pub fn new(movers: Movers, mappings: Option<Mappings>) -> Self {
        Self {
            pids: BTreeSet::new(),
            movers,
            mappings,
            runs_on: RunsOn::default(),
        }
    }

    /// Tells what mappings came and went, where it is time to look.
    pub fn look_at_mappings(&mut self, now: Nanos, engine: &mut Engine) {
        if let Some(mappings) = &mut self.mappings {
            mappings.step(now, self.pids.iter().copied(), |event| {
                engine.observe(now, &event);
            });
        }
    }

    /// When they are looked at next, if they are.
    pub fn mappings_due(&self) -> Option<Nanos> {
        self.mappings.as_ref().map(Mappings::due)
    }

    /// A process executes another program.
    pub fn replaced(&mut self, now: Nanos, pid: Pid, engine: &mut Engine) {
        // The new program's agent may have connected before we learn of it.
        self.drop_dead_link(now, pid, engine);
        self.gone(now, pid, engine);
    }

    /// A process has ended.
    pub fn remove(&mut self, now: Nanos, pid: Pid, engine: &mut Engine) {
        self.movers.forget(now, pid, engine);
        self.gone(now, pid, engine);
        self.pids.remove(&pid);
    }

    /// A process, or the program in it, went.
    fn gone(&mut self, now: Nanos, pid: Pid, engine: &mut Engine) {
        if let Some(mappings) = &mut self.mappings {
            mappings.forget(pid);
        }
        self.runs_on.forget(pid);
        engine.observe(now, &Event::Gone { pid });
    }

    /// Lets an agent go that has closed its connection.
    pub fn drop_dead_link(&mut self, now: Nanos, pid: Pid, engine: &mut Engine) {
        if self.movers.links.get(&pid).is_some_and(AgentLink::is_gone) {
            self.movers.forget(now, pid, engine);
        }
    }
}
