// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a read takes of each place: as measured under the present load, else as the machine says.
//!
//! ```text
//! m(c, node)         = mean of the measurements since the last plan, or before it where there is none; c: a node of processors
//! measured(c, node)  = m + (m - the least m there was)          an access, and what others wait for it
//! said(c, node)      = latency(c, node), else latency(nearest, node) distance(c, node) / distance(nearest, node)
//! read(c, node)      = measured(c, node), else measured(o, node) said(c, node) / said(o, node), else said(c, node)
//! read(p, place)     = mean of read(c, node) over the nodes of the place;                        ns
//!                      of who may run on several nodes' processors: over those and over all nodes of the tier
//! ```
//!
//! One access more lets all others wait longer: together, where waits grow in proportion to the load, as long as it waits itself, and
//! longer where they grow faster. So a place is worth less than what a read takes there.
//!
//! So the value of a move goes to 0 as a loaded fast tier comes to be as slow as the other, and migration stops. Who runs everywhere
//! is as far from one node of a tier as from the other: what is measured of them is not quite the same, and pages would
//! move for that.

use std::collections::BTreeMap;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::Tiers;
use terrace_core::View;
use terrace_core::Views;

use super::accessors::Accessor;
use super::accessors::SOCKETS;
use super::places::PLACES;
use super::places::Places;

/// ns a read takes where nobody knows: DRAM's, and so much more for each tier below; memory's behind CXL is 250.
const FAST_NS: f64 = 100.0;
const TIER_NS: f64 = 150.0;
/// Reads within this share of each other take as long (Colloid's delta, its section 4).
pub(super) const ALIKE: f64 = 0.05;

/// What a read takes by place, ns; behind the last place 0.
pub(super) type Reads = [f64; PLACES];

/// Of one node, from one node's processors.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    mean: f64,
    /// Measurements since the last plan.
    count: u32,
    /// The least mean at a plan.
    least: Option<f64>,
}

impl Measured {
    /// What one more access costs all.
    fn read(&self) -> f64 {
        let waits = self.least.map_or(0.0, |least| (self.mean - least).max(0.0));
        self.mean + waits
    }
}

/// Of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    tiers: Tiers,
    views: Views,
    /// By node and who measured.
    measured: BTreeMap<(NodeId, NodeId), Measured>,
}

