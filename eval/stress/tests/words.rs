// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small and huge pages under writers for a while on this machine, the other scenarios for a moment;
//! `TERRACE_STRESS_SECONDS=60` makes all of them long. A minute is what `eval/lab/tests/guest/stress.rs` takes.
//!
//! They need userfaultfd for kernel faults: root, or access to /dev/userfaultfd. They count and do not measure, so
//! several run at a time.

mod breakable;

use std::process::Command;
use std::process::Output;

const MOMENT: u32 = 2;
const LONG: u32 = 20;

/// All that a program does to its mappings, but for what is for huge pages.
const CHAOS: &str = "fork,munmap,mremap,dontneed,mprotect,rw";

fn words(seconds: &str, arguments: &[&str]) -> Output {
    // A program that waits for ever is a failure; timeout(1) ends all that was started.
    Command::new("timeout")
        .args(["-k", "5", "180", env!("CARGO_BIN_EXE_terrace-stress")])
        .args(["words", "--seconds", seconds])
        .args(arguments)
        .output()
        .expect("terrace-stress starts")
}

fn passes(arguments: &[&str]) -> String {
    passes_for(MOMENT, arguments)
}

fn passes_for(seconds: u32, arguments: &[&str]) -> String {
    let asked = std::env::var("TERRACE_STRESS_SECONDS");
    let seconds = asked.unwrap_or_else(|_| seconds.to_string());
    let output = words(&seconds, arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{text}{errors}",
        output.status
    );
    text
}

/// Passes for so long, and has done each of these. Where the host has too little time for that, several times as long.
fn does(names: &[&str], seconds: u32, arguments: &[&str]) -> String {
    let mut missed = String::new();
    for times in [1, 4, 8] {
        let text = passes_for(seconds * times, arguments);
        match names.iter().find(|name| count(&text, name) == 0) {
            Some(name) => missed = format!("{name}: nothing was tested\n{text}"),
            None => return text,
        }
    }
    panic!("{arguments:?}: {missed}");
}

/// The counter behind a name in the printed counts.
fn count(text: &str, name: &str) -> u64 {
    let behind = text
        .split_once(&format!("{name} "))
        .expect("the count is printed")
        .1;
    let digits = behind.split_whitespace().next().expect("a number follows");
    digits.parse().expect("it is a number")
}

/// On a kernel that can; `eval/lab/tests/guest/chosen.rs` boots one. Any other says so.
#[test]
fn no_word_is_lost_in_pages_that_are_armed() {
    let output = words(&MOMENT.to_string(), &["--arm"]);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        assert!(count(&text, "armed") > 0, "{text}");
    } else {
        println!("SKIPPED: {errors}");
        assert!(
            errors.contains("The agent cannot arm pages"),
            "{text}{errors}"
        );
    }
}

#[test]
fn small_pages_under_writers() {
    let names = ["committed", "shadow hits", "exchanged", "shadows dropped"];
    let text = does(&names, LONG, &[]);
    assert_eq!(
        count(&text, "wp faults"),
        0,
        "a write waited for us\n{text}"
    );
}

#[test]
fn pages_moved_by_the_kernel_and_shadowed_afterwards() {
    let names = ["committed", "shadow hits", "stale caught"];
    let text = does(&names, MOMENT, &["--commit", "copy"]);
    assert_eq!(
        count(&text, "wp faults"),
        0,
        "a write waited for us\n{text}"
    );
    passes(&["--commit", "copy", "--page-size", "2m"]);
}

