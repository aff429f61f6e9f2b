// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile programs (`hazards/`) with the agent in them, under a storm of orders on this machine: they
//! end as they do alone, and pages did move.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use serde_json::Value;

/// Compiles a program of `hazards/`.
fn built(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("hazards")
        .join(name)
        .with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let compiled = Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .expect("a C compiler");
    assert!(compiled.success(), "{} does not compile", source.display());
    program
}

/// Runs it under the storm; what it printed, and the counts.
fn storm(name: &str, options: &[&str]) -> (Output, Value) {
    let program = built(name);
    let report = tempfile::NamedTempFile::new().expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_terrace-stress"))
        .args(["storm", "--report"])
        .arg(report.path())
        .args(options)
        .arg("--")
        .arg(program)
        .output()
        .expect("terrace-stress starts");
    let text = std::fs::read_to_string(report.path()).expect("a report");
    let counts =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: '{text}' {output:?}"));
    (output, counts)
}

/// A page's mapping is replaced without an event.
#[test]
fn replaced_mappings_lose_nothing() {
    for commit in ["copy", "transaction"] {
        let (output, counts) = storm("shm_remap", &["--commit", commit]);
        if counts["agents"] == 0 {
            eprintln!("skipped: no transactions here: {counts}");
            return;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{commit}: {said} {counts}");
        let moved = counts["moved"].as_u64();
        assert!(moved.is_some_and(|moved| moved > 1_000), "{counts}");
    }
}
