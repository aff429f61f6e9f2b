// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads of each node are timed once a second, for policies that weigh what a move saves: some hundred
//! loads a node, by `terrace_sys::latency`.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::Tiers;
use terrace_sys::latency::Latency;

const INTERVAL: Nanos = Nanos::from_secs(1);

/// A MiB of each node; nothing of those that have none to give.
#[derive(Debug, Default)]
pub(crate) struct Latencies {
    nodes: Option<BTreeMap<NodeId, Latency>>,
    due: Nanos,
}

impl Latencies {
    /// Times reads where it is time, and tells what they take.
    pub(crate) fn measure(
        &mut self,
        now: Nanos,
        tiers: &Tiers,
        mut tell: impl FnMut(NodeId, Nanos),
    ) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let nodes = self.nodes.get_or_insert_with(|| open(tiers));
        for (node, latency) in nodes {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a time"
            )]
            let read = latency.measure() as u64;
            tell(*node, Nanos(read));
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
