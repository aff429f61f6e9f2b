// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of each node are timed while the supervisor is awake, once a second at most, for policies that weigh what a move
//! saves: some hundred loads a node, by `terrace_sys::latency`. Where several nodes have processors they are timed from each
//! of them. A node that has no memory to read from is asked for some again after a while.

use std::collections::BTreeMap;

use rustix::io::Errno;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_sys::affinity;
use terrace_sys::latency::Latency;

use super::runs_on::cpu_nodes;

const INTERVAL: Nanos = Nanos::from_secs(1);
/// A node that has no memory to give is asked again after that time: asking it is a MiB of reclaim there.
const ASK_AGAIN: Nanos = Nanos::from_secs(10);

/// A MiB of each node that had it to give.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    nodes: BTreeMap<NodeId, Latency>,
    /// Nodes to ask for theirs; not known before the first are asked.
    missing: Option<Vec<NodeId>>,
    ask: Nanos,
    due: Nanos,
}

impl Latencies {
    /// Takes what it needs of the nodes that have it to give.
    pub(crate) fn open(&mut self, now: Nanos, tiers: &Tiers) {
        if now < self.ask {
            return;
        }
        self.ask = now + ASK_AGAIN;
        let all = || tiers.nodes().iter().map(|node| node.id).collect();
        let asked: Vec<NodeId> = self.missing.take().unwrap_or_else(all);
        let full = asked.into_iter().filter(|node| self.is_full(*node));
        self.missing = Some(full.collect());
    }

    /// Asks one. Whether it may have something to give later.
    fn is_full(&mut self, node: NodeId) -> bool {
        match Latency::open(node) {
            Ok(latency) => {
                self.nodes.insert(node, latency);
                false
            }
            Err(error) => {
                tracing::info!("Reads of node {node} are not timed: {error}");
                error == Errno::NOMEM
            }
        }
    }

    /// Times reads where it is time, and tells what they take.
    pub(crate) fn measure(
        &mut self,
        now: Nanos,
        tiers: &Tiers,
        mut tell: impl FnMut(NodeId, NodeId, Nanos),
    ) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        self.open(now, tiers);
        let mut all = |from: NodeId| {
            for (node, latency) in &mut self.nodes {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time"
                )]
                let read = latency.measure() as u64;
                tell(from, *node, Nanos(read));
            }
        };
        let from: Vec<(NodeId, &[u32])> = cpu_nodes(tiers).collect();
        match (from.as_slice(), tiers.nodes().first()) {
            ([(only, _)], _) => all(*only),
            // Nobody says whose they are: the best one's.
            ([], Some(best)) => all(best.id),
            (several, _) => {
                for (from, cpus) in several {
                    // Where this thread may not go it does not know.
                    let _ = affinity::on(cpus, || all(*from));
                }
            }
        }
    }
}
