// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every machine file of the repository is read, and every mistake is named with its line.

use std::path::Path;
use std::path::PathBuf;

use super::*;

fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines")
}

fn cxl() -> String {
    std::fs::read_to_string(machines().join("cxl-2tier.toml")).unwrap()
}

/// The error for the CXL machine with `from` replaced by `to`, which must occur.
fn mistake(from: &str, to: &str) -> String {
    let text = cxl();
    assert!(text.contains(from), "the machine file has no '{from}'");
    let text = text.replacen(from, to, 1);
    Machine::parse(&text, Path::new("m.toml"))
        .unwrap_err()
        .to_string()
}

fn line_with(text: &str) -> usize {
    cxl().lines().position(|line| line.contains(text)).unwrap() + 1
}

#[test]
fn every_machine_file_is_valid() {
    let mut seen = 0;
    for entry in std::fs::read_dir(machines()).unwrap() {
        let path = entry.unwrap().path();
        let machine = Machine::load(&path).unwrap();
        assert_eq!(path.file_stem().unwrap().to_str().unwrap(), machine.name);
        for socket in 0..machine.sockets.len() {
            let home = machine.home(socket).unwrap();
            assert_eq!(
                machine.ranking(socket)[0],
                home,
                "{}: local is fastest",
                machine.name
            );
            for node in 0..machine.nodes.len() {
                assert!(machine.path(socket, node).stream_bandwidth > 0);
            }
        }
        seen += 1;
    }
    assert!(seen >= 1, "found {seen} machine files");
}

#[test]
fn values_are_read() {
    let machine = Machine::parse(&cxl(), Path::new("m.toml")).unwrap();
    assert_eq!((machine.sockets.len(), machine.nodes.len()), (1, 2));
    assert_eq!(machine.nodes[1].kind, Kind::Cxl);
    assert!(machine.path(0, 1).read_ns > machine.path(0, 0).read_ns);
    assert_eq!((machine.distance(0, 1), machine.distance(1, 0)), (20, 20));
    assert_eq!((machine.distance(1, 1), machine.home(0)), (10, Some(0)));
    assert_eq!(machine.lab.unwrap().llc.line, 64);
}

#[test]
fn unknown_key() {
    let error = mistake("kind = \"cxl\"", "kind = \"cxl\"\nspeed = 3");
    assert!(
        error.starts_with(&format!("m.toml:{}: ", line_with("kind = \"cxl\"") + 1)),
        "{error}"
    );
    assert!(error.contains("unknown field `speed`"), "{error}");
}

#[test]
fn node_without_capacity() {
    let error = mistake("capacity = \"256GiB\"\n", "");
    assert!(error.contains("missing field `capacity`"), "{error}");
    let line: usize = error.split(':').nth(1).unwrap().parse().unwrap();
    let node = line_with("kind = \"cxl\"");
    assert!((node - 2..=node + 2).contains(&line), "{error}");
}

#[test]
fn no_cpus() {
    let error = mistake("cpus = 16", "cpus = 0");
    assert_eq!(
        error,
        format!(
            "m.toml:{}: cpus is 0, expected at least one",
            line_with("cpus = 16")
        )
    );
}

#[test]
fn no_socket() {
    let text = "name = \"x\"\n[[node]]\nid = 0\nkind = \"dram\"\ncapacity = \"1GiB\"\n";
    let error = Machine::parse(text, Path::new("m.toml"))
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "m.toml:1: the machine has no [[socket]], so it has no CPUs"
    );
}

#[test]
fn missing_path_and_distance() {
    let error = mistake("socket = 0\nnode = 1\n", "socket = 0\nnode = 0\n");
    assert!(
        error.contains("second path from socket 0 to node 0"),
        "{error}"
    );
    let text = cxl();
    let path = text.rfind("[[path]]").unwrap();
    let lab = text.rfind("[lab]").unwrap();
    let cut = format!("{}{}", &text[..path], &text[lab..]);
    let error = Machine::parse(&cut, Path::new("m.toml"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no [[path]] from socket 0 to node 1"),
        "{error}"
    );
    let error = mistake("distance = 20\n", "");
    assert!(error.contains("missing field `distance`"), "{error}");
}

#[test]
fn bad_quantities() {
    for (from, to, what) in [
        (
            "\"64GiB\"",
            "\"64 gobs\"",
            "capacity is '64 gobs', expected a size like 4GiB",
        ),
        (
            "\"64GiB\"",
            "\"0\"",
            "capacity is '0', expected a size like 4GiB",
        ),
        (
            "\"100GB/s\"",
            "\"100GB\"",
            "read_bandwidth is '100GB', expected a rate like 20GB/s",
        ),
        (
            "read_ns = 80",
            "read_ns = -1",
            "read_ns is -1, expected nanoseconds above 0",
        ),
        (
            "distance = 20",
            "distance = 5",
            "distance is 5, expected 10 (local) to 254",
        ),
        (
            "dilation = 20",
            "dilation = 0.5",
            "dilation is 0.5, expected 1 or more",
        ),
        ("\"32MiB\"", "\"33MiB\"", "sets must be a power of two"),
        ("id = 1", "id = 7", "node id is 7, expected 1"),
        (
            "socket = 0\ncap",
            "socket = 3\ncap",
            "node 0 is at socket 3, there are 1",
        ),
    ] {
        let error = mistake(from, to);
        assert!(error.contains(what), "{to}: {error}");
        assert!(error.starts_with("m.toml:"), "{error}");
    }
}

#[test]
fn missing_file_is_named() {
    let error = Machine::load(Path::new("/nowhere/x.toml"))
        .unwrap_err()
        .to_string();
    assert_eq!(error, "Cannot read machine file /nowhere/x.toml");
}

#[test]
fn a_block_is_a_cache_line_unless_it_is_given() {
    let blocks = |text: &str| {
        let machine = Machine::parse(text, Path::new("m.toml")).unwrap();
        [0, 1].map(|node: usize| machine.nodes[node].block)
    };
    let text = include_str!("../../../machines/hemem.toml");
    assert_eq!(blocks(text), [64, 256]);
    let error = mistake("kind = \"cxl\"", "kind = \"cxl\"\nblock = 100");
    let line = line_with("kind = \"cxl\"") + 1;
    assert_eq!(
        error,
        format!("m.toml:{line}: block is 100, expected a power of two, 64..4096")
    );
}
