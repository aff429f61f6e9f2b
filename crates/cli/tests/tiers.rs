// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--tiers FILE`: what the operator says of memory nodes is shown, and a mistake is a line and starts nothing.

#![expect(clippy::unwrap_used, reason = "a test may")]

use assert_cmd::Command;

/// What a command says with this file; its code, standard output, and standard error.
fn with(text: &str, command: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tiers.toml");
    std::fs::write(&file, text).unwrap();
    let (first, rest) = command.split_first().unwrap();
    let output = Command::cargo_bin("terrace")
        .unwrap()
        .args([first, "--tiers"])
        .arg(&file)
        .args(rest)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[test]
fn what_is_said_of_a_way_is_shown() {
    let file = "[[path]]\nfrom_node = 0\nnode = 0\nread_latency_ns = 123\nread_bandwidth_mbps = 4567\ndistance = 8\n";
    let (code, out, err) = with(file, &["tiers", "--json"]);
    assert_eq!(code, 0, "{err}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let node = &report["nodes"][0];
    assert_eq!(node["read_latency_ns"], 123);
    assert_eq!(node["read_bandwidth_mbps"], 4567);
    assert_eq!(node["distances"][0]["distance"], 8);
}

#[test]
fn a_mistake_is_a_line_and_nothing_is_started() {
    for (text, said) in [
        (
            "tiers = [[0]]\nnodes = 3\n",
            "line 2: unknown field `nodes`",
        ),
        (
            "tiers = [[0], [60000]]\n",
            "Tier 1 names node 60000, which has no memory here",
        ),
        (
            "tiers = []\n",
            "Node 0 must be in exactly one of the tiers given",
        ),
        (
            "[[path]]\nfrom_node = 0\nnode = 0\n",
            "the path from node 0 to 0 says nothing; it takes read_latency_ns",
        ),
        (
            "[[path]]\nfrom_node = 0\nnode = 0\ndistance = 0\n",
            "distance is 0, expected more",
        ),
        (
            "[[path]]\nfrom_node = 60000\nnode = 0\ndistance = 9\n",
            "node 60000 has no processors here",
        ),
        (
            "[[way]]\nfrom_node = 0\nnode = 0\n",
            "the ways from node 0 as seen from 0 say nothing; they take promotion, migration, demotion",
        ),
        (
            "[[way]]\nfrom_node = 0\nnode = 0\npromotion = [0]\n",
            "The promotion from node 0 as seen from 0: node 0 is not of a faster tier",
        ),
        (
            "[[way]]\nfrom_node = 60000\nnode = 0\ndemotion = []\n",
            "node 60000 has no processors here",
        ),
    ] {
        for command in [
            &["tiers"][..],
            &["run", "--policy", "none", "--", "echo", "started"],
        ] {
            let (code, out, err) = with(text, command);
            assert_ne!(code, 0, "{text}");
            assert!(err.contains(said), "{text}: {err}");
            assert!(!out.contains("started"), "{text}");
        }
    }
}
