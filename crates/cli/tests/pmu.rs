// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `terrace run` takes for sampling with the PMU, and what it says of what it cannot take.

#![expect(clippy::unwrap_used, reason = "a test may")]

use std::fs;

use assert_cmd::Command;

/// Runs `true` with these options; the exit code and what is said.
fn run(options: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::cargo_bin("terrace").unwrap();
    let output = command
        .arg("run")
        .args(options)
        .args(["--", "true"])
        .output();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

#[test]
fn what_cannot_be_is_named_and_nothing_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("events.toml");
    fs::write(&table, "[[cpu]]\nname = 'c'\nsource = 's'\nevents = 3\n").unwrap();
    let table = table.to_str().unwrap();
    for (options, said) in [
        (
            ["--pmu-events", "/nowhere/t.toml"],
            "Cannot read the event table /nowhere/t.toml: No such file",
        ),
        (["--pmu-events", table], "line 4: unknown field `events`"),
        (["--sample-share", "0%"], "is no percentage"),
        (["--sample-share", "much"], "is no percentage"),
        (["--sample-period", "0"], "0 is not in 1.."),
    ] {
        let (code, text) = run(&options);
        assert_eq!(code, Some(125), "{options:?}: {text}");
        assert!(text.contains(said), "{options:?}: {text}");
    }
}
