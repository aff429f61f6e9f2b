// SPDX-License-Identifier: MIT OR Apache-2.0
use std::path::Path;

use terrace_sim::Mover;
use terrace_sim::TrackerKind;

use super::*;
use crate::claim::Claim;

const MACHINE: &str = include_str!("../../../machines/nomad-platform-a.toml");

fn spec(lines: &str) -> RunSpec {
    let text = format!(
        "id = \"x\"\npaper = \"nomad\"\nsection = \"4\"\nsays = \"s\"\nscaled = \"s\"\n\
         status = \"held\"\n[[run]]\nname = \"a\"\nmachine = \"m\"\nsystem = \"tpp\"\n\
         seconds = 1.0\n{lines}\n[[holds]]\nleft = \"a.m\"\nrelation = \">=\"\nright = 1\n"
    );
    let claim = Claim::parse(&text, "x", Path::new("x.toml"))
        .unwrap()
        .remove(0);
    claim.runs[0].spec.clone()
}

fn set_up(lines: &str) -> Result<Setup, String> {
    let machine = Machine::parse(MACHINE, Path::new("m")).unwrap();
    spec(lines)
        .setup(machine)
        .map_err(|error| error.to_string())
}

#[test]
fn everything_is_divided_alike() {
    let lines = "workload = \"nomad-small-read\"\nsizes = { resident_set = \"20GB\", working_set = \"10GB\", threads = 2 }\nfree = [\"14GB\", \"\"]\n";
    let whole = set_up(lines).unwrap();
    let part = set_up(&format!("{lines}divide = 8")).unwrap();
    assert_eq!(whole.machine.nodes[0].bytes, 16_000_000_000);
    assert_eq!(part.machine.nodes[0].bytes, 2_000_000_000);
    assert_eq!(
        part.machine.sockets[0].llc.bytes * 8,
        whole.machine.sockets[0].llc.bytes
    );
    assert_eq!(part.free[&0], 1_750_000_000);
    assert!(!part.free.contains_key(&1));
    let pages = |setup: &Setup| setup.workload.programs[0].pages;
    assert_eq!(pages(&whole) / 8, pages(&part));
    assert_eq!(part.workload.programs[0].threads, 2);
    assert_eq!(part.system, "tpp");
}

#[test]
fn costs_are_those_of_the_system_as_it_is_unless_named() {
    let lines = "workload = \"gups\"\n";
    let costs = |spec: RunSpec| {
        let machine = Machine::parse(MACHINE, Path::new("m")).unwrap();
        spec.setup(machine).unwrap().costs
    };
    let of = |system: &str, lines: &str| {
        let mut spec = spec(lines);
        spec.system = system.to_owned();
        costs(spec)
    };
    assert_eq!(of("tpp", lines), Costs::papers());
    assert_eq!(of("nomad", lines), Costs::hardware());
    let papers = format!("{lines}costs = \"papers\"\n");
    assert_eq!(of("nomad", &papers), Costs::papers());
    let hardware = format!("{lines}costs = \"hardware\"\n");
    assert_eq!(of("tpp", &hardware), Costs::hardware());
}

#[test]
fn a_graph_is_divided_by_its_vertices() {
    let lines = "workload = \"pagerank\"\nsizes = { vertices_log2 = 20, edges = 16 }\n";
    let pages = |setup: Setup| f64::from(setup.workload.programs[0].pages);
    let whole = pages(set_up(lines).unwrap());
    let part = pages(set_up(&format!("{lines}divide = 4")).unwrap());
    assert!((whole / part - 4.0).abs() < 0.01, "{whole} {part}");
}

#[test]
fn what_there_is_not_is_named() {
    let error = set_up("workload = \"gusp\"").unwrap_err();
    assert!(error.contains("gusp"), "{error}");
    let error = set_up("workload = \"gups\"\nsizes = { cold = 1 }").unwrap_err();
    assert!(error.contains("cold"), "{error}");
    let error = set_up("workload = \"gups\"\nsizes = { hot = [1] }").unwrap_err();
    assert!(error.contains("Size hot"), "{error}");
    let error = set_up("workload = \"gups\"\nfree = [\"1GB\", \"1GB\", \"1GB\"]").unwrap_err();
    assert!(error.contains("free names 3 nodes"), "{error}");
}

#[test]
fn trackers_and_mover_are_those_that_are_named() {
    let workload = "workload = \"gups\"\n";
    let own = set_up(workload).unwrap();
    assert_eq!(
        (own.trackers, own.mover),
        (vec![TrackerKind::Auto], Mover::Auto)
    );
    let named =
        format!("{workload}tracker = \"hint-faults, accessed-bits\"\nmover = \"move-pages\"");
    let named = set_up(&named).unwrap();
    let both = vec![TrackerKind::HintFaults, TrackerKind::AccessedBits];
    assert_eq!((named.trackers, named.mover), (both, Mover::MovePages));
}
