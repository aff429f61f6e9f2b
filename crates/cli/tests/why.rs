// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace why` without tiers: who answers, and what is said where there is nothing to say. The guest tests have
//! the rest.

use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::time::Duration;
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);

fn terrace(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("terrace"));
    command.env("TERRACE_RUN_DIR", dir).args(arguments);
    command.output().expect("terrace starts")
}

#[test]
fn a_policy_that_believes_nothing_says_so() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut run = Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .env("TERRACE_RUN_DIR", dir.path())
        .args(["run", "--policy", "none", "--", "sleep", "100"])
        .spawn()
        .expect("starts");
    let supervisor = run.id().to_string();
    let begun = Instant::now();
    let said = loop {
        let output = terrace(dir.path(), &["why", &supervisor]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && !said.is_empty() {
            break said;
        }
        assert!(begun.elapsed() < PATIENCE, "{output:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(said.contains("policy none: it says nothing"), "{said}");
    let json = terrace(
        dir.path(),
        &["why", "--json", "--page", "7f00", &supervisor],
    );
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        (&json[0]["policy"], &json[0]["belief"]),
        (&"none".into(), &serde_json::Value::Null)
    );
    let other = terrace(dir.path(), &["why", "1"]);
    assert_eq!(other.status.code(), Some(2));
    let text = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        text.contains("no supervisor has or manages process 1"),
        "{text}"
    );
    let bad = terrace(dir.path(), &["why", "1", "--page", "0xzz"]);
    assert_eq!(bad.status.code(), Some(2));
    run.kill().expect("it runs");
    run.wait().expect("a child");
}
