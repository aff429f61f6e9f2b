// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with the agent in them go on as without it: they fork, change users, replace malloc.
//! Runs on one node by a split in name, so that the agent is loaded and connected, which each test
//! asserts; with pages on the move the same is shown by `eval/stress/tests/programs.rs`, on several
//! nodes by `eval/lab/tests/guest`.

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use serde_json::Value;

/// What the program did, and the supervisor's last figures.
fn under_terrace(program: &[&str]) -> (Output, Value) {
    under_terrace_with(&["--mover", "agent"], program)
}

fn under_terrace_with(options: &[&str], program: &[&str]) -> (Output, Value) {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    let agent = assert_cmd::cargo::cargo_bin("terrace").with_file_name("libterrace.so");
    assert!(agent.is_file(), "{} is not built", agent.display());
    let stats = dir.path().join("stats");
    command
        .env("TERRACE_RUN_DIR", dir.path())
        .arg("run")
        .args(options)
        .arg(format!("--stats={}", stats.display()));
    if Path::new("/sys/devices/system/node/node1").exists() {
        command.args(["--", program[0]]);
    } else {
        command.args(["--fast", "64M", "--", program[0]]);
    }
    let output = command.args(&program[1..]).output().expect("runs");
    let text = std::fs::read_to_string(stats).expect("statistics");
    (output, serde_json::from_str(&text).expect("JSON"))
}

/// The program says what is expected with an agent in it that could move its pages.
fn says(program: &[&str], expected: &str) {
    let status = says_at_least(program, expected);
    if is_skipped(&status) {
        return;
    }
    let agents = status["stats"]["agents"].as_u64().expect("a number");
    assert!(agents > 0, "{program:?}: no agent connected: {status}");
}

/// That no agent can move pages here; told.
fn is_skipped(status: &Value) -> bool {
    let limits = status["limits"].to_string();
    let skipped = status["stats"]["agents"] == 0 && limits.contains("no transactions");
    if skipped {
        eprintln!("SKIPPED: {limits}");
    }
    skipped
}

/// The program says what is expected, whether it has an agent or not.
fn says_at_least(program: &[&str], expected: &str) -> Value {
    let (output, status) = under_terrace(program);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{program:?}: {:?} {error}",
        output.status
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
    status
}

#[test]
fn forked_children_live() {
    let script = "
import os
for n in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=' ')
";
    says(&["python3", "-c", script], &"7 ".repeat(20));
}

#[test]
fn threads_and_children_of_threads_live() {
    let script = "
import subprocess, threading
done = []
def work(n):
    done.append(subprocess.run(['sh', '-c', f'exit {n}']).returncode)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(done))
";
    says(&["python3", "-c", script], "[0, 1, 2, 3, 4, 5, 6, 7]\n");
}

#[test]
fn programs_that_change_user_in_one_thread_still_can() {
    // As root only: others may not change user at all.
    let id = std::process::Command::new("id")
        .arg("-u")
        .output()
        .expect("id is there");
    if id.stdout != b"0\n" {
        eprintln!("SKIPPED: needs root");
        return;
    }
    // These change users without an agent in them, and what they execute may have none then.
    let nobody = ["setpriv", "--reuid", "65534", "--clear-groups", "id", "-u"];
    says_at_least(&nobody, "65534\n");
    says_at_least(&["unshare", "--user", "--map-root-user", "id", "-u"], "0\n");
}

#[test]
fn the_agent_prints_nothing_and_leaves_no_descriptor() {
    let plain = std::process::Command::new("sh")
        .args(["-c", "ls /proc/self/fd; sleep 0.3"])
        .output()
        .expect("sh is there");
    says(
        &["sh", "-c", "ls /proc/self/fd; sleep 0.3"],
        &String::from_utf8_lossy(&plain.stdout),
    );
}

/// Beside the worker that takes part itself.
#[test]
fn as_many_threads_help_to_copy_as_the_policy_or_the_user_says() {
    // Once there are so many, there are no more a while later.
    let counts = |helpers: &str| {
        format!(
            "count() {{ cat /proc/$$/task/*/comm | grep -c terrace-help; }}; \
             for n in $(seq 100); do [ $(count) = {helpers} ] && break; sleep 0.05; done; sleep 0.3; count"
        )
    };
    for (options, helpers) in [
        (&["--param", "copy_threads=6"][..], "5"),
        (&["--param", "copy_threads=6", "--copy-threads", "3"], "2"),
        (&[], "3"),
    ] {
        let options = [&["--policy", "mtm"], options].concat();
        let (output, status) = under_terrace_with(&options, &["sh", "-c", &counts(helpers)]);
        if is_skipped(&status) {
            return;
        }
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said.trim(), helpers, "{options:?}: {output:?}");
    }
}

#[test]
fn by_default_nothing_is_put_into_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    command.env("TERRACE_RUN_DIR", dir.path()).arg("run");
    if !Path::new("/sys/devices/system/node/node1").exists() {
        command.args(["--fast", "64M"]);
    }
    let look = "env | grep -c -i -E 'terrace_agent|ld_preload'; grep -c libterrace /proc/self/maps; \
                ls /proc/self/task | wc -l";
    let output = command
        .env_remove("LD_PRELOAD")
        .args(["--", "sh", "-c", look])
        .output()
        .expect("runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n0\n1\n");
}

/// It opens connections that say nothing, makes shared descriptors wait, floods the ring of reports; between, it
/// asks the supervisor how it is, and weighs it.
#[test]
fn a_hostile_program_neither_holds_up_nor_fattens_the_supervisor() {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../eval/stress/hazards/evil_program.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("evil_program");
    let compiled = std::process::Command::new("cc")
        .args(["-O1", "-w", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    assert!(compiled.expect("a C compiler").success());
    let (output, _) = under_terrace(&[program.to_str().expect("plain")]);
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said} {output:?}");
    assert!(said.contains("OK evil_program: it answered"), "{said}");
}
