// SPDX-License-Identifier: MIT OR Apache-2.0

use proptest::prelude::*;

use super::*;
use crate::NodeInfo;

fn node(id: u16, tier: u16, cpus: u32, gib: u64) -> NodeInfo {
    NodeInfo {
        id: NodeId(id),
        tier: TierId(tier),
        capacity_bytes: gib << 30,
        cpus: (0..cpus).collect(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    }
}

fn path(from: u16, to: u16, latency: u32, distance: u32) -> AccessPath {
    AccessPath {
        from: NodeId(from),
        to: NodeId(to),
        read_latency_ns: Some(latency),
        read_bandwidth_mbps: None,
        distance: Some(distance),
    }
}

fn ids(nodes: impl Iterator<Item = NodeId>) -> Vec<u16> {
    nodes.map(|node| node.0).collect()
}

/// The paper's machine (figure 1): local slow memory is nearer than remote DRAM, and slower.
#[test]
fn remote_dram_comes_before_local_slow_memory() {
    let tiers = Tiers::new(vec![
        node(0, 0, 1, 16),
        node(1, 0, 1, 16),
        node(2, 1, 0, 128),
        node(3, 1, 0, 128),
    ]);
    let of = |from: u16, seen: [(u32, u32); 4]| {
        let to = (0_u16..).zip(seen);
        to.map(move |(to, (latency, distance))| path(from, to, latency, distance))
    };
    let first = of(0, [(90, 10), (145, 21), (275, 17), (340, 28)]);
    let second = of(1, [(145, 21), (90, 10), (340, 28), (275, 17)]);
    let paths: Vec<AccessPath> = first.chain(second).collect();
    let views = Views::new(&tiers, &[NodeId(0), NodeId(1)], &paths);
    let order = |cpu: u16| {
        ids(views
            .of(Some(NodeId(cpu)))
            .unwrap()
            .nodes()
            .iter()
            .map(|s| s.node))
    };
    assert_eq!(order(0), [0, 1, 2, 3]);
    assert_eq!(order(1), [1, 0, 3, 2]);
    let from = views.of(Some(NodeId(1))).expect("a view");
    assert_eq!(ids(from.promotion(NodeId(2))), [1, 0]);
    assert_eq!(ids(from.migration(NodeId(2))), [3]);
    assert_eq!(ids(from.better(NodeId(2))), [1, 0, 3]);
    assert_eq!(ids(from.migration(NodeId(0))), [1]);
    assert_eq!(ids(from.demotion(NodeId(0))), [3, 2]);
    assert_eq!(from.demotion(NodeId(3)).count(), 0);
    let near = |node| views.nearest(NodeId(node)).map(|view| view.from.0);
    assert_eq!([0, 1, 2, 3].map(near), [0, 1, 0, 1].map(Some));
    // By distances alone the same, as tiers come first.
    let far: Vec<AccessPath> = paths
        .iter()
        .map(|p| AccessPath {
            read_latency_ns: None,
            ..*p
        })
        .collect();
    let blind = Views::new(&tiers, &[NodeId(0), NodeId(1)], &far);
    assert_eq!(
        ids(blind.all()[1].nodes().iter().map(|s| s.node)),
        [1, 0, 3, 2]
    );
}

/// Two sockets of which only distances are known, which say that each is nearest to itself.
#[test]
fn what_is_measured_goes_before_distances() {
    let nodes = (0..4).map(|id| node(id, id / 2, 1, 16)).collect();
    let by_distance = |from, to| AccessPath {
        read_latency_ns: None,
        ..path(from, to, 0, if from == to % 2 { 10 } else { 20 })
    };
    let paths = [0, 1].map(|from| [0, 1, 2, 3].map(|to| by_distance(from, to)));
    let cpus = [NodeId(0), NodeId(1)];
    let tiers = Tiers::new(nodes);
    let views = Views::new(&tiers, &cpus, paths.as_flattened());
    let orders = |reads: &[(u16, u16, u32)]| {
        let reads = reads.iter();
        let reads = reads.map(|(from, to, ns)| ((NodeId(*from), NodeId(*to)), *ns));
        let views = views.measured(&reads.collect());
        [0, 1].map(|at| ids(views.all()[at].nodes().iter().map(|seen| seen.node)))
    };
    let said = [vec![0, 1, 2, 3], vec![1, 0, 3, 2]];
    assert_eq!(orders(&[]), said);
    // In part, and where it is the same for all that can be told: as distances have it.
    assert_eq!(orders(&[(0, 0, 145), (1, 1, 90)]), said);
    assert_eq!(orders(&[(0, 0, 110), (0, 1, 90)]), said);
    // From the first socket the other's memory is faster; a tier stays one, whatever its reads take.
    let first = [(0, 0, 145), (0, 1, 90), (0, 2, 60), (0, 3, 60)];
    assert_eq!(orders(&first), [vec![1, 0, 2, 3], vec![1, 0, 3, 2]]);
    let slow = [(1, 2, 275), (1, 3, 400)];
    assert_eq!(orders(&slow), [vec![0, 1, 2, 3], vec![1, 0, 2, 3]]);
    // Of a tier that is described what is measured under some load says nothing new.
    let known = [0, 1].map(|to| path(0, to, 90 + u32::from(to), 10));
    let views = Views::new(&tiers, &cpus[..1], &known);
    let reads = first.map(|(from, to, ns)| ((NodeId(from), NodeId(to)), ns));
    assert_eq!(views.measured(&reads.into_iter().collect()), views);
}

#[test]
fn latencies_make_tiers() {
    let of = |latencies: &[(u16, u32)]| {
        let latencies: Vec<_> = latencies.iter().map(|(n, l)| (NodeId(*n), *l)).collect();
        let classes = classes(&latencies);
        classes.iter().map(|(n, t)| (n.0, t.0)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(&[(0, 90), (1, 95), (2, 275), (3, 280)]),
        [(0, 0), (1, 0), (2, 1), (3, 1)]
    );
    assert_eq!(
        of(&[(7, 100), (3, 125), (5, 126)]),
        [(7, 0), (3, 0), (5, 1)]
    );
    assert!(of(&[]).is_empty());
}

#[test]
fn processors_without_memory_and_no_processors_at_all_have_views() {
    let tiers = Tiers::new(vec![node(4, 0, 0, 1), node(9, 1, 0, 1)]);
    let views = Views::new(&tiers, &[NodeId(2)], &[path(2, 9, 300, 20)]);
    assert_eq!(views.all().len(), 1);
    assert_eq!(views.of(None).map(|view| view.from), Some(NodeId(2)));
    let views = Views::of_tiers(&tiers);
    assert_eq!(
        views.of(Some(NodeId(7))).map(|view| view.from),
        Some(NodeId(4))
    );
    assert!(Views::of_tiers(&Tiers::default()).of(None).is_none());
}

/// Up to 8 sockets and 16 memory nodes: numbers with holes, nodes without processors or memory, uneven
/// sizes, ways that are known in part.
fn machines() -> impl Strategy<Value = (Tiers, Vec<NodeId>, Vec<AccessPath>)> {
    let nodes = prop::collection::btree_map(0_u16..40, (0_u16..4, 0_u32..3, 0_u64..4), 1..16);
    let bare = prop::collection::btree_set(40_u16..44, 0..3);
    let known = prop::collection::vec((any::<bool>(), 50_u32..500, 10_u32..40), 20 * 16);
    (nodes, bare, known).prop_map(|(nodes, bare, known)| {
        let infos: Vec<NodeInfo> = nodes
            .iter()
            .map(|(id, (tier, cpus, gib))| node(*id, *tier, *cpus, *gib))
            .collect();
        let with = infos.iter().filter(|node| !node.cpus.is_empty());
        let mut cpu_nodes: Vec<NodeId> = with.map(|node| node.id).take(8).collect();
        cpu_nodes.extend(bare.into_iter().map(NodeId));
        let from = cpu_nodes.clone();
        let pairs = from
            .iter()
            .flat_map(|from| nodes.keys().map(|to| (from.0, *to)));
        let paths = pairs.zip(known).filter(|(_, (known, ..))| *known);
        let paths =
            paths.map(|((from, to), (_, latency, distance))| path(from, to, latency, distance));
        (Tiers::new(infos), cpu_nodes, paths.collect())
    })
}

/// One of the paper's sockets has its own mind, the other has not.
#[test]
fn ways_that_are_said_go_before_those_of_the_order() {
    let tiers = Tiers::new(
        (0..4)
            .map(|id| node(id, id / 2, u32::from(id < 2), 16))
            .collect(),
    );
    let views = Views::of_tiers(&tiers);
    let way = |from: u16, on: u16, kind, to: &[u16]| GivenWay {
        from: NodeId(from),
        node: NodeId(on),
        kind,
        to: to.iter().copied().map(NodeId).collect(),
    };
    use WayKind::{Demotion, Migration, Promotion};
    let ways = [
        way(0, 2, Promotion, &[1]),
        way(0, 1, Migration, &[]),
        way(0, 0, Demotion, &[3, 2]),
    ];
    assert_eq!(views.check(&ways), Ok(()));
    let said = views.clone().with(&ways);
    let view = said.of(Some(NodeId(0))).unwrap();
    assert_eq!(ids(view.promotion(NodeId(2))), [1]);
    assert_eq!(
        ids(view.better(NodeId(2))),
        [1],
        "the other slow node is no better"
    );
    assert_eq!(
        ids(view.promotion(NodeId(3))),
        [0, 1],
        "nobody said otherwise"
    );
    assert_eq!(ids(view.better(NodeId(1))), []);
    assert_eq!(ids(view.demotion(NodeId(0))), [3, 2]);
    assert_eq!(said.all()[1], views.all()[1]);
    // Who is nearest to a node is not a matter of ways.
    assert_eq!(
        said.nearest(NodeId(1)).map(|view| view.from),
        Some(NodeId(1))
    );
    for (way, error) in [
        (
            way(0, 2, Promotion, &[3]),
            "The promotion from node 2 as seen from 0: node 3 is not of a faster tier",
        ),
        (
            way(0, 0, Migration, &[1]),
            "The migration from node 0 as seen from 0: node 1 is not a better node of its tier",
        ),
        (
            way(0, 0, Demotion, &[1]),
            "The demotion from node 0 as seen from 0: node 1 is not of a slower tier",
        ),
        (
            way(0, 0, Demotion, &[2, 2]),
            "The demotion from node 0 as seen from 0 is given twice, or leads to one node twice",
        ),
        (
            way(2, 0, Demotion, &[2]),
            "The demotion from node 0 as seen from 2: node 2 has no processors here; nodes with processors: 0, 1",
        ),
    ] {
        assert_eq!(views.check(&[way]).unwrap_err().to_string(), error);
    }
    let twice = [ways[0].clone(), ways[0].clone()];
    assert!(matches!(views.check(&twice), Err(WayError::Twice { .. })));
}

/// Measured, node 1 is the better one for socket 0: what was a way to a better node is none any more.
#[test]
fn what_is_measured_may_close_a_way_that_is_said() {
    let tiers = Tiers::new(vec![node(0, 0, 1, 16), node(1, 0, 1, 16)]);
    let way = GivenWay {
        from: NodeId(0),
        node: NodeId(1),
        kind: WayKind::Migration,
        to: vec![NodeId(0)],
    };
    let views = Views::of_tiers(&tiers).with(&[way]);
    assert_eq!(ids(views.all()[0].migration(NodeId(1))), [0]);
    let reads = BTreeMap::from([((NodeId(0), NodeId(0)), 200), ((NodeId(0), NodeId(1)), 100)]);
    let measured = views.measured(&reads);
    assert_eq!(ids(measured.all()[0].migration(NodeId(1))), []);
    assert_eq!(ids(measured.all()[0].migration(NodeId(0))), [1]);
}

proptest! {
    /// Whatever is said, no way of one kind is a circle, and what is refused is what is left out.
    #[test]
    fn ways_that_are_said_are_no_circles(
        (tiers, cpu_nodes, paths) in machines(),
        said in prop::collection::vec((0_usize..8, 0_usize..16, 0_usize..3, prop::collection::vec(0_usize..16, 0..4)), 0..12),
    ) {
        let views = Views::new(&tiers, &cpu_nodes, &paths);
        let id = |at: usize| tiers.nodes()[at % tiers.nodes().len()].id;
        let kinds = [WayKind::Promotion, WayKind::Migration, WayKind::Demotion];
        let ways: Vec<GivenWay> = said.into_iter().map(|(view, on, kind, to)| GivenWay {
            from: views.all()[view % views.all().len()].from,
            node: id(on),
            kind: kinds[kind],
            to: to.into_iter().map(id).collect(),
        }).collect();
        let with = views.clone().with(&ways);
        for view in with.all() {
            let tier = |node: &NodeId| view.seen(*node).expect("seen").tier;
            for seen in view.nodes() {
                let node = seen.node;
                prop_assert!(view.promotion(node).all(|to| tier(&to) < seen.tier));
                prop_assert!(view.demotion(node).all(|to| tier(&to) > seen.tier));
                prop_assert!(view.migration(node).all(|to| tier(&to) == seen.tier && view.rank(to) < view.rank(node)));
            }
        }
        for way in &ways {
            let alone = views.clone().with(std::slice::from_ref(way));
            let view = alone.of(Some(way.from)).expect("a view");
            let leads: Vec<NodeId> = match way.kind {
                WayKind::Promotion => view.promotion(way.node).collect(),
                WayKind::Migration => view.migration(way.node).collect(),
                WayKind::Demotion => view.demotion(way.node).collect(),
            };
            let mut once = way.to.clone();
            once.sort_unstable();
            once.dedup();
            let fits = leads == way.to && once.len() == way.to.len();
            prop_assert_eq!(views.check(std::slice::from_ref(way)).is_ok(), fits);
        }
    }

    #[test]
    fn ways_lead_up_or_down_and_everywhere((tiers, cpu_nodes, paths) in machines()) {
        let views = Views::new(&tiers, &cpu_nodes, &paths);
        prop_assert_eq!(views.all().len(), cpu_nodes.len().max(1));
        let mut memory: Vec<NodeId> = tiers.nodes().iter().filter(|n| n.capacity_bytes > 0).map(|n| n.id).collect();
        memory.sort_unstable();
        for view in views.all() {
            let mut all: Vec<NodeId> = view.nodes().iter().map(|seen| seen.node).collect();
            prop_assert!(view.nodes().windows(2).all(|two| two[0].tier <= two[1].tier), "tier first");
            all.sort_unstable();
            prop_assert_eq!(&all, &memory, "every node once");
            let tier = |node| tiers.tier_of(node).expect("a node");
            let rank = |node| view.rank(node).expect("a node");
            for &node in &memory {
                // Ranks fall with each step up, tiers rise with each step down: no circle of either.
                let up: Vec<NodeId> = view.promotion(node).chain(view.migration(node)).collect();
                prop_assert!(up.iter().all(|to| rank(*to) < rank(node)), "never to a worse node");
                prop_assert!(up.windows(2).all(|two| rank(two[0]) < rank(two[1])), "the best first");
                prop_assert_eq!(&up, &view.better(node).collect::<Vec<_>>());
                prop_assert_eq!(up.len(), rank(node), "every better node can be reached");
                prop_assert!(view.migration(node).all(|to| tier(to) == tier(node)));
                let down: Vec<NodeId> = view.demotion(node).collect();
                prop_assert!(down.iter().all(|to| tier(*to) > tier(node)));
                prop_assert!(down.windows(2).all(|two| rank(two[0]) < rank(two[1])));
                // Every node of a lower tier is reached, tier by tier.
                let mut reached = vec![node];
                let mut at = 0;
                while at < reached.len() {
                    for to in view.demotion(reached[at]) {
                        if !reached.contains(&to) {
                            reached.push(to);
                        }
                    }
                    at += 1;
                }
                let lower = memory.iter().filter(|to| tier(**to) > tier(node)).count();
                prop_assert_eq!(reached.len() - 1, lower);
            }
            // Within a tier of which all latencies are known, the faster node first.
            for two in view.nodes().windows(2).filter(|two| two[0].tier == two[1].tier) {
                let same = view.nodes().iter().filter(|seen| seen.tier == two[0].tier);
                if same.clone().all(|seen| seen.path.read_latency_ns.is_some()) {
                    prop_assert!(two[0].path.read_latency_ns <= two[1].path.read_latency_ns);
                }
            }
        }
        for node in memory {
            let nearest = views.nearest(node).expect("a view");
            let best = views.all().iter().map(|view| view.migration(node).count()).min();
            prop_assert_eq!(Some(nearest.migration(node).count()), best);
        }
    }
}