/// Nobody who writes aborts anything: a write to a huge page that the agent copies waits. Base pages, those that are
/// called by 2 MiB too, are the kernel's: the agent takes none of them out.
#[test]
fn writers_wait_for_the_commit() {
    let huge = ["--page-size", "2m", "--copy-threads", "4"];
    let ways: [(&[&str], &[&str]); 3] = [
        (&huge, &["taken out", "writes waited"]),
        (&[], &["committed"]),
        (&["--page-size", "2m", "--split"], &["committed"]),
    ];
    for (way, names) in ways {
        for stores in [&[][..], &["--streaming"]] {
            let all = [way, stores, &["--commit", "wait"]].concat();
            let text = does(names, MOMENT, &all);
            // Only lifted protection that outlived its cause can end a transaction here.
            let (aborted, committed) = (count(&text, "aborted"), count(&text, "committed"));
            assert!(aborted * 20 <= committed, "{way:?}: writes abort\n{text}");
            let taken_out = count(&text, "taken out");
            if way.contains(&"--copy-threads") {
                assert!(taken_out * 2 > committed, "most by the kernel\n{text}");
            } else {
                assert_eq!(taken_out, 0, "{way:?}: not by the kernel\n{text}");
            }
        }
    }
}

#[test]
fn writers_wait_whatever_happens() {
    let all = "fork,munmap,mremap,dontneed,mprotect,rw,collapse,parts";
    let huge = ["--page-size", "2m", "--workers", "2", "--copy-threads", "4"];
    let always = ["--chaos", all, "--commit", "wait"];
    passes(&[&always[..], &huge[..]].concat());
    passes(&[&always[..], &huge[..], &["--streaming"]].concat());
    passes(&["--kill-supervisor", "--commit", "wait", "--page-size", "2m"]);
}

#[test]
fn small_pages_with_two_workers() {
    passes(&["--workers", "2", "--threads", "4"]);
}

#[test]
fn huge_pages_under_writers() {
    does(&["committed", "exchanged"], LONG, &["--page-size", "2m"]);
}

#[test]
fn forks_see_every_page() {
    passes(&["--chaos", "fork"]);
    passes(&["--chaos", "fork,collapse", "--page-size", "2m"]);
}

#[test]
fn unmapped_and_mapped_anew() {
    does(&["unmapped"], MOMENT, &["--chaos", "munmap"]);
}

#[test]
fn moved_mappings_keep_their_bytes() {
    does(&["remapped"], MOMENT, &["--chaos", "mremap"]);
}

#[test]
fn dropped_pages_stay_zero() {
    passes(&["--chaos", "dontneed"]);
}

/// The program drops, unmaps, moves or protects a part of a huge page, some of the time while all of it is out of
/// place: the rest, 2 MiB less a few base pages, must be there afterwards.
#[test]
fn parts_of_huge_pages_change_while_they_move() {
    let parts = ["--chaos", "parts", "--page-size", "2m"];
    let ways: [&[&str]; 3] = [
        &[],
        &["--commit", "wait", "--copy-threads", "4"],
        &["--commit", "wait", "--streaming", "--workers", "2"],
    ];
    for way in ways {
        let one = ["--pages", "1", "--threads", "1"];
        does(&["taken out"], MOMENT, &[&parts[..], &one, way].concat());
        let exchanged = ["--exchanges", "--pages", "2", "--threads", "0"];
        does(
            &["exchanged"],
            MOMENT,
            &[&parts[..], &exchanged, way].concat(),
        );
    }
}

/// One thread unmaps a page, another maps its address anew before munmap(2) has returned to the first: what it puts there stays.
#[test]
fn what_is_mapped_anew_is_not_moved_out() {
    let reuse = [
        "--chaos",
        "reuse",
        "--page-size",
        "2m",
        "--pages",
        "1",
        "--threads",
        "1",
    ];
    let ways: [&[&str]; 3] = [
        &[],
        &["--commit", "wait"],
        &["--commit", "wait", "--streaming", "--workers", "2"],
    ];
    for way in ways {
        does(&["taken out"], LONG / 2, &[&reuse[..], way].concat());
    }
}

#[test]
fn read_only_meanwhile() {
    passes(&["--chaos", "mprotect"]);
}

#[test]
fn system_calls_into_pages_in_flight() {
    passes(&["--chaos", "rw"]);
}

