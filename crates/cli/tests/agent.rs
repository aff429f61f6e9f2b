// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with the agent in them go on as without it: they fork, change users, replace malloc.
//! Runs on one node by a split in name, so that the agent is loaded and connected; the emulated
//! machine has the tests in which pages move (`eval/lab/tests/guest.rs`).

use std::path::Path;
use std::process::Output;

use assert_cmd::Command;

fn under_terrace(program: &[&str]) -> Output {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    let agent = assert_cmd::cargo::cargo_bin("terrace").with_file_name("libterrace.so");
    assert!(agent.is_file(), "{} is not built", agent.display());
    command
        .env("TERRACE_RUN_DIR", dir.path())
        .args(["run", "--mover", "agent"]);
    if Path::new("/sys/devices/system/node/node1").exists() {
        command.args(["--", program[0]]);
    } else {
        command.args(["--fast", "64M", "--", program[0]]);
    }
    command.args(&program[1..]).output().expect("runs")
}

fn says(program: &[&str], expected: &str) {
    let output = under_terrace(program);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{program:?}: {:?} {error}",
        output.status
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
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
    says(
        &["setpriv", "--reuid", "65534", "--clear-groups", "id", "-u"],
        "65534\n",
    );
    says(&["unshare", "--user", "--map-root-user", "id", "-u"], "0\n");
}

#[test]
fn the_agent_prints_nothing_and_leaves_no_descriptor() {
    let plain = std::process::Command::new("sh")
        .args(["-c", "ls /proc/self/fd"])
        .output()
        .expect("sh is there");
    says(
        &["sh", "-c", "ls /proc/self/fd"],
        &String::from_utf8_lossy(&plain.stdout),
    );
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
