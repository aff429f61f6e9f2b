// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile programs (`hazards/`) with the agent in them, under a storm of orders on this machine: they
//! end as they do alone, and pages did move.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use serde_json::Value;

/// Compiles a program of `hazards/`; a script is what it is.
fn built(name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("hazards")
        .join(name);
    if source.is_file() {
        return source;
    }
    let source = source.with_extension("c");
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

/// Runs one under the storm and requires that it ends well, as it does alone, with an agent in it.
fn ends_well(name: &str, options: &[&str]) -> Value {
    let (output, counts) = storm(name, options);
    let said = String::from_utf8_lossy(&output.stdout);
    let skips = output.status.code() == Some(77);
    assert!(
        output.status.success() || skips,
        "{options:?}: {said} {counts}"
    );
    let agents = counts["agents"].as_u64().zip(counts["refused"].as_u64());
    assert!(agents.is_some_and(|(yes, no)| yes + no > 0), "{counts}");
    println!("{said} {counts}");
    counts
}

/// The same, and its pages were moved, or had shadows, all the while.
fn ends_well_while_pages_move(name: &str, options: &[&str]) {
    let counts = ends_well(name, options);
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let moved = count("moved") + count("onto_shadow");
    assert!(moved > 300 || count("agents") == 0, "{name}: {counts}");
}

/// What the kernel writes where it cannot wait: exit words and robust mutexes, futexes, a debugger's pokes.
#[test]
fn writes_of_the_kernel_that_cannot_wait_succeed() {
    for program in ["ctid_exit", "pi_futex", "proc_mem"] {
        ends_well_while_pages_move(program, &["--commit", "copy"]);
    }
}

/// Pages that the program has lent to the kernel are never used for anything else.
#[test]
fn lent_pages_keep_their_bytes() {
    for commit in ["copy", "transaction"] {
        let options = ["--commit", commit, "--page-size", "2m"];
        ends_well_while_pages_move("vmsplice_hold", &options);
    }
}

/// Shadows go, and nobody is killed; what was moved in from a shadow stays.
#[test]
fn a_cgroup_s_limit_is_the_program_s() {
    for commit in ["copy", "transaction"] {
        let options = ["--commit", commit, "--demote", "0.4"];
        ends_well("cgroup_limit", &options);
    }
}

/// Main ends by `pthread_exit`: exit handlers run and files are flushed on the program's own last thread.
#[test]
fn a_program_ends_on_its_own_last_thread() {
    ends_well("main_exit", &["--commit", "transaction"]);
}

/// A filter for all threads, dropped capabilities, no descriptor left for a fork.
#[test]
fn sandboxes_hold_for_all_threads() {
    ends_well("sandbox", &[]);
}

/// Address space and data are the program's to limit.
#[test]
fn limits_are_the_programs() {
    ends_well("limits.py", &[]);
}

/// A user's mlockall works, and root's locks what the program has.
#[test]
fn locked_memory_is_the_programs() {
    ends_well("mlockall", &[]);
}

/// A program's own userfaultfd sees the faults in memory that was moved before.
#[test]
fn a_userfaultfd_of_the_programs_own_comes_first() {
    for commit in ["copy", "transaction"] {
        ends_well_while_pages_move("own_uffd", &["--commit", commit]);
    }
}

/// Pages that neither a child nor its parent writes are theirs in common.
#[test]
fn what_a_child_shares_stays_shared() {
    for commit in ["copy", "transaction"] {
        ends_well_while_pages_move("shared_child", &["--commit", commit]);
    }
    ends_well(
        "shared_child",
        &["--commit", "transaction", "--page-size", "2m"],
    );
}

/// Pages that a child must find empty, while they are out of place in the parent.
#[test]
fn wiped_pages_stay_wiped_in_children() {
    for size in ["4k", "2m"] {
        let options = ["--commit", "wait", "--page-size", size];
        ends_well("wipeonfork", &options);
    }
}
