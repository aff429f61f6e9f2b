// SPDX-License-Identifier: MIT OR Apache-2.0
//! A domain's figures, for `terrace status` and at the end.

use std::collections::BTreeMap;

use terrace_api::NodeStatus;
use terrace_api::ProcessStatus;
use terrace_api::SCHEMA_VERSION;
use terrace_api::Status;
use terrace_api::TrackerStatus;
use terrace_api::Why;
use terrace_api::WhyQuestion;
use terrace_core::Addr;
use terrace_core::Measurement;
use terrace_core::Pid;
use terrace_mover::agent::AgentLink;
use terrace_policy::About;
use terrace_sys::clock;

use super::Domain;
use crate::cpu;

impl Domain {
    /// What the policy believes of a process.
    pub fn why(&self, question: WhyQuestion) -> Why {
        let (policy, pid) = (self.engine.policy(), Pid(question.pid));
        let page = question.page.map(Addr);
        Why {
            pid: question.pid,
            policy: policy.name().to_owned(),
            belief: policy.explain(clock::now(), About { pid, page }),
        }
    }

    /// The figures now.
    pub fn status(&mut self) -> Status {
        let agents = self.agents_cpu.total();
        self.engine.stats_mut().terrace_cpu_ns = cpu::own().0 + agents.0;
        self.count_lost();
        Status {
            schema_version: SCHEMA_VERSION,
            supervisor_pid: std::process::id(),
            policy: self.engine.policy().name().to_owned(),
            paused: self.engine.paused(),
            seconds: clock::now().since(self.started).as_secs_f64(),
            processes: self
                .machine
                .managed
                .pids
                .iter()
                .filter_map(|pid| {
                    let link = self.machine.managed.movers.links.get(pid);
                    Some(ProcessStatus {
                        pid: pid.0,
                        agent: link.is_some_and(AgentLink::can_transact),
                        // Who is gone has no name any more.
                        name: Some(cpu::name(*pid)).filter(|name| !name.is_empty())?,
                    })
                })
                .collect(),
            nodes: self
                .machine
                .tiers
                .nodes()
                .iter()
                // A node that is there in name only has no memory.
                .filter_map(|node| {
                    let (memory, cache_bytes) = self.machine.memory.read(node.id)?;
                    Some(NodeStatus {
                        node: node.id.0,
                        tier: node.tier.0,
                        free_bytes: memory.free_bytes,
                        cache_bytes,
                        total_bytes: memory.total_bytes,
                    })
                })
                .collect(),
            stats: self.engine.stats(),
            policy_counters: by_name(self.engine.policy().counters()),
            trackers: self
                .machine
                .trackers
                .iter()
                .map(|tracking| TrackerStatus {
                    name: tracking.name().to_owned(),
                    counters: by_name(tracking.counters()),
                })
                .collect(),
            limits: self.limits.clone(),
        }
    }

    /// What the trackers had no room for, and the stores that their samples stand for.
    fn count_lost(&mut self) {
        let stats = self.engine.stats_mut();
        let (mut samples, mut faults) = (0, 0);
        for tracking in self.machine.trackers.iter() {
            let Some(found) = tracking.stats() else {
                continue;
            };
            if tracking.samples() {
                samples += found.lost_accesses;
                stats.set_writes(found.stores);
            } else {
                faults += found.lost_accesses;
            }
        }
        (stats.samples_lost, stats.hint_faults_lost) = (samples, faults);
    }
}

fn by_name(figures: Vec<Measurement>) -> BTreeMap<String, u64> {
    let figures = figures.into_iter();
    figures
        .map(|(figure, value)| (figure.name.to_owned(), value))
        .collect()
}
