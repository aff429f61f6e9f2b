// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lab itself, end to end: each test boots the emulated machine (some five seconds). They
//! need QEMU and the guest's kernel (`terrace-lab kernel fetch`) and are ignored unless asked for:
//! `cargo test -p terrace-lab --test boot -- --ignored --test-threads 1`.
//! They assert on counts and ratios inside one run, never on a time.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;

use terrace_lab::series::Series;

fn machine(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../machines")
        .join(name)
}

fn lab(options: &[&str], command: &[&str]) -> Output {
    let mut lab = Command::new(env!("CARGO_BIN_EXE_terrace-lab"));
    lab.arg("run")
        .arg("--machine")
        .arg(machine("cxl-2tier.toml"))
        .args(options);
    lab.arg("--")
        .args(command)
        .output()
        .expect("the program was built for this test")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "boots the emulated machine"]
fn output_and_exit_code_come_back_exactly() {
    // All byte values, more than any buffer on the way.
    let script = r#"i=0; while [ $i -lt 5000 ]; do printf '\000\001\n\r\177\377%s' $i; i=$((i+1)); done;
        echo to-stderr >&2; exit 7"#;
    let here = Command::new("sh").args(["-c", script]).output().unwrap();
    let there = lab(&["--delays", "off"], &["sh", "-c", script]);
    assert_eq!(there.status.code(), Some(7));
    assert_eq!(text(&there.stderr), "to-stderr\n");
    assert!(
        here.stdout == there.stdout,
        "{} bytes, {} here",
        there.stdout.len(),
        here.stdout.len()
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn the_command_runs_where_and_as_the_caller_is() {
    let out = lab(
        &["--delays", "off"],
        &["sh", "-c", "pwd; id -u; echo $CARGO_MANIFEST_DIR"],
    );
    let here = std::env::current_dir().unwrap();
    let expected = format!("{}\n0\n{}\n", here.display(), env!("CARGO_MANIFEST_DIR"));
    assert_eq!(
        (text(&out.stdout), out.status.code()),
        (expected, Some(0)),
        "{}",
        text(&out.stderr)
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn what_the_guest_writes_stays_there_unless_shared() {
    let dir = tempfile::tempdir().unwrap();
    let (shared, other) = (dir.path().join("shared"), dir.path().join("other"));
    std::fs::create_dir(&shared).unwrap();
    std::fs::create_dir(&other).unwrap();
    let script = format!(
        "echo yes > {0}/f && echo no > {1}/f && cat {1}/f",
        shared.display(),
        other.display()
    );
    let share = shared.to_str().unwrap();
    let out = lab(
        &["--delays", "off", "--share", share],
        &["sh", "-c", &script],
    );
    assert_eq!(text(&out.stdout), "no\n", "{}", text(&out.stderr));
    assert_eq!(std::fs::read_to_string(shared.join("f")).unwrap(), "yes\n");
    assert!(!other.join("f").exists());
}

#[test]
#[ignore = "boots the emulated machine"]
fn two_tiers_and_what_terrace_needs() {
    let script = "cat /sys/devices/virtual/memory_tiering/memory_tier*/nodelist;
        cat /sys/devices/system/node/has_cpu;
        for f in /dev/userfaultfd /sys/kernel/btf/vmlinux /sys/fs/cgroup/cgroup.controllers \
            /sys/kernel/debug/sched/numa_balancing /sys/kernel/tracing/events; do
            [ -e $f ] || echo missing $f; done;";
    let out = lab(&["--delays", "off"], &["bash", "-c", script]);
    let said = text(&out.stdout);
    let mut tiers: Vec<&str> = said.lines().take(2).collect();
    tiers.sort_unstable();
    assert_eq!(tiers, ["0", "1"], "{said}");
    assert_eq!(
        said.lines().nth(2),
        Some("0"),
        "only node 0 has processors: {said}"
    );
    assert!(!said.contains("missing"), "{said}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn programs_that_fail_are_told_apart() {
    let out = lab(&["--delays", "off"], &["no-such-program"]);
    assert_eq!(out.status.code(), Some(127));
    assert!(
        text(&out.stderr).contains("Cannot run no-such-program"),
        "{}",
        text(&out.stderr)
    );
    let out = lab(&["--delays", "off"], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(out.status.code(), Some(137));
    let out = lab(&["--timeout", "9s"], &["sleep", "1000"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("did not finish within 9s"),
        "{}",
        text(&out.stderr)
    );
    let out = lab(&[], &["sh", "-c", "echo c > /proc/sysrq-trigger"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        text(&out.stderr).contains("sysrq_handle_crash"),
        "{}",
        text(&out.stderr)
    );
}

/// A program that reads 64 MB on the slow node over and over, and marks when it begins and ends.
#[test]
#[ignore = "boots the emulated machine"]
fn a_guest_that_does_not_come_up_is_booted_again_and_given_up_in_the_end() {
    let out = lab(&["--boot-timeout", "200ms"], &["true"]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("The guest was not up within 200ms").count(), 3);
    assert_eq!(said.matches("Booting it again").count(), 2, "{said}");
}

/// 64 MiB of pages, read at random between the marks `begin` and `end`, then migrated to node 0.
const READS: &str = "import mmap,random
m=mmap.mmap(-1,64<<20)
for i in range(0,64<<20,4096): m[i]=1
import subprocess
lab='LAB'
def mark(s): subprocess.run([lab,'mark',s],check=True)
mark('start'); mark('begin')
x=1
for i in range(60000):
    x=(x*1103515245+12345)&0x3ffffff
    m[x]
mark('end')
import os
subprocess.run(['migratepages',str(os.getpid()),'1','0'],check=True)
mark('moved'); mark('stop')
";

/// Tells the memory model that the interpreter's code is a tiering system's (`terrace_sys::lab_marker`).
const IS_TIERING: &str = "import ctypes,mmap
code=mmap.mmap(-1,4096,prot=7)
code.write(bytes.fromhex('4889f8'+'4889f2'+'0f1f8400e5ac557e'+'c3'))
call=ctypes.CFUNCTYPE(None,ctypes.c_uint64,ctypes.c_uint64)(
    ctypes.addressof(ctypes.c_char.from_buffer(code)))
for line in open('/proc/self/maps'):
    part=line.split()
    if 'x' in part[1] and part[-1].startswith('/'):
        start,end=(int(a,16) for a in part[0].split('-'))
        call(start,end-start)
";

/// The series of a python program whose memory is on that node.
fn series_of(node: &str, program: &str) -> Series {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let series = dir.path().join("series.jsonl");
    let path = series.to_str().expect("a path in UTF-8");
    let program = program.replace("LAB", env!("CARGO_BIN_EXE_terrace-lab"));
    let out = lab(
        &["--delays", "mark", "--series", path],
        &["numactl", "--membind", node, "python3", "-c", &program],
    );
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let written = std::fs::read_to_string(&series).expect("the model writes its series");
    Series::parse(&written).expect("each line is one of a series")
}

#[test]
#[ignore = "boots the emulated machine"]
fn misses_are_counted_by_node_and_only_while_asked() {
    let mut shares = Vec::new();
    for node in ["0", "1"] {
        let series = series_of(node, READS);
        let begin = series.mark("begin").unwrap();
        let between = series.mark("end").unwrap().since(begin);
        assert!(
            between.nodes.iter().map(|n| n.loads).sum::<u64>() > 50_000,
            "{between:?}"
        );
        assert!(
            between.nodes.iter().all(|n| n.tiering_loads == 0),
            "{between:?}"
        );
        let moved = series.mark("moved").unwrap();
        let copied = moved.since(series.mark("end").unwrap()).nodes[0].kernel_write_bytes;
        if node == "1" {
            // What the kernel migrates is seen: 64 MiB and the interpreter.
            assert!(copied > 60 << 20, "{copied} bytes copied to node 0");
            assert!(moved.nodes[0].writebacks_copy > 0, "{moved:?}");
        }
        let stopped = series.mark("watch:off").unwrap();
        assert_eq!(series.totals().unwrap().since(stopped).accesses, 0);
        shares.push(between.share(0).unwrap());
    }
    assert!(
        shares[0] > 0.9 && shares[1] < 0.3,
        "share of the fast node: {shares:?}"
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn a_tiering_system_s_own_misses_are_counted_apart() {
    let series = series_of("1", &format!("{IS_TIERING}{READS}"));
    let begin = series.mark("begin").unwrap();
    let slow = series.mark("end").unwrap().since(begin).nodes[1];
    assert!(slow.tiering_loads > 50_000, "{slow:?}");
    // Programs are the command that writes the marks.
    assert!(slow.loads < slow.tiering_loads / 4, "{slow:?}");
}
