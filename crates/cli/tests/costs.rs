// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which costs `terrace sim` has, and that its JSON says so.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn sim(policy: &str, options: &[&str]) -> Value {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
    let output = Command::new(env!("CARGO_BIN_EXE_terrace"))
        .args(["sim", "--json", "--no-oracle", "--policy", policy])
        .args([
            "--workload",
            "gups",
            "--fast-free",
            "16MiB",
            "--seconds",
            "3",
        ])
        .arg("--machine")
        .arg(machine)
        .args(options)
        .output()
        .expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn watched(run: &Value) -> f64 {
    run["run"]["costs"]["watched_fault_ns"]
        .as_f64()
        .expect("a cost")
}

#[test]
fn each_system_has_its_own_costs_and_the_result_says_which() {
    let (nomad, tpp) = (sim("nomad", &[]), sim("tpp", &[]));
    assert_eq!(nomad["run"]["costs"]["in_service"], true);
    assert_eq!(tpp["run"]["costs"]["in_service"], false);
    assert!(watched(&nomad) > 0.0 && watched(&tpp) == 0.0);
    assert!(nomad["metrics"]["supervisor_share"].as_f64() > Some(0.0));

    let papers = ["--costs", "papers"];
    assert_eq!(sim("tpp", &papers)["metrics"], tpp["metrics"]);
    let kernel = sim("nomad", &papers);
    assert_eq!(kernel["run"]["costs"]["in_service"], false);
    let profiling = |run: &Value| run["metrics"]["profiling_share"].as_f64();
    assert!(profiling(&kernel) < profiling(&nomad));
    let hardware = sim("nomad", &["--costs", "hardware"]);
    assert_eq!(hardware["metrics"], nomad["metrics"]);
    // What only a kernel can do is the paper's system.
    let in_fault = sim("nomad", &["--mover", "in-fault"]);
    assert_eq!(in_fault["run"]["costs"]["in_service"], false);
}

#[test]
fn a_file_takes_the_place_of_the_values_that_it_has() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("own.toml");
    std::fs::write(&file, "hint_fault_ns = 5000\n").expect("written");
    let own = sim("nomad", &["--costs", file.to_str().expect("plain")]);
    assert_eq!(own["run"]["costs"]["hint_fault_ns"], 5000.0);
    assert!(watched(&own) > 0.0, "the rest is the policy's own");
}
