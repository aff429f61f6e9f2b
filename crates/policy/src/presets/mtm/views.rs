// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which node is faster than which, as the processors see it that access a region (6.2, the multi-view of tiers).
//!
//! Each node of memory is a tier of a view. Who accesses a region is counted by hint faults, by the node of the
//! processor; a region of which nothing was counted has the view of most accesses of all.

use terrace_core::NodeId;
use terrace_core::Tiers;

use super::regions::ACCESSORS;
use super::regions::Region;

/// The nodes as one processor's node sees them, the fastest first.
#[derive(Debug, Clone, Default)]
pub(super) struct View {
    from: Option<NodeId>,
    nodes: Vec<NodeId>,
}

impl View {
    fn rank(&self, id: NodeId) -> Option<usize> {
        self.nodes.iter().position(|node| *node == id)
    }

    /// Faster nodes, the fastest first.
    pub(super) fn faster(&self, than: NodeId) -> impl Iterator<Item = NodeId> {
        let rank = self.rank(than).unwrap_or(0);
        self.nodes[..rank].iter().copied()
    }

    /// Slower nodes, the next one first.
    pub(super) fn slower(&self, than: NodeId) -> impl Iterator<Item = NodeId> {
        let rank = self.rank(than).unwrap_or(self.nodes.len());
        self.nodes.iter().copied().skip(rank + 1)
    }
}

/// Every processor node's view.
#[derive(Debug)]
pub(super) struct Views {
    all: Vec<View>,
    ids: Vec<NodeId>,
    slowest: Vec<NodeId>,
    fastest_bytes: u64,
    /// Hint faults by view.
    told: [u64; ACCESSORS],
}

impl Views {
    pub(super) fn new(tiers: &Tiers, views: &terrace_core::Views) -> Self {
        let of = |view: &terrace_core::View| View {
            from: Some(view.from),
            nodes: view.nodes().iter().map(|seen| seen.node).collect(),
        };
        let mut all: Vec<View> = views.all().iter().take(ACCESSORS).map(of).collect();
        if all.is_empty() {
            all.push(View::default());
        }
        let mut slowest: Vec<NodeId> = all
            .iter()
            .filter_map(|view| view.nodes.last().copied())
            .collect();
        slowest.sort_unstable();
        slowest.dedup();
        let bytes = |id: &NodeId| tiers.node(*id).map_or(0, |node| node.capacity_bytes);
        let mut fastest: Vec<NodeId> = all
            .iter()
            .filter_map(|view| view.nodes.first().copied())
            .collect();
        fastest.sort_unstable();
        fastest.dedup();
        Self {
            ids: tiers.nodes().iter().map(|node| node.id).collect(),
            slowest,
            fastest_bytes: fastest.iter().map(bytes).sum(),
            told: [0; ACCESSORS],
            all,
        }
    }

    /// Whether there is more than one.
    pub(super) const fn several(&self) -> bool {
        self.all.len() > 1
    }

    /// All nodes.
    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.ids
    }

    /// The node that is slowest, of each view.
    pub(super) fn slowest(&self) -> &[NodeId] {
        &self.slowest
    }

    /// Memory of the fastest tier, bytes: of a view's, or of all that are fastest to someone once several access.
    pub(super) fn fastest_bytes(&self, tiers: &Tiers) -> u64 {
        let using = self.told.iter().filter(|told| **told > 0).count();
        let first = self.all[self.main()].nodes.first();
        let own = first.and_then(|id| tiers.node(*id));
        if using > 1 {
            self.fastest_bytes
        } else {
            own.map_or(0, |node| node.capacity_bytes)
        }
    }

    /// A processor of that node accessed a region. Whether that says anything.
    pub(super) fn accessed(&mut self, region: &mut Region, cpu_node: NodeId) -> bool {
        let found = self.all.iter().position(|view| view.from == Some(cpu_node));
        let Some(index) = found else {
            return false;
        };
        self.told[index] += 1;
        if region.accessors[index] == u8::MAX {
            // What is older counts less.
            region.accessors.iter_mut().for_each(|count| *count /= 2);
        }
        region.accessors[index] += 1;
        true
    }

    /// The view of most accesses of all.
    fn main(&self) -> usize {
        let counts = self.told.iter().enumerate().take(self.all.len()).rev();
        counts
            .max_by_key(|(_, told)| **told)
            .map_or(0, |(index, _)| index)
    }

    /// The view of the processors that access a region most.
    pub(super) fn of(&self, region: &Region) -> &View {
        let counts = region
            .accessors
            .iter()
            .enumerate()
            .take(self.all.len())
            .rev();
        let most = counts.max_by_key(|(_, count)| **count);
        let most = most
            .filter(|(_, count)| **count > 0)
            .map(|(index, _)| index);
        &self.all[most.unwrap_or_else(|| self.main())]
    }
}
