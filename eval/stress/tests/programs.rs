// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs with the agent in them, whose pages are moved at full rate on this machine: they say what they
//! say alone, and pages did move.

mod breakable;

use std::path::Path;
use std::process::Command;
use std::process::Output;

use serde_json::Value;

/// Runs it under the storm, for so long at most; what it printed, and the counts. `None` where this user
/// may have no transactions.
fn storm(program: &[&str]) -> Option<(Output, Value)> {
    storm_with(&["--commit", "copy"], &[], program)
}

fn storm_with(
    options: &[&str],
    environment: &[(&str, &str)],
    program: &[&str],
) -> Option<(Output, Value)> {
    let report = tempfile::NamedTempFile::new().expect("a file");
    let output = Command::new("timeout")
        .args(["-k", "5", "60", env!("CARGO_BIN_EXE_terrace-stress")])
        .args(["storm", "--report"])
        .arg(report.path())
        .args(options)
        .envs(environment.iter().copied())
        .arg("--")
        .args(program)
        .output()
        .expect("timeout starts");
    let text = std::fs::read_to_string(report.path()).expect("a report");
    let counts: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: '{text}' {output:?}"));
    assert!(counts["run"]["kernel"].is_string(), "{counts}");
    if counts["agents"] == 0 && counts["refused"] != 0 {
        eprintln!("SKIPPED: no transactions here: {counts}");
        return None;
    }
    Some((output, counts))
}

/// It says what is expected, and at least so many pages were moved meanwhile.
fn says(program: &[&str], expected: &str, moved: u64) {
    let Some((output, counts)) = storm(program) else {
        return;
    };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program:?}: {output:?} {counts}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{error}");
    let count = counts["moved"].as_u64().expect("a number");
    assert!(count >= moved, "{program:?}: too few moved: {counts}");
}

#[test]
fn forked_children_live() {
    let script = "
import os, time
data = [str(n) for n in range(50000)]
time.sleep(1)
for n in range(20):
    pid = os.fork()
    if pid == 0:
        os._exit(7 if data[n] == str(n) else 1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), end=' ')
    time.sleep(0.05)
";
    says(&["/usr/bin/python3", "-c", script], &"7 ".repeat(20), 500);
}

#[test]
fn threads_and_children_of_threads_live() {
    let script = "
import subprocess, threading, time
done = []
data = [str(n) for n in range(50000)]
def work(n):
    for turn in range(10):
        done.append(subprocess.run(['sh', '-c', f'exit {n}']).returncode)
        time.sleep(0.05)
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(done), data == [str(n) for n in range(50000)])
";
    says(&["/usr/bin/python3", "-c", script], "60 True\n", 500);
}

/// Runs programs of the lab's `real_programs` plain, then under the storm; with many of their pages moved, all
/// must print the same.
fn compute_the_same(name: &str, programs: &[&str]) {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/real_programs/run.sh");
    let inputs = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&inputs).expect("a directory for the inputs");
    let stress = Path::new(env!("CARGO_BIN_EXE_terrace-stress"));
    let script = |mode: &str, bin: Option<&Path>| {
        Command::new(&lab)
            .arg(mode)
            .arg(&inputs)
            .args(bin)
            .args(programs)
            .output()
            .expect("the script starts")
    };
    let prepared = script("prepare", None);
    assert!(prepared.status.success(), "{prepared:?}");
    let ran = script("storm", stress.parent());
    let out = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success(), "{out}{ran:?}");
    println!("{out}");
    for program in programs {
        let line = out.split(&format!("same {program} promoted ")).nth(1);
        let moved = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
        assert!(moved.is_some_and(|moved| moved > 300), "{program}: {out}");
    }
}

#[test]
fn real_programs_compute_the_same() {
    if storm(&["sleep", "0.5"]).is_none() {
        return;
    }
    let programs = ["jvm", "go", "node", "memcached", "redis", "python3"];
    compute_the_same("real-programs-storm", &programs);
}

#[test]
fn a_debugger_reads_and_writes() {
    compute_the_same("debugger", &["gdb"]);
}

/// Our threads must not keep a process alive whose own have all ended, nor take its last words.
#[test]
fn a_program_ends_with_its_last_thread() {
    let leave = [env!("CARGO_BIN_EXE_terrace-stress"), "leave"];
    says(&leave, "0 words wrong\n", 100);
}

/// An agent that has no memory left for its records goes, with all its threads; it takes nobody with it.
#[test]
fn an_agent_whose_heap_is_full_leaves_the_program_alone() {
    let script = "
import mmap, os, time
threads = lambda: len(os.listdir('/proc/self/task'))
size = 96 << 20
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_NOHUGEPAGE)
most = threads()
for page in range(size >> 12):
    memory[page << 12:(page << 12) + 8] = page.to_bytes(8, 'little')
    if page % 256 == 0: most = max(most, threads())
end = time.time() + 30
while time.time() < end and (most < 2 or threads() > 1):
    most = max(most, threads())
    time.sleep(0.1)
same = all(memory[page << 12:(page << 12) + 8] == page.to_bytes(8, 'little') for page in range(size >> 12))
print(same, most > 1, threads())
";
    let agent = breakable::agent();
    let options = ["--commit", "transaction", "--rate", "40000", "--agent"];
    let options = [&options[..], &[agent.to_str().expect("a plain path")]].concat();
    let small = [("TERRACE_TEST_SMALL_HEAP", "1")];
    let program = ["/usr/bin/python3", "-c", script];
    let Some((output, counts)) = storm_with(&options, &small, &program) else {
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?} {counts}");
    assert_eq!(said, "True True 1\n", "{counts}");
    assert!(counts["moved"].as_u64() > Some(1000), "{counts}");
}
