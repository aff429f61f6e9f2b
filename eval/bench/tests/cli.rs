// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench` from outside: its lines, its hold, its exit codes, several processes.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Read;
use std::process::Stdio;

use assert_cmd::Command;
use rustix::process::Pid;
use rustix::process::Signal;
use rustix::process::kill_process;
use terrace_workload::NAMES;
use terrace_workload::report::Check;
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

/// Runs 1.1 s of it and gives bytes, seconds reported, operations and the check.
fn run(arguments: &[&str]) -> (u64, Vec<u64>, u64, Check) {
    let run = bench()
        .args(arguments)
        .args(["--fast-free", "2M", "--seconds", "1100ms"])
        .assert()
        .success();
    let lines = lines(&run.get_output().stdout);
    let [
        Line::Ready(ready),
        seconds @ ..,
        Line::Total(total),
        Line::Check(check),
    ] = &lines[..]
    else {
        panic!("{lines:?}");
    };
    let seconds = seconds.iter().map(|line| match line {
        Line::Second(second) => second.ops,
        other => panic!("{other:?}"),
    });
    let first = String::from_utf8_lossy(&run.get_output().stdout).into_owned();
    let first: serde_json::Value =
        serde_json::from_str(first.lines().next().expect("a line")).expect("JSON");
    let made_with = &first["ready"]["run"];
    assert_eq!(
        (&made_with["seed"], &made_with["seconds"]),
        (&1.into(), &1.1.into())
    );
    assert_eq!(made_with["options"][0], arguments[0]);
    let name = arguments[0];
    assert_eq!(ready.workload, name);
    assert!(
        (ready.share_by_node.iter().sum::<f64>() - 1.0).abs() < 1e-3,
        "{ready:?}"
    );
    (ready.bytes, seconds.collect(), total.ops, check.clone())
}

#[test]
fn a_run_prints_its_lines_in_order() {
    let (bytes, seconds, ops, check) = run(&["nomad-small-write"]);
    assert_eq!(bytes, 1536 * 4096);
    assert!(
        matches!(seconds[..], [second] if second > 0 && second < ops),
        "{seconds:?}"
    );
    assert!(check.passed());
    assert_eq!(check.updates_made, 8 * ops);
}

/// Whoever is told to end says what was reached and checks the memory, as a run that was shorter from the start.
#[test]
fn a_run_that_is_told_to_end_reports_and_checks() {
    for name in ["gups", "pmbench-groups"] {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("terrace-bench"))
            .args([name, "--fast-free", "2M", "--seconds", "10m"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("built with the test");
        let mut out = BufReader::new(child.stdout.take().expect("asked for"));
        let mut ready = String::new();
        out.read_line(&mut ready).expect("a line");
        let mut first = String::new();
        out.read_line(&mut first).expect("a second");
        kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
        let rest: Vec<u8> = out.bytes().collect::<Result<_, _>>().expect("its lines");
        assert!(child.wait().expect("a child").success());
        let lines = lines(&rest);
        let [.., Line::Total(total), Line::Check(check)] = &lines[..] else {
            panic!("{lines:?}");
        };
        assert!(total.t < 300.0 && total.ops > 0, "{total:?}");
        assert!(check.passed(), "{check:?}");
        let [Line::Ready(ready)] = &self::lines(ready.as_bytes())[..] else {
            panic!("{ready}");
        };
        assert_eq!(check.words, ready.bytes / 8, "{name}");
    }
}

#[test]
fn several_programs_report_as_one() {
    // Eight processes of 3.9 times 2 MiB together.
    let (bytes, seconds, ops, check) = run(&["pmbench-groups", "write_percent=100"]);
    let each = (2 << 20) * 39 / 10 / 4096 / 8;
    assert_eq!(bytes, 8 * each * 4096);
    assert_eq!(check.words, bytes / 8, "the memory of all is checked");
    assert!(check.passed());
    assert_eq!(check.updates_made, ops, "one word an operation");
    assert!(seconds.iter().all(|&second| second > 0 && second < ops));
}

#[test]
fn a_mix_is_placed_by_the_oracle_and_takes_parameters_of_its_parts() {
    let (bytes, _, _, check) = run(&[
        "mix",
        "of=gups+scan",
        "scan.working_set=1MiB",
        "--place",
        "oracle",
    ]);
    // Half of 2 MiB free: gups has 2.7 of it.
    assert_eq!(bytes, ((1 << 20) * 27 / 10 / 4096 + 256) * 4096);
    assert!(check.passed() && check.updates_made > 0);
}

#[test]
fn threads_and_think_time_are_parameters() {
    let (_, _, fast, _) = run(&["gups", "threads=2"]);
    let (_, _, slow, check) = run(&["gups", "think=1ms"]);
    assert!(check.passed());
    // Some 13,000 times fewer where the machine is quiet; how long 1.1 s last on a busy one is
    // nobody's promise.
    assert!(fast > 20 * slow, "{fast} {slow}");
}

#[test]
fn hold_waits_for_a_line() {
    for name in ["gups", "mix"] {
        let go = [name, "--fast-free", "2M", "--seconds", "10ms", "--hold"];
        bench().args(go).write_stdin("go\n").assert().success();
        let refused = bench().args(go).write_stdin("").assert().code(1);
        let stderr = String::from_utf8_lossy(&refused.get_output().stderr).into_owned();
        assert!(stderr.contains("word to go"), "{stderr}");
    }
}

#[test]
fn the_list_has_a_line_for_every_workload() {
    let list = bench().arg("--list").assert().success();
    let text = String::from_utf8_lossy(&list.get_output().stdout).into_owned();
    assert_eq!(text.lines().count(), NAMES.len());
    for (line, name) in text.lines().zip(NAMES) {
        assert_eq!(line.split_whitespace().next(), Some(name));
        assert!(line.ends_with(')') && line.len() > 40, "{line}");
    }
}

#[test]
fn mistakes_are_usage() {
    for (wrong, says) in [
        (&["nomad-tiny-read"][..], "No workload 'nomad-tiny-read'"),
        (&["gups", "--fast-free", "lots"], "lots"),
        (&["gups", "--step", "2"], "odd"),
        (&["gups", "--fast-free", "4096"], "too few pages"),
        (&["gups", "colour=red"], "no parameter 'colour'"),
        (&["gups", "fast"], "'fast' is not a setting"),
        (&["ycsb-a", "theta=hot"], "theta cannot be 'hot'"),
        (&[], "required"),
    ] {
        let mistake = bench().args(wrong).assert().code(2).stdout("");
        let stderr = String::from_utf8_lossy(&mistake.get_output().stderr).into_owned();
        assert!(stderr.contains(says), "{wrong:?}: {stderr}");
    }
}
