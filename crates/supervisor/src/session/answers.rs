// SPDX-License-Identifier: MIT OR Apache-2.0
//! Questions over the control socket, and the figures that answer them.

use terrace_move::agent::AgentLink;
use terrace_sys::clock;
use terrace_track::Tracker;

use super::Session;
use crate::control::Request;
use crate::cpu;
use crate::report;
use crate::report::NodeStatus;
use crate::report::ProcessStatus;
use crate::report::Status;

impl Session {
    pub(super) fn serve(&mut self) {
        while let Some(question) = self.control.next() {
            match question.request {
                Request::Status => {}
                Request::Pause => self.pause(true),
                Request::Resume => self.pause(false),
            }
            question.answer(&self.status());
        }
    }

    fn pause(&mut self, paused: bool) {
        if self.engine.paused() == paused {
            return;
        }
        self.engine.set_paused(paused);
        let Some(scanner) = &mut self.scanner else {
            return;
        };
        let done = match (paused, self.scan) {
            (true, _) => scanner.stop(),
            (false, Some((scope, period))) => scanner.apply(scope, period),
            // The policy's first action will say.
            (false, None) => Ok(()),
        };
        if let Err(error) = done {
            tracing::warn!("Scanner not switched: {error:#}");
        }
    }

    pub(super) fn status(&mut self) -> Status {
        let agents = self
            .machine
            .links
            .keys()
            .map(|pid| cpu::agent(*pid).0)
            .sum::<u64>();
        self.engine.stats_mut().terrace_cpu_ns = cpu::own().0 + agents;
        if let Some(lost) = self.tracker.as_ref().and_then(|t| t.stats().ok()) {
            self.engine.stats_mut().hint_faults_lost = lost.lost_accesses;
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
                .map(|pid| ProcessStatus {
                    pid: pid.0,
                    agent: self
                        .machine
                        .links
                        .get(pid)
                        .is_some_and(AgentLink::can_transact),
                    name: cpu::name(*pid),
                })
                .collect(),
            nodes: self
                .setting
                .tiers
                .nodes()
                .iter()
                .map(|node| {
                    let memory = self.memory.read(node.id).unwrap_or_default();
                    NodeStatus {
                        node: node.id.0,
                        tier: node.tier.0,
                        free_bytes: memory.free_bytes,
                        total_bytes: memory.total_bytes,
                    }
                })
                .collect(),
            stats,
            policy_counters,
            limits: self.setting.limits.clone(),
        }
    }
}
