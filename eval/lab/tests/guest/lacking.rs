// SPDX-License-Identifier: MIT OR Apache-2.0
//! Crashes and missing permissions: the program goes on, and the user is told.

use std::process::Command;

use crate::END;
use crate::READY;
use crate::SMALL;
use crate::behind;
use crate::machine::guest;
use crate::machine::guest_with;
use crate::machine::slowed;
use crate::number;
use crate::until_more;

#[test]
#[ignore = "boots the emulated machine"]
fn a_killed_supervisor_leaves_the_program_alone_and_the_doctor_restores() {
    let out = guest(&format!(
        "echo 1 > /proc/sys/kernel/numa_balancing
         terrace run --policy nomad --mover move-pages -- {SMALL} > /tmp/out & sup=$!
         {READY}
         sleep 2; kill -KILL $(pgrep -x terrace)
         wait $sup
         echo \"balancing $(cat /proc/sys/kernel/numa_balancing)\"
         terrace doctor | grep '^changed'
         terrace doctor --restore
         echo \"balancing $(cat /proc/sys/kernel/numa_balancing)\"
         {END}; while pgrep -x terrace-bench > /dev/null; do sleep 0.2; done
         cat /tmp/out | tail -1"
    ))
    .good();
    assert!(
        out.contains("changed  kernel settings left by a supervisor that crashed"),
        "{out}"
    );
    assert!(out.trim_end().contains("balancing 1"), "{out}");
    assert!(
        out.contains("\"wrong\":[]"),
        "the program did not finish well: {out}"
    );
}

#[test]
#[ignore = "boots the emulated machine"]
fn without_userfaultfd_pages_go_by_move_pages_and_the_user_is_told() {
    // The device does not come back.
    let script = format!(
        "rm -f /dev/userfaultfd; echo 0 > /proc/sys/vm/unprivileged_userfaultfd
         terrace run --policy nomad --stats=/tmp/s -- setpriv --bounding-set -sys_ptrace --inh-caps -sys_ptrace \
           --reuid 65534 --clear-groups {SMALL} > /tmp/out & sup=$!
         {READY}; {}; {END}; wait $sup || exit 1
         cat /tmp/s",
        until_more("$sup", "ordinary_moves", 500)
    );
    let out = guest_with(&["--delays", "off"], &script).good();
    assert!(
        out.contains("no transactions, move_pages instead: Operation not permitted"),
        "{out}"
    );
    assert!(number(&out, "ordinary_moves") > 500, "{out}");
}

#[test]
#[ignore = "boots the emulated machine"]
fn without_permission_the_program_runs_and_the_user_is_told() {
    let out = guest(
        "chmod 1777 /tmp; setpriv --reuid 65534 --regid 65534 --clear-groups \
           terrace run --stats -- sh -c 'echo ran; exit 3'; echo code $?",
    );
    assert!(out.out.contains("ran\ncode 3"), "{} {}", out.out, out.err);
    assert!(
        out.err
            .contains("no accessed bits, nothing will be promoted"),
        "{}",
        out.err
    );
}

/// Who asks the kernel for memory of that node and no other has it kill a program, the largest.
#[test]
#[ignore = "boots the emulated machine"]
fn nobody_is_killed_for_what_a_full_fast_node_does_not_have() {
    let script = format!(
        r#"terrace-bench gups threads=1 --fast-free 110M --place fast --seconds 5m > /tmp/out & bench=$!
         until grep -qs ready /tmp/out; do sleep 0.1; kill -0 $bench || exit 9; done
         echo 3 > /proc/sys/vm/drop_caches
         min=/proc/sys/vm/min_free_kbytes; was=$(cat $min); echo $((was * 6)) > $min
         TERRACE_LOG=info terrace attach --policy adaptive $bench > /tmp/log 2>&1 & sup=$!
         locked() {{ sed -n 's/^VmLck:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$sup/status; }}
         until [ 0$(locked) -ge 1024 ]; do sleep 0.2; kill -0 $sup || exit 8; done
         cat /tmp/log
         echo $was > $min
         until [ 0$(locked) -ge 2048 ]; do sleep 0.2; kill -0 $sup || exit 7; done
         {END}; wait $bench || exit 1
         wait $sup || exit 2
         tail -1 /tmp/out"#
    );
    let out = guest_with(&["--delays", "off"], &script).good();
    assert!(
        out.contains("Reads of node 0 are not timed: Cannot allocate memory"),
        "{out}"
    );
    assert!(out.contains("\"wrong\":[]"), "{out}");
}

/// Where somebody has said which memory a program is to have, it is not ours to say another.
#[test]
#[ignore = "boots the emulated machine"]
fn memory_that_is_bound_to_a_node_stays_there() {
    let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/bound");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-o", program, "bound.c"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest"))
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    let script = format!(
        "terrace run --stats=/tmp/s -- {program} 1 > /tmp/out & sup=$!
         {READY}; {}; pkill -TERM -x bound; wait $sup || exit 1
         terrace run -- {program} 1 range > /tmp/out & sup=$!
         {READY}; {}; pkill -TERM -x bound; wait $sup || exit 2
         cat /tmp/s /tmp/out",
        until_more("$sup", "left_alone", 4),
        until_more("$sup", "promoted_pages", 4_000),
    );
    let out = slowed(&script).good();
    assert_eq!(number(&out, "promoted_pages"), 0, "{out}");
    assert!(behind(&out, "others") > 4_000, "{out}");
    assert_eq!(behind(&out, "bound"), 0, "{out}");
}
