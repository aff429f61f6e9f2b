// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace run --group`: several programs, one supervisor, each with its own end.

use std::path::Path;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

/// On a slow machine everything takes its time.
const PATIENCE: Duration = Duration::from_secs(120);

fn member(dir: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin("terrace"));
    command
        .env("TERRACE_RUN_DIR", dir)
        .args(["run", "--policy", "none", "--group", "g"])
        .args(arguments);
    command
}

/// A program that ends with that code when the file is there.
fn waits_for(dir: &Path, file: &str, code: u8) -> Child {
    let file = dir.join(file);
    let script = format!(
        "until [ -e {} ]; do sleep 0.05; done; exit {code}",
        file.display()
    );
    member(dir, &["--", "sh", "-c", &script])
        .spawn()
        .expect("starts")
}

fn status(dir: &Path) -> Vec<serde_json::Value> {
    let output = Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .env("TERRACE_RUN_DIR", dir)
        .args(["status", "--json"])
        .output()
        .expect("runs");
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(
            begun.elapsed() < PATIENCE,
            "{what}: not within {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn members_share_a_supervisor_and_end_on_their_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let mut first = waits_for(dir, "first", 7);
    let mut second = waits_for(dir, "second", 3);
    let shells = |status: &[serde_json::Value]| {
        let processes = status[0]["processes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        processes.iter().filter(|p| p["name"] == "sh").count()
    };
    eventually("both programs are managed by one supervisor", || {
        let status = status(dir);
        status.len() == 1 && shells(&status) == 2
    });
    let supervisor = status(dir)[0]["supervisor_pid"].clone();
    std::fs::write(dir.join("first"), "").expect("writable");
    assert_eq!(first.wait().expect("our child").code(), Some(7));
    // The one that started it has ended, and the supervisor serves the other on.
    let after = status(dir);
    assert_eq!(after.len(), 1, "{after:?}");
    assert_eq!(after[0]["supervisor_pid"], supervisor);
    std::fs::write(dir.join("second"), "").expect("writable");
    assert_eq!(second.wait().expect("our child").code(), Some(3));
    eventually("the supervisor ends with its last member", || {
        !dir.join("group-g").is_symlink() && status(dir).is_empty()
    });
}

#[test]
fn a_group_has_one_policy_and_a_plain_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |options: &[&str]| {
        let output = Command::new(assert_cmd::cargo::cargo_bin("terrace"))
            .env("TERRACE_RUN_DIR", dir.path())
            .arg("run")
            .args(options)
            .args(["--", "no-such-program"])
            .stdin(Stdio::null())
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    for (options, words) in [
        (&["--group", "a/b"][..], "--group 'a/b'"),
        (
            &["--group", "g", "--floor", "1MiB"],
            "keeps to neither; of the presets these do: adaptive",
        ),
        (&["--floor", "1MiB"], "--group <NAME>"),
        (&["--ceiling", "much", "--group", "g"], "'much'"),
    ] {
        let (code, said) = run(&[&["--policy", "none"], options].concat());
        assert!(
            code == Some(125) && said.contains(words),
            "{code:?}: {said}"
        );
    }
    let above = ["--group", "g", "--floor", "2MiB", "--ceiling", "1MiB"];
    let (code, said) = run(&above);
    assert!(
        code == Some(125) && said.contains("less than --floor 2.0 MiB"),
        "{code:?}: {said}"
    );
    let (code, _) = run(&["--policy", "none", "--group", "g"]);
    assert_eq!(code, Some(127));
}
