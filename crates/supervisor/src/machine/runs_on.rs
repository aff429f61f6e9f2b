// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which node's processors programs may run on: who is bound to a socket sees its memory as local, whoever runs anywhere sees
//! all alike.
//!
//! Asked for when a process comes, each second while it is young, as a thread that is bound may be the first of many, and then now and then; the policy
//! is told of what is new.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_core::Tiers;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_sys::affinity;

/// A process is young for so long.
const YOUNG: Nanos = Nanos::from_secs(10);
/// And looked at again after so long.
const SOON: Nanos = Nanos::from_secs(1);

/// A process that was looked at.
#[derive(Debug, Clone, Copy)]
struct Told {
    /// First and last.
    since: Nanos,
    at: Nanos,
    cpu_node: Option<NodeId>,
}

impl Told {
    fn is_due(&self, now: Nanos) -> bool {
        now.since(self.since) < YOUNG && now.since(self.at) >= SOON
    }
}

/// What the policy was told.
#[derive(Debug, Default)]
pub struct RunsOn {
    told: BTreeMap<Pid, Told>,
}

impl RunsOn {
    /// Looks at those who are new or young, or with `again` at all of them.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        (pids, again): (&BTreeSet<Pid>, bool),
        tiers: &Tiers,
        engine: &mut Engine,
    ) {
        if cpu_nodes(tiers).count() < 2 {
            return;
        }
        for pid in pids {
            let before = self.told.get(pid).copied();
            if !again && before.is_some_and(|before| !before.is_due(now)) {
                continue;
            }
            // Who is gone is told of by others.
            let cpus = affinity::of_process(*pid).unwrap_or_default();
            let cpu_node = only_node(tiers, &cpus);
            let told = Told {
                since: before.map_or(now, |before| before.since),
                at: now,
                cpu_node,
            };
            self.told.insert(*pid, told);
            if before.and_then(|before| before.cpu_node) != cpu_node {
                let pid = *pid;
                engine.observe(now, &Event::Runs { pid, cpu_node });
            }
        }
    }

    /// The process, or its program, is gone.
    pub(crate) fn forget(&mut self, pid: Pid) {
        self.told.remove(&pid);
    }
}

/// Nodes with processors, and those.
pub(crate) fn cpu_nodes(tiers: &Tiers) -> impl Iterator<Item = (NodeId, &[u32])> {
    let nodes = tiers
        .nodes()
        .iter()
        .map(|node| (node.id, node.cpus.as_slice()));
    nodes.filter(|(_, cpus)| !cpus.is_empty())
}

/// The node that has all of these processors.
fn only_node(tiers: &Tiers, cpus: &BTreeSet<u32>) -> Option<NodeId> {
    let mut nodes = cpu_nodes(tiers);
    let has_all = |own: &[u32]| !cpus.is_empty() && cpus.iter().all(|cpu| own.contains(cpu));
    nodes.find(|(_, own)| has_all(own)).map(|(node, _)| node)
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeInfo;
    use terrace_core::TierId;

    use super::*;

    #[test]
    fn who_is_young_is_looked_at_each_second() {
        let (since, cpu_node) = (Nanos::from_secs(50), None);
        let due = |at: u64, now: u64| {
            let at = Nanos::from_millis(at);
            Told {
                since,
                at,
                cpu_node,
            }
            .is_due(Nanos::from_millis(now))
        };
        assert!(!due(50_000, 50_900) && due(50_000, 51_000));
        assert!(due(58_500, 59_900) && !due(59_500, 60_500));
    }

    #[test]
    fn who_may_run_on_two_nodes_runs_on_none() {
        let node = |id: u16, cpus: &[u32]| NodeInfo {
            id: NodeId(id),
            tier: TierId(0),
            capacity_bytes: 1 << 30,
            cpus: cpus.to_vec(),
            read_latency_ns: None,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        };
        let tiers = Tiers::new(vec![node(0, &[0, 2]), node(1, &[1, 3]), node(2, &[])]);
        let of = |cpus: &[u32]| only_node(&tiers, &cpus.iter().copied().collect());
        assert_eq!(of(&[1, 3]), Some(NodeId(1)));
        assert_eq!(of(&[2]), Some(NodeId(0)));
        assert_eq!([of(&[0, 1]), of(&[]), of(&[9])], [None; 3]);
    }
}