impl Latencies {
    pub(super) const fn new(tiers: Tiers, views: Views) -> Self {
        Self {
            tiers,
            views,
            measured: BTreeMap::new(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a time of microseconds at most")]
    pub(super) fn measured(&mut self, from: NodeId, node: NodeId, read: Nanos) {
        let kept = self.measured.entry((node, from)).or_default();
        kept.count += 1;
        kept.mean += (read.0 as f64 - kept.mean) / f64::from(kept.count);
    }

    /// A plan is made: what it changes shows in what is measured from now on.
    pub(super) fn planned(&mut self) {
        for kept in self.measured.values_mut() {
            let least = kept.least.unwrap_or(kept.mean);
            kept.least = Some(least.min(kept.mean));
            kept.count = 0;
        }
    }

    /// Of who runs on the processors of that node; of several where that is not told.
    pub(super) fn reads_ns(&self, places: &Places, from: Option<NodeId>) -> Reads {
        let all: Vec<&View> = self.views.all().iter().collect();
        let own: Vec<&View> = all
            .iter()
            .copied()
            .filter(|view| from == Some(view.from))
            .collect();
        let views = if own.is_empty() { all } else { own };
        std::array::from_fn(|place| {
            let there = places.nodes(place);
            let tier = there.first().and_then(|node| self.tiers.tier_of(*node));
            let counts = |node: &&NodeInfo| {
                there.contains(&node.id) || views.len() > 1 && Some(node.tier) == tier
            };
            let nodes = self.tiers.nodes().iter().filter(counts);
            let reads = nodes.flat_map(|node| views.iter().map(|view| self.read(view, node)));
            mean(reads).unwrap_or_default()
        })
    }

    /// The same by accessor ([`super::accessors`]): for who runs on several nodes' processors then of each of these.
    pub(super) fn by_accessor(&self, places: &Places, from: Option<NodeId>) -> Vec<Reads> {
        let sockets = match from {
            None if self.sockets() > 1 => self.sockets(),
            _ => 0,
        };
        let each = self.views.all()[..sockets]
            .iter()
            .map(|view| Some(view.from));
        let all = std::iter::once(from).chain(each);
        all.map(|from| self.reads_ns(places, from)).collect()
    }

    /// Sockets that are told apart.
    pub(super) fn sockets(&self) -> usize {
        self.views.all().len().min(SOCKETS)
    }

    /// The node whose processors those are, if it is one.
    pub(super) fn node_of(&self, accessor: Accessor) -> Option<NodeId> {
        let socket = usize::from(accessor).checked_sub(1)?;
        Some(self.views.all().get(socket)?.from)
    }

    /// Which of them has the processors of that node.
    pub(super) fn socket(&self, cpu_node: NodeId) -> Option<usize> {
        let mut all = self.views.all().iter();
        all.position(|view| view.from == cpu_node)
    }

    fn read(&self, view: &View, node: &NodeInfo) -> f64 {
        let measured = |from: NodeId| Some(self.measured.get(&(node.id, from))?.read());
        let elsewhere = || {
            let others = self.views.all().iter();
            let one = |other: &View| Some((measured(other.from)?, self.said(other, node)));
            let (read, said) = others.filter_map(one).next()?;
            Some(read * self.said(view, node) / said)
        };
        measured(view.from)
            .or_else(elsewhere)
            .unwrap_or_else(|| self.said(view, node))
    }

    fn said(&self, view: &View, node: &NodeInfo) -> f64 {
        let path = |view: &View| view.seen(node.id).map(|seen| seen.path);
        let own = path(view).unwrap_or_default();
        if let Some(read) = own.read_latency_ns {
            return f64::from(read);
        }
        let others = || self.views.all().iter().filter_map(path);
        let nearest = others().filter_map(|path| path.read_latency_ns).min();
        let nearest = nearest.or(node.read_latency_ns).map(f64::from);
        let least = others().filter_map(|path| path.distance).min();
        let farther = own.distance.zip(least.filter(|least| *least > 0));
        let farther = farther.map_or(1.0, |(own, least)| f64::from(own) / f64::from(least));
        nearest.unwrap_or_else(|| self.unknown(node)) * farther
    }

    #[expect(clippy::cast_precision_loss, reason = "a number of tiers")]
    fn unknown(&self, node: &NodeInfo) -> f64 {
        let mut faster: Vec<_> = self.tiers.nodes().iter().map(|other| other.tier).collect();
        faster.retain(|tier| *tier < node.tier);
        faster.dedup();
        FAST_NS + TIER_NS * faster.len() as f64
    }
}

/// Whether reads that take so long are taken to take as long as each other.
pub(super) fn alike(a: f64, b: f64) -> bool {
    (a - b).abs() <= a.max(b) * ALIKE
}

/// The least and the greatest there are.
pub(super) fn ends(reads: &Reads, places: &Places) -> (f64, f64) {
    let there = || reads[..places.len().min(PLACES)].iter().copied();
    let (least, most) = (there().reduce(f64::min), there().reduce(f64::max));
    (least.unwrap_or_default(), most.unwrap_or_default())
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), one| (sum + one, count + 1.0));
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use terrace_core::AccessPath;
    use terrace_core::TierId;

    use super::*;

    fn node(id: u16, tier: u16, read_latency_ns: Option<u32>) -> NodeInfo {
        NodeInfo {
            id: NodeId(id),
            tier: TierId(tier),
            capacity_bytes: 1 << 30,
            cpus: Vec::new(),
            read_latency_ns,
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        }
    }

    fn of(nodes: Vec<NodeInfo>) -> (Latencies, Places) {
        let tiers = Tiers::new(nodes);
        let views = Views::of_tiers(&tiers);
        let places = Places::new(&tiers, &views);
        (Latencies::new(tiers, views), places)
    }

    fn saved((latencies, places): &(Latencies, Places)) -> f64 {
        let reads = latencies.reads_ns(places, None);
        reads[1] - reads[0]
    }

    #[test]
    fn what_is_measured_counts_before_what_is_said() {
        assert!((saved(&of(vec![node(0, 0, None), node(1, 1, None)])) - 150.0).abs() < 1e-9);
        let mut known = of(vec![node(0, 0, Some(80)), node(1, 1, Some(250))]);
        assert!((saved(&known) - 170.0).abs() < 1e-9);
        known.0.measured(NodeId(0), NodeId(0), Nanos(1_600));
        known.0.measured(NodeId(0), NodeId(1), Nanos(5_000));
        assert!((saved(&known) - 3_400.0).abs() < 1e-9);
        known.0.measured(NodeId(0), NodeId(0), Nanos(2_600));
        assert!((saved(&known) - 2_900.0).abs() < 1e-9);
        // Loaded by what the plan moved there.
        known.0.planned();
        assert!((saved(&known) - 2_900.0).abs() < 1e-9);
        known.0.measured(NodeId(0), NodeId(0), Nanos(4_100));
        // 2,000 longer, and so the others.
        assert!((saved(&known) + 1_100.0).abs() < 1e-9);
    }

    #[test]
    fn memory_is_as_far_as_who_accesses_it_sees_it() {
        let tiers = Tiers::new(vec![
            node(0, 0, Some(90)),
            node(1, 0, Some(90)),
            node(2, 1, Some(300)),
        ]);
        let sockets = [NodeId(0), NodeId(1)];
        let way = |from: u16, to: u16, read_latency_ns, distance| AccessPath {
            from: NodeId(from),
            to: NodeId(to),
            read_latency_ns,
            distance: Some(distance),
            ..AccessPath::default()
        };
        // Of one node latencies are known, of the others, as on most machines, those of the nearest processors.
        let paths = [
            way(0, 0, Some(90), 10),
            way(1, 0, Some(135), 21),
            way(0, 1, None, 20),
            way(1, 1, Some(90), 10),
            way(0, 2, Some(300), 14),
            way(1, 2, None, 21),
        ];
        let views = Views::new(&tiers, &sockets, &paths);
        let places = Places::new(&tiers, &views);
        let mut latencies = Latencies::new(tiers, views);
        let reads = |latencies: &Latencies, from| {
            let reads = latencies.reads_ns(&places, from);
            [reads[0], reads[1], reads[2]].map(f64::round)
        };
        assert!(reads(&latencies, Some(NodeId(0))) == [90.0, 180.0, 300.0]);
        assert!(reads(&latencies, Some(NodeId(1))) == [135.0, 90.0, 450.0]);
        assert!(alike(100.0, 104.9) && !alike(100.0, 106.0));
        let from_one = latencies.reads_ns(&places, Some(NodeId(1)));
        assert!(ends(&from_one, &places) == (90.0, 450.0));
        // Both sockets' memory is as far from who runs on both.
        assert!(reads(&latencies, None) == [124.0, 124.0, 375.0]);
        // Measured from one, the other sees it as much farther as is said.
        latencies.measured(NodeId(0), NodeId(0), Nanos(180));
        assert!(reads(&latencies, Some(NodeId(1))) == [270.0, 90.0, 450.0]);
        latencies.measured(NodeId(1), NodeId(0), Nanos(300));
        assert!(reads(&latencies, Some(NodeId(1))) == [300.0, 90.0, 450.0]);
    }
}
