// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench` from outside: its lines, its hold, its exit codes.

use assert_cmd::Command;
use terrace_workload::report::Line;

fn bench() -> Command {
    Command::cargo_bin("terrace-bench").expect("built with the test")
}

fn lines(stdout: &[u8]) -> Vec<Line> {
    String::from_utf8_lossy(stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

#[test]
fn a_run_prints_its_lines_in_order() {
    let run = bench()
        .args([
            "nomad-small-write",
            "--fast-free",
            "2M",
            "--seconds",
            "1100ms",
        ])
        .assert()
        .success();
    let lines = lines(&run.get_output().stdout);
    let [
        Line::Ready(ready),
        Line::Second(second),
        Line::Total(total),
        Line::Check(check),
    ] = &lines[..]
    else {
        panic!("{lines:?}");
    };
    assert_eq!(ready.bytes, 1536 * 4096);
    assert!(second.ops > 0 && second.ops < total.ops);
    assert!(check.passed());
    assert_eq!(check.updates_made, 8 * total.ops);
}

#[test]
fn hold_waits_for_a_line() {
    let go = ["gups", "--fast-free", "2M", "--seconds", "10ms", "--hold"];
    bench().args(go).write_stdin("go\n").assert().success();
    let refused = bench().args(go).write_stdin("").assert().code(1);
    let stderr = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
    assert!(stderr.contains("word to go"), "{stderr}");
}

#[test]
fn mistakes_are_usage() {
    for wrong in [
        &["nomad-tiny-read"][..],
        &["gups", "--fast-free", "lots"],
        &["gups", "--step", "2"],
        &["gups", "--fast-free", "4096"],
    ] {
        bench().args(wrong).assert().code(2).stdout("");
    }
}
