// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions over the control socket, and the figures that answer them.

use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_sys::clock;

use super::Session;
use crate::control::Join;
use crate::control::Request;
use crate::cpu;
use crate::report;
use crate::report::NodeStatus;
use crate::report::ProcessStatus;
use crate::report::Status;
use crate::report::TrackerStatus;

impl Session {
    pub(super) fn serve(&mut self) {
        while let Some(question) = self.control.next() {
            match question.request {
                Request::Status => {}
                Request::Pause => self.pause(true),
                Request::Resume => self.pause(false),
                Request::Join(join) => self.join(join),
            }
            question.answer(&self.status());
        }
    }

    fn join(&mut self, join: Join) {
        let Some(members) = &mut self.members else {
            return;
        };
        members.joined(join);
        let program = join.program.map(Pid);
        if let Some(pid) = program.filter(|pid| !self.managed.contains(pid)) {
            self.add(pid);
        }
        if let Some(pid) = program {
            self.tell_priority(clock::now(), pid);
        }
    }

    fn pause(&mut self, paused: bool) {
        if self.engine.paused() == paused {
            return;
        }
        self.engine.set_paused(paused);
        if let Some(tracking) = &mut self.tracking {
            tracking.pause(paused);
        }
    }

    pub(super) fn status(&mut self) -> Status {
        let agents = self.agents_cpu.total();
        self.engine.stats_mut().terrace_cpu_ns = cpu::own().0 + agents.0;
        if let Some(tracking) = &self.tracking
            && let Some(found) = tracking.stats()
        {
            let stats = self.engine.stats_mut();
            if tracking.samples() {
                stats.samples_lost = found.lost_accesses;
                stats.set_writes(found.stores);
            } else {
                stats.hint_faults_lost = found.lost_accesses;
            }
        }
        let (stats, policy_counters) = report::counters(&self.engine);
        Status {
            supervisor_pid: std::process::id(),
            policy: self.engine.policy().name().to_owned(),
            paused: self.engine.paused(),
            seconds: clock::now().since(self.started).as_secs_f64(),
            processes: self
                .managed
                .iter()
                .filter_map(|pid| {
                    let link = self.machine.links.get(pid);
                    Some(ProcessStatus {
                        pid: pid.0,
                        agent: link.is_some_and(AgentLink::can_transact),
                        // Who is gone has no name any more.
                        name: Some(cpu::name(*pid)).filter(|name| !name.is_empty())?,
                    })
                })
                .collect(),
            nodes: self
                .setting
                .tiers
                .nodes()
                .iter()
                // A node that is there in name only has no memory.
                .filter_map(|node| {
                    let (memory, cache_bytes) = self.memory.read_with_cache(node.id).ok()?;
                    Some(NodeStatus {
                        node: node.id.0,
                        tier: node.tier.0,
                        free_bytes: memory.free_bytes,
                        cache_bytes,
                        total_bytes: memory.total_bytes,
                    })
                })
                .collect(),
            stats,
            policy_counters,
            tracker: self.tracking.as_ref().map(|tracking| TrackerStatus {
                name: tracking.name().to_owned(),
                counters: tracking.counters(),
            }),
            limits: self.setting.limits.clone(),
        }
    }
}
