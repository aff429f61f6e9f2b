// SPDX-License-Identifier: MIT OR Apache-2.0
//! Real programs and hostile ones end as they do alone.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;

use crate::behind;
use crate::machine::bin;
use crate::machine::guest_with;

/// Runs every real program plain on this machine, once for all tests; gives the script and where the inputs
/// and results are.
fn real_programs() -> (PathBuf, PathBuf) {
    static PREPARED: Mutex<bool> = Mutex::new(false);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real_programs/run.sh");
    let inputs = Path::new(env!("CARGO_TARGET_TMPDIR")).join("real-programs");
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*prepared {
        std::fs::create_dir_all(&inputs).expect("a directory for the inputs");
        let status = Command::new(&script).arg("prepare").arg(&inputs).status();
        assert!(status.is_ok_and(|status| status.success()), "not prepared");
        *prepared = true;
    }
    (script, inputs)
}

/// Servers, run-time systems and tools of all kinds, each run both ways.
const OTHERS: [&str; 7] = [
    "jvm",
    "go",
    "node",
    "postgresql",
    "memcached",
    "memtester",
    "gdb",
];

/// What `real_programs/run.sh` says of each program in the guest.
fn same_as_plain(options: &[&str], mode: &str, programs: &[&str]) -> String {
    let (script, inputs) = real_programs();
    let (script, inputs) = (script.display(), inputs.display());
    let bin = bin();
    let run = format!(
        "{script} {mode} {inputs} {} {}",
        bin.display(),
        programs.join(" ")
    );
    let out = guest_with(options, &run).good();
    println!("{out}");
    for program in programs {
        assert!(out.contains(&format!("same {program} ")), "{out}");
    }
    out
}

/// How many pages of a program were promoted, by its last line.
fn promoted(out: &str, program: &str) -> u64 {
    let line = out.rsplit(&format!("same {program} ")).next();
    behind(line.unwrap_or_default(), "promoted")
}

#[test]
#[ignore = "boots the emulated machine"]
fn real_programs_compute_the_same() {
    let out = same_as_plain(&[], "default", &OTHERS);
    // memtester locks its memory, which is left alone.
    for program in OTHERS.into_iter().filter(|name| *name != "memtester") {
        assert!(promoted(&out, program) > 0, "{program}: {out}");
    }
    assert!(behind(&out, "all") > 2_000, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn real_programs_compute_the_same_with_the_agent() {
    let programs = [&["python3", "gcc", "sort", "redis"], &OTHERS[..]].concat();
    let out = same_as_plain(&["--delays", "off"], "nomad", &programs);
    // Hint faults find few of the server's own pages in so short a time, and its user has no agent.
    let few = ["memtester", "postgresql"];
    for program in programs.into_iter().filter(|name| !few.contains(name)) {
        assert!(promoted(&out, program) > 0, "{program}: {out}");
    }
    assert!(behind(&out, "all") > 2_000, "{out}");
    assert!(behind(&out, "transactions") > 0, "no transactions: {out}");
}

/// What is hostile to a library in its process is managed by default as if nobody were there.
#[test]
#[ignore = "boots the emulated machine"]
fn hostile_programs_end_as_plain() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hazards");
    let run = format!("JOBS=3 LIMIT=180 {} terrace run --", script.display());
    let out = guest_with(&[], &run).good();
    println!("{out}");
    assert!(out.contains("\n0 failed"), "{out}");
    // They start on the slow node; all or most of the pages of some were promoted while they ran.
    let placed = out.split("[pages: ").skip(1);
    let fast = placed.filter_map(|after| after.split(' ').next()?.parse::<u64>().ok());
    assert!(fast.sum::<u64>() > 1_000, "{out}");
}

/// Likewise with the agent in them, that moves their pages and keeps shadows.
#[test]
#[ignore = "boots the emulated machine"]
fn hostile_programs_end_as_plain_with_the_agent() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/hazards");
    let nomad = "terrace run --policy nomad --";
    let run = format!("JOBS=3 LIMIT=180 {} {nomad}", script.display());
    let out = guest_with(&["--delays", "off"], &run).good();
    println!("{out}");
    assert!(out.contains("\n0 failed"), "{out}");
    let shadowed = out.split(" elsewhere, ").skip(1);
    let shadowed = shadowed.filter_map(|after| after.split(' ').next()?.parse::<u64>().ok());
    assert!(shadowed.sum::<u64>() > 100, "hardly a shadow: {out}");
}
