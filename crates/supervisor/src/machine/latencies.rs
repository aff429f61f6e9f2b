// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of each node are timed while the supervisor is awake, once a second at most, for policies that weigh what a move
//! saves: some hundred loads a node, by `terrace_sys::latency`. Where several nodes have processors they are timed from each
//! of them.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_sys::affinity;
use terrace_sys::latency::Latency;

use super::runs_on::cpu_nodes;

const INTERVAL: Nanos = Nanos::from_secs(1);

/// A MiB of each node; nothing of those that have none to give.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    nodes: Option<BTreeMap<NodeId, Latency>>,
    due: Nanos,
}

impl Latencies {
    /// Takes what it needs of the nodes, while they have it to give.
    pub(crate) fn open(&mut self, tiers: &Tiers) {
        self.nodes.get_or_insert_with(|| open(tiers));
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
        let nodes = self.nodes.get_or_insert_with(|| open(tiers));
        let mut all = |from: NodeId| {
            for (node, latency) in nodes.iter_mut() {
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

fn open(tiers: &Tiers) -> BTreeMap<NodeId, Latency> {
    let opened = tiers
        .nodes()
        .iter()
        .filter_map(|node| match Latency::open(node.id) {
            Ok(latency) => Some((node.id, latency)),
            Err(error) => {
                tracing::info!("Reads of node {} are not timed: {error}", node.id);
                None
            }
        });
    opened.collect()
}
