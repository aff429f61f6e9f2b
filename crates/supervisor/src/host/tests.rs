// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::BTreeMap;

use terrace_core::Pid;
use terrace_policy::Settings;
use terrace_sys::topology::TierSource;

use super::*;
use crate::options::Target;

fn node(id: u16, tier: u16) -> NodeInfo {
    NodeInfo {
        id: NodeId(id),
        tier: TierId(tier),
        capacity_bytes: 1 << 30,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    }
}

fn of(policy: &str, fast_bytes: Option<u64>, nodes: Vec<NodeInfo>) -> Result<Host, HostError> {
    let options = Options {
        policy: policy.to_owned(),
        fast_bytes,
        ..Options::new(Target::Running(Pid(1)))
    };
    let preset = Preset::of(policy).expect("a preset");
    Host::of(&options, preset, Tiers::new(nodes))
}

#[test]
fn a_machine_of_one_tier_is_refused_unless_it_is_split_or_nobody_looks() {
    let (one, flat) = (vec![node(0, 0)], vec![node(0, 0), node(1, 0)]);
    let refused = |policy, fast, nodes: &Vec<NodeInfo>| of(policy, fast, nodes.clone()).err();
    assert_eq!(refused("nomad", None, &one), Some(HostError::OneNode));
    assert_eq!(refused("nomad", None, &flat), Some(HostError::OneTier));
    assert_eq!(
        refused("nomad", Some(4096), &flat),
        Some(HostError::OneTier)
    );
    assert_eq!(refused("none", None, &one), None);
    let host = of("nomad", Some(1 << 20), one).expect("split in name");
    let sizes: Vec<u64> = host
        .tiers
        .nodes()
        .iter()
        .map(|n| n.capacity_bytes)
        .collect();
    assert_eq!(sizes, [1 << 20, (1 << 30) - (1 << 20)]);
    assert!(host.simulated_tier && host.tiers.count() == 2);
    assert!(host.limits[0].contains("1.0 MiB fast"), "{:?}", host.limits);
}

#[test]
fn the_fast_tier_can_be_as_large_as_it_is() {
    let two = || vec![node(0, 0), node(1, 1)];
    let most = 1 << 30;
    for given in [0, most + 1] {
        let error = of("nomad", Some(given), two()).expect_err("no such size");
        assert_eq!(error, HostError::Fast { given, most });
    }
    let host = of("nomad", Some(most), two()).expect("all of it");
    assert!(host.limits.is_empty() && !host.simulated_tier);
    assert!(of("none", Some(most + 1), vec![node(0, 0)]).is_err());
}

#[test]
fn tiers_that_the_kernel_does_not_see_are_told_of() {
    let mut topology = Topology {
        tiers: Tiers::new(vec![node(0, 0), node(1, 1)]),
        source: TierSource::Distance,
        kernel_tiers: Some(1),
        distances: BTreeMap::new(),
        cpu_nodes: vec![NodeId(0)],
        initiators: BTreeMap::new(),
        given: terrace_sys::topology::Override::default(),
    };
    let line = unseen_tiers(&topology, Capabilities::HINT_FAULTS).expect("something to tell");
    assert!(
        line.contains("expect no hint faults") && !line.contains('\n'),
        "{line}"
    );
    assert_eq!(unseen_tiers(&topology, Capabilities::SAMPLES), None);
    topology.kernel_tiers = Some(2);
    assert_eq!(unseen_tiers(&topology, Capabilities::HINT_FAULTS), None);
}

#[test]
fn a_policy_that_exchanges_pages_without_the_agent_is_told_of() {
    let line = |mover, mode| {
        let settings = [format!("mode={mode}")];
        let settings = Settings::parse("autotiering", &settings).expect("a setting");
        let options = Options {
            policy: "autotiering".to_owned(),
            mover,
            settings,
            ..Options::new(Target::Running(Pid(1)))
        };
        let preset = Preset::of("autotiering").expect("a preset");
        let nodes = vec![node(0, 0), node(1, 1)];
        let mut host = Host::of(&options, preset, Tiers::new(nodes)).expect("a host");
        host.make_once(&options).expect("its parameters are right");
        host.limits.pop()
    };
    for mode in ["cpmx", "opmx"] {
        let told = line(Mover::MovePages, mode).expect("something to tell");
        assert!(
            told.contains("--mover move-pages") && told.ends_with("add --mover agent"),
            "{told}"
        );
        assert_eq!(line(Mover::Agent, mode), None);
    }
    for mode in ["cpm", "opm", "opm-bd"] {
        assert_eq!(line(Mover::MovePages, mode), None);
    }
}

#[test]
fn who_waits_for_a_supervisor_that_is_held_up_is_told() {
    let root = tempfile::tempdir().expect("a directory");
    let write = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("a file")).expect("directories");
        std::fs::write(path, text).expect("a file");
    };
    write("proc/self/cgroup", "0::/sidecar\n");
    write("proc/12/cgroup", "0::/app\n");
    write("proc/13/cgroup", "0::/sidecar\n");
    let told = |pid| held_up(root.path(), &Target::Running(Pid(pid)));
    assert_eq!(told(12), None, "without a limit");
    write("sys/fs/cgroup/sidecar/cpu.max", "10000 100000\n");
    assert!(told(12).is_some_and(|text| text.contains("0.1 processors")));
    assert_eq!(told(13), None, "both are held up");
}