#[test]
fn everything_at_once_everywhere() {
    let all = CHAOS;
    passes(&["--chaos", all, "--everywhere", "--workers", "2"]);
    passes(&[
        "--chaos",
        all,
        "--everywhere",
        "--workers",
        "2",
        "--commit",
        "copy",
    ]);
    let all = format!("{all},collapse,parts");
    passes(&["--chaos", &all, "--page-size", "2m"]);
}

#[test]
fn the_program_outlives_its_supervisor() {
    passes(&["--kill-supervisor"]);
    passes(&["--kill-supervisor", "--page-size", "2m"]);
    passes(&["--kill-supervisor", "--chaos", "fork,munmap,dontneed,rw"]);
}

#[test]
fn without_fork_events_forks_are_quiesced() {
    let agent = breakable::agent();
    let agent = agent.to_str().expect("a plain path");
    passes(&[
        "--chaos",
        "fork,munmap",
        "--no-fork-events",
        "--agent",
        agent,
    ]);
}

/// fork(2) writes to each of malloc's arenas after the agent's handlers have run.
#[test]
fn without_fork_events_forks_are_quiesced_while_arenas_move() {
    let agent = breakable::agent();
    let agent = agent.to_str().expect("a plain path");
    let forks = ["--chaos", "fork,munmap", "--no-fork-events"];
    for commit in [&[][..], &["--commit", "copy"]] {
        let arenas = ["--everywhere", "--threads", "4", "--agent", agent];
        let all = [&forks[..], &arenas, commit].concat();
        does(&["arenas moved"], MOMENT, &all);
    }
}

/// That a page is compared with its shadow is what keeps words, whoever moves pages.
#[test]
fn words_are_lost_without_verification() {
    words_are_lost(&[]);
    words_are_lost(&["--commit", "copy"]);
}

fn words_are_lost(commit: &[&str]) {
    let agent = breakable::agent();
    let agent = agent.to_str().expect("a plain path");
    for _ in 0..4 {
        let broken = ["--skip-verify", "--agent", agent];
        let output = words("10", &[commit, &broken].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1));
            assert!(errors.contains("LOST thread"), "{errors}");
            return;
        }
    }
    panic!("no word was lost although nothing was verified: the test proves nothing");
}

/// Two pages of few, asked to change places from both sides at once. Huge ones that are written to all the time fall apart
/// when they move; the program makes them anew.
#[test]
fn no_word_is_lost_while_pages_are_exchanged_from_both_sides() {
    let exchanged = |options: &[&str]| {
        does(
            &["exchanged"],
            MOMENT,
            &[&["--exchanges"], options].concat(),
        )
    };
    exchanged(&[]);
    exchanged(&["--chaos", CHAOS]);
    exchanged(&["--page-size", "2m", "--pages", "12", "--chaos", "collapse"]);
}

/// By every way pages of an idle program go where they were to go, but for some that the kernel has in its hands, and all times are told.
#[test]
fn how_long_a_page_takes_is_told_of_every_way() {
    let text = passes(&["--latency", "--pages", "64", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let latencies = found["latencies"].as_array().expect("a list");
    assert!(latencies.len() == 3 || latencies.len() == 5, "{text}");
    for latency in latencies {
        let time = |of: &str, name: &str| latency[of][name].as_u64();
        let [moved, pairs] = ["moved", "pairs"].map(|name| latency[name].as_u64());
        assert!(pairs == Some(32) && moved > Some(16), "{latency}");
        let times = ["p50", "p90", "p99", "max"].map(|name| time("took", name));
        assert!(times.is_sorted() && times[0] > Some(0), "{latency}");
        // Nobody says it of the kernel's moves; else it is a part of the whole.
        let away = time("inaccessible", "max");
        let told = away.is_some_and(|away| 0 < away && Some(away) <= times[3]);
        assert!(told || latency["inaccessible"].is_null(), "{latency}");
    }
    let way = |name: &str| latencies.iter().any(|one| one["way"] == name);
    assert!(
        way("exchange") && way("demote-and-promote") && way("promote-into-room"),
        "{text}"
    );
}
