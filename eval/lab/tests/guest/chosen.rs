// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are armed one by one, on a kernel that has read-write protection by userfaultfd (Linux 7.3).

use std::process::Command;

use crate::CHAOS;
use crate::END;
use crate::machine::guest_with;
use crate::number;
use crate::until_more;

/// Its release, which is fetched where it is not there yet.
const KERNEL: &str = "7.3";

/// What the script says on that kernel; nothing, with a line that says so, where it cannot be had.
fn newer(options: &[&str], script: &str) -> Option<String> {
    let fetched = Command::new(env!("CARGO_BIN_EXE_terrace-lab"))
        .args(["kernel", "fetch", KERNEL])
        .output()
        .expect("terrace-lab was built for this test");
    if !fetched.status.success() {
        println!(
            "SKIPPED: no kernel {KERNEL} here: {}",
            String::from_utf8_lossy(&fetched.stderr)
        );
        return None;
    }
    let options = [&["--kernel", KERNEL], options].concat();
    Some(guest_with(&options, script).good())
}

/// Pages that are used once a period, evenly, have half of it in the median: to a fifth, and what arming some pages takes there.
/// Those that have moved meanwhile are told of where they are.
///
/// On a host that has no time for the machine the program itself is late, which it tells; then again. That the tracker has what the program
/// has holds each time.
#[test]
#[ignore = "boots the emulated machine"]
fn idle_times_of_chosen_pages_are_those_of_their_use() {
    let script = "\"$(dirname $(command -v terrace))/examples/idle_times\" chosen || exit 1";
    for _ in 0..4 {
        let Some(out) = newer(&["--delays", "off"], script) else {
            return;
        };
        println!("{out}");
        if are_as_the_program_has_them(&out) {
            return;
        }
    }
    println!("SKIPPED: the host had no time for the machine");
}

/// What arming some pages takes there.
const ARMED_US: u64 = 200;

/// Whether the program was in time, too.
fn are_as_the_program_has_them(out: &str) -> bool {
    let groups: Vec<&str> = out.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(groups.len(), 7, "{out}");
    let near = |one: u64, to: u64| one.abs_diff(to) <= to / 5 + ARMED_US;
    let (mut idle, mut in_time) = (0, true);
    for group in groups {
        let of = |name| number(group, name);
        let (half, before) = (of("period_us") / 2, idle);
        idle = of("idle_us");
        assert!(near(idle, of("true_us")), "{out}");
        assert!(idle > before, "{out}");
        assert!(of("faults") >= 48, "{out}");
        assert_eq!(of("misplaced"), 0, "{out}");
        in_time &= near(idle, half) && near(of("true_us"), half);
    }
    in_time
}

/// Chrono's statistics by the paper's own way, end to end.
#[test]
#[ignore = "boots the emulated machine"]
fn chrono_looks_at_heat_maps_of_victims_that_it_armed() {
    let looks = until_more("$sup", "heat_maps", 1);
    let Some(out) = newer(
        &[],
        &format!(
            "terrace doctor | grep 'hint faults of chosen pages'
             terrace run --policy chrono --mover agent --param probe=chosen-faults --param scan_period=3s \
               --stats=/tmp/s -- terrace-bench pmbench --fast-free 60M --seconds 5m > /tmp/out & sup=$!
             {looks}; sleep 5; {END}; wait $sup || exit 1
             tail -1 /tmp/out | grep -q '\"wrong\":\\[\\]' || exit 2
             cat /tmp/s"
        ),
    ) else {
        return;
    };
    println!("{out}");
    assert!(
        out.contains("ok       hint faults of chosen pages"),
        "{out}"
    );
    assert!(number(&out, "heat_maps") > 1, "{out}");
    let chosen = &out[out.find("\"chosen-faults\"").expect("its tracker")..];
    let of = |name| number(chosen, name);
    assert!(of("armed") > 1_000 && of("faults") > 1_000, "{chosen}");
    assert!(of("refused") * 20 < of("armed"), "{chosen}");
    assert_eq!(of("lost"), 0, "{chosen}");
}

/// Threads that check each word while their pages are armed at full rate and moved from outside, and the program forks, unmaps,
/// moves, drops and protects memory that is armed, and has the kernel read from it and write to it.
#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_in_pages_that_are_armed() {
    let Some(out) = newer(
        &["--delays", "off"],
        &format!(
            "for options in '--page-size 4k' '--page-size 4k {CHAOS}' '--page-size 2m --pages 12' \
               '--page-size 2m --pages 12 {CHAOS}' '--page-size 4k --everywhere'; do
               terrace-stress words --json --arm --seconds ${{TERRACE_STRESS_SECONDS:-15}} $options || exit 1
             done
             terrace-stress words --arm --seconds 6 --kill-supervisor || exit 2"
        ),
    ) else {
        return;
    };
    println!("{out}");
    let runs: Vec<&str> = out
        .lines()
        .filter(|line| line.contains("\"armed\""))
        .collect();
    assert_eq!(runs.len(), 5, "{out}");
    for run in runs {
        assert!(number(run, "armed") > 1_000, "{run}");
        assert!(number(run, "moved_beside") > 100, "{run}");
    }
}

/// A program that watches memory itself gets it although pages of it are armed, and none is from then on.
#[test]
#[ignore = "boots the emulated machine"]
fn a_userfaultfd_of_the_programs_own_comes_before_armed_pages() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/guest");
    let program = concat!(env!("CARGO_TARGET_TMPDIR"), "/own_userfaultfd");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-o", program, "own_userfaultfd.c"])
        .current_dir(directory)
        .status();
    assert!(compiled.expect("a C compiler").success());
    let Some(out) = newer(
        &["--delays", "off"],
        &format!(
            "terrace run --policy chrono --mover agent --param probe=chosen-faults --param scan_period=1s \
               --stats=/tmp/s -- {program} || exit 1
             cat /tmp/s"
        ),
    ) else {
        return;
    };
    println!("{out}");
    assert!(out.contains("OK own_userfaultfd"), "{out}");
    let chosen = &out[out.find("\"chosen-faults\"").expect("its tracker")..];
    assert!(number(chosen, "faults") > 0, "{chosen}");
}
