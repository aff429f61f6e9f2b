// SPDX-License-Identifier: MIT OR Apache-2.0
//! Machines as sysfs shows them, in a directory.

use tempfile::TempDir;

use super::memory::MemoryReader;
use super::*;

/// A node of a made-up machine: memory in MiB, processors, read latency where HMAT says.
struct Made {
    mib: u64,
    cpus: &'static str,
    latency: Option<u32>,
}

const fn made(mib: u64, cpus: &'static str, latency: Option<u32>) -> Made {
    Made { mib, cpus, latency }
}

pub(crate) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("{text}\n")).unwrap();
}

fn machine(nodes: &[Made], distances: &[&str], kernel_tiers: &[(u32, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("sys/devices/system/node");
    put(&directory.join("online"), &format!("0-{}", nodes.len() - 1));
    let mut zoneinfo = String::new();
    for (id, node) in nodes.iter().enumerate() {
        let at = directory.join(format!("node{id}"));
        let kib = node.mib * 1024;
        put(
            &at.join("meminfo"),
            &format!(
                "Node {id} MemTotal:   {kib} kB\nNode {id} MemFree:    {} kB",
                kib / 2
            ),
        );
        put(&at.join("cpulist"), node.cpus);
        put(&at.join("distance"), distances[id]);
        if let Some(latency) = node.latency {
            let access = at.join("access1/initiators");
            put(&access.join("read_latency"), &latency.to_string());
            put(&access.join("write_latency"), &(latency + 20).to_string());
            put(&access.join("read_bandwidth"), "20480");
        }
        zoneinfo += &format!("Node {id}, zone Normal\n low 10{id}\n high 20{id}\n managed {kib}\n");
    }
    put(&root.path().join("proc/zoneinfo"), &zoneinfo);
    for (number, list) in kernel_tiers {
        let tiers = root.path().join("sys/devices/virtual/memory_tiering");
        put(&tiers.join(format!("memory_tier{number}/nodelist")), list);
        put(&tiers.join("power/control"), "auto");
    }
    root
}

fn tiers(topology: &Topology) -> Vec<(u16, u16)> {
    let nodes = topology.tiers.nodes().iter();
    nodes.map(|n| (n.tier.0, n.id.0)).collect()
}

fn discover(root: &TempDir) -> Topology {
    Topology::discover(root.path(), &Override::default()).unwrap()
}

#[test]
fn one_node_is_one_tier() {
    let root = machine(&[made(1024, "0-1", None)], &["10"], &[(4, "0")]);
    let topology = discover(&root);
    assert_eq!(tiers(&topology), [(0, 0)]);
    assert_eq!(topology.source, TierSource::OneTier);
    assert_eq!(topology.kernel_tiers, Some(1));
    assert!(!topology.kernel_tells_tiers());
    assert_eq!(topology.tiers.nodes()[0].cpus, [0, 1]);
    assert_eq!(topology.tiers.nodes()[0].capacity_bytes, 1 << 30);
}

#[test]
fn two_tiers_with_hmat_are_the_kernels() {
    let root = machine(
        &[made(288, "0-1", Some(80)), made(992, "", Some(250))],
        &["10 20", "20 10"],
        &[(70, "1"), (4, "0")],
    );
    let topology = discover(&root);
    assert_eq!(tiers(&topology), [(0, 0), (1, 1)]);
    assert_eq!(topology.source, TierSource::Kernel);
    assert!(topology.kernel_tells_tiers());
    let slow = topology.tiers.node(NodeId(1)).unwrap();
    assert_eq!(slow.read_latency_ns, Some(250));
    assert_eq!(slow.write_latency_ns, Some(270));
    assert_eq!(slow.read_bandwidth_mbps, Some(20480));
    assert!(slow.cpus.is_empty());
}

/// MTM, table 1: two sockets, each with DRAM (0, 1) and persistent memory (2, 3).
#[test]
fn mtm_machine_is_seen_differently_from_each_socket() {
    let root = machine(
        &[
            made(96 << 10, "0-23", None),
            made(96 << 10, "24-47", None),
            made(768 << 10, "", None),
            made(768 << 10, "", None),
        ],
        &["10 21 17 28", "21 10 28 17", "17 28 10 28", "28 17 28 10"],
        &[(4, "0-1"), (22, "2-3")],
    );
    let topology = discover(&root);
    assert_eq!(tiers(&topology), [(0, 0), (0, 1), (1, 2), (1, 3)]);
    let view = |from| {
        let views = topology.views();
        let view = views.of(Some(NodeId(from))).unwrap();
        view.nodes().iter().map(|n| n.node.0).collect::<Vec<_>>()
    };
    assert_eq!(view(0), [0, 1, 2, 3]);
    assert_eq!(view(1), [1, 0, 3, 2]);
    assert_eq!(topology.cpu_nodes, [NodeId(0), NodeId(1)]);
    assert_eq!(topology.distance(NodeId(0), NodeId(3)), 28);
}

#[test]
fn cxl_node_in_the_tier_of_dram_is_told_apart_by_us() {
    for (latency, source) in [
        (Some((80, 250)), TierSource::Latency),
        (None, TierSource::Distance),
    ] {
        let root = machine(
            &[
                made(288, "0-1", latency.map(|l| l.0)),
                made(992, "", latency.map(|l| l.1)),
            ],
            &["10 20", "20 10"],
            &[(4, "0-1")],
        );
        let topology = discover(&root);
        assert_eq!(tiers(&topology), [(0, 0), (1, 1)]);
        assert_eq!(topology.source, source);
        assert_eq!(topology.kernel_tiers, Some(1));
        assert!(!topology.kernel_tells_tiers());
    }
}

#[test]
fn two_sockets_of_dram_are_one_tier() {
    let root = machine(
        &[made(1024, "0", Some(80)), made(1024, "1", Some(85))],
        &["10 21", "21 10"],
        &[(4, "0-1")],
    );
    let topology = discover(&root);
    assert_eq!(topology.source, TierSource::OneTier);
    assert_eq!(topology.tiers.count(), 1);
}

#[test]
fn node_without_memory_is_no_memory_node() {
    let root = machine(
        &[
            made(0, "0-3", None),
            made(1024, "", None),
            made(1024, "4-7", None),
        ],
        &["10 15 20", "15 10 20", "20 20 10"],
        &[],
    );
    let topology = discover(&root);
    assert_eq!(tiers(&topology), [(0, 2), (1, 1)]);
    assert_eq!(topology.kernel_tiers, None);
    assert_eq!(topology.cpu_nodes, [NodeId(0), NodeId(2)]);
}

#[test]
fn operator_has_the_last_word() {
    let root = machine(
        &[made(288, "0-1", Some(80)), made(992, "", Some(250))],
        &["10 20", "20 10"],
        &[(4, "0"), (70, "1")],
    );
    let with = |tiers: &[&[u16]]| {
        let tiers = tiers
            .iter()
            .map(|t| t.iter().copied().map(NodeId).collect());
        let given = Override {
            tiers: Some(tiers.collect()),
            ..Override::default()
        };
        Topology::discover(root.path(), &given)
    };
    let swapped = with(&[&[1], &[0]]).unwrap();
    assert_eq!(tiers(&swapped), [(0, 1), (1, 0)]);
    assert_eq!(swapped.source, TierSource::Override);
    let unknown = with(&[&[0], &[1, 7]]).unwrap_err().to_string();
    assert_eq!(
        unknown,
        "Tier 1 names node 7, which has no memory here; nodes with memory: 0, 1"
    );
    assert!(matches!(
        with(&[&[0]]),
        Err(TopologyError::NotOnce(NodeId(1)))
    ));
    assert!(matches!(
        with(&[&[0], &[1], &[0]]),
        Err(TopologyError::NotOnce(NodeId(0)))
    ));
}

/// Two sockets with memory behind each, of which the machine tells distances alone.
#[test]
fn what_the_operator_says_of_ways_goes_over_what_the_machine_says() {
    let root = machine(
        &[
            made(64, "0-1", None),
            made(64, "2-3", None),
            made(512, "", None),
            made(512, "", None),
        ],
        &["10 21 17 28", "21 10 28 17", "17 28 10 28", "28 17 28 10"],
        &[],
    );
    let path = |from, to, latency, distance| AccessPath {
        from: NodeId(from),
        to: NodeId(to),
        read_latency_ns: latency,
        read_bandwidth_mbps: None,
        distance,
    };
    let order = |paths: &[AccessPath]| {
        let given = Override {
            paths: paths.to_vec(),
            ..Override::default()
        };
        let topology = Topology::discover(root.path(), &given)?;
        let views = topology.views();
        let view = views.of(Some(NodeId(0))).unwrap();
        let order: Vec<u16> = view.nodes().iter().map(|seen| seen.node.0).collect();
        Ok::<_, TopologyError>((topology.source, order))
    };
    let (source, as_it_is) = order(&[]).unwrap();
    assert_eq!((source, as_it_is), (TierSource::Distance, vec![0, 1, 2, 3]));
    // From socket 0 the memory behind socket 1 is nearer, if a distance says so, or the latencies of the tier.
    let near = [path(0, 2, None, Some(17)), path(0, 3, None, Some(15))];
    assert_eq!(order(&near).unwrap().1, [0, 1, 3, 2]);
    let fast = [path(0, 2, Some(400), None), path(0, 3, Some(250), None)];
    assert_eq!(order(&fast).unwrap().1, [0, 1, 3, 2]);
    // Latencies to all nodes make the tiers, where the kernel has one: node 1 is the slow one now.
    let all = [(0, 80), (1, 400), (2, 90), (3, 100)];
    let all = all.map(|(to, latency)| path(0, to, Some(latency), None));
    let by_latency = (TierSource::Latency, vec![0, 2, 3, 1]);
    assert_eq!(order(&all).unwrap(), by_latency);
    for (paths, said) in [
        (
            vec![path(2, 0, None, Some(9))],
            "node 2 has no processors here; nodes with processors: 0, 1",
        ),
        (
            vec![path(0, 9, None, Some(9))],
            "node 9 has no memory here; nodes with memory: 0, 1, 2, 3",
        ),
        (
            vec![near[0], near[0]],
            "The path from 0 to 2 is given twice",
        ),
    ] {
        let error = order(&paths).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn memory_of_a_node_comes_with_its_watermarks() {
    let root = machine(
        &[made(288, "0-1", None), made(992, "", None)],
        &["10 20", "20 10"],
        &[],
    );
    let reader = MemoryReader::open(root.path()).unwrap();
    let memory = reader.read(NodeId(1)).unwrap();
    let page = rustix::param::page_size() as u64;
    assert_eq!(memory.total_bytes, 992 << 20);
    assert_eq!(memory.free_bytes, 496 << 20);
    assert_eq!(
        (memory.low_bytes, memory.high_bytes),
        (101 * page, 201 * page)
    );
    assert!(matches!(
        reader.read(NodeId(9)),
        Err(TopologyError::Read { .. })
    ));
}

/// The machine's files have half of each node free; cache is told beside it.
#[test]
fn the_switch_of_generations_says_what_cache_is_given_back() {
    let root = machine(&[made(288, "0-1", None)], &["10"], &[]);
    let node = root.path().join("sys/devices/system/node/node0/meminfo");
    let lists = "Node 0 Active(file): 40960 kB\nNode 0 Inactive(file): 61440 kB\n";
    let old = std::fs::read_to_string(&node).unwrap();
    std::fs::write(&node, old + lists).unwrap();
    let mut reader = MemoryReader::open(root.path()).unwrap();
    let cache = |reader: &MemoryReader| reader.read_with_cache(NodeId(0)).unwrap().1 >> 20;
    let inactive = cache(&reader);
    assert!((1..60).contains(&inactive), "{inactive}");
    let switch = root.path().join("sys/kernel/mm/lru_gen");
    std::fs::create_dir_all(&switch).unwrap();
    for (bits, more) in [("0x0007\n", 40), ("0x0000\n", 0), ("0x0006\n", 0)] {
        std::fs::write(switch.join("enabled"), bits).unwrap();
        reader.refresh().unwrap();
        assert_eq!(cache(&reader), inactive + more, "{bits}");
    }
}

#[test]
fn this_machine_is_readable() {
    let topology = Topology::discover(Path::new("/"), &Override::default()).unwrap();
    assert!(!topology.tiers.nodes().is_empty());
    let reader = MemoryReader::open(Path::new("/")).unwrap();
    for node in topology.tiers.nodes() {
        let memory = reader.read(node.id).unwrap();
        assert!(memory.free_bytes < memory.total_bytes);
        assert!(memory.low_bytes < memory.high_bytes);
        assert_eq!(memory.total_bytes, node.capacity_bytes);
    }
}

#[test]
fn missing_sysfs_is_named() {
    let root = tempfile::tempdir().unwrap();
    let error = Topology::discover(root.path(), &Override::default()).unwrap_err();
    assert!(error.to_string().contains("node/online"), "{error}");
}

/// HMAT's figures are those of a node's best initiators; to the others their distance counts.
#[test]
fn latencies_are_the_best_initiators_own() {
    let root = machine(
        &[
            made(1024, "0", Some(80)),
            made(1024, "1", Some(80)),
            made(4096, "", Some(250)),
        ],
        &["10 21 17", "21 10 28", "17 28 10"],
        &[(4, "0-1"), (22, "2")],
    );
    let nodes = root.path().join("sys/devices/system/node");
    for (node, initiator) in [(0, 0), (1, 1), (2, 0)] {
        let links = nodes.join(format!("node{node}/access1/initiators"));
        std::os::unix::fs::symlink("../../..", links.join(format!("node{initiator}"))).unwrap();
    }
    let topology = discover(&root);
    let views = topology.views();
    let latencies = |from| {
        let view = views.of(Some(NodeId(from))).unwrap();
        let seen = view.nodes().iter();
        seen.map(|s| (s.node.0, s.path.read_latency_ns, s.path.distance.unwrap()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        latencies(0),
        [(0, Some(80), 10), (1, None, 21), (2, Some(250), 17)]
    );
    assert_eq!(
        latencies(1),
        [(1, Some(80), 10), (0, None, 21), (2, None, 28)]
    );
}
