// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small and huge pages under writers for a minute on this machine, the other scenarios for a moment;
//! `TERRACE_STRESS_SECONDS=60` makes all of them long.
//!
//! They need userfaultfd for kernel faults: root, or access to /dev/userfaultfd. They run one at a
//! time, or they would only measure each other.

use std::io::BufRead;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use std::time::Instant;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const MOMENT: &str = "2";
const MINUTE: &str = "60";

fn words(seconds: &str, arguments: &[&str]) -> Output {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Command::new(env!("CARGO_BIN_EXE_terrace-stress"))
        .args(["words", "--seconds", seconds])
        .args(arguments)
        .output()
        .expect("terrace-stress starts")
}

fn passes(arguments: &[&str]) -> String {
    passes_for(MOMENT, arguments)
}

fn passes_for(seconds: &str, arguments: &[&str]) -> String {
    let asked = std::env::var("TERRACE_STRESS_SECONDS");
    let output = words(asked.as_deref().unwrap_or(seconds), arguments);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?}: {}\n{text}{errors}",
        output.status
    );
    text
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

#[test]
fn small_pages_under_writers() {
    let text = passes_for(MINUTE, &[]);
    for name in [
        "committed",
        "shadow hits",
        "exchanged",
        "wp faults",
        "shadows dropped",
    ] {
        assert!(count(&text, name) > 0, "{name}: nothing was tested\n{text}");
    }
}

#[test]
fn small_pages_copied_in_their_commit() {
    let text = passes(&["--copy-in-commit"]);
    for name in ["committed", "shadow hits", "wp faults"] {
        assert!(count(&text, name) > 0, "{name}: nothing was tested\n{text}");
    }
}

/// Nobody who writes aborts anything: the write waits.
#[test]
fn writers_wait_for_the_commit() {
    let ways: [&[&str]; 4] = [
        &[],
        &["--page-size", "2m", "--copy-threads", "4"],
        &["--page-size", "2m", "--copy-threads", "4", "--streaming"],
        &["--page-size", "2m", "--split"],
    ];
    for way in ways {
        let text = passes(&[way, &["--writers-wait"]].concat());
        assert!(count(&text, "committed") > 0, "{way:?}: nothing was tested");
        // Base pages are out for so short that few writes meet one.
        let long = way.contains(&"--copy-threads");
        assert!(
            !long || count(&text, "writes waited") > 0,
            "{way:?}: no write waited\n{text}"
        );
        // Only lifted protection that outlived its cause can end a transaction here.
        let (aborted, committed) = (count(&text, "aborted"), count(&text, "committed"));
        assert!(aborted * 20 <= committed, "{way:?}: writes abort\n{text}");
    }
}

#[test]
fn writers_wait_whatever_happens() {
    let all = "fork,munmap,mremap,dontneed,mprotect,rw,collapse";
    let huge = ["--page-size", "2m", "--workers", "2", "--copy-threads", "4"];
    let always = ["--chaos", all, "--writers-wait"];
    passes(&[&always[..], &huge[..]].concat());
    passes(&[&always[..], &huge[..], &["--streaming"]].concat());
    passes(&["--kill-supervisor", "--writers-wait", "--page-size", "2m"]);
}

#[test]
fn small_pages_with_two_workers() {
    passes(&["--workers", "2", "--threads", "4"]);
}

#[test]
fn huge_pages_under_writers() {
    let text = passes_for(MINUTE, &["--page-size", "2m"]);
    for name in ["committed", "exchanged"] {
        assert!(count(&text, name) > 0, "{name}: nothing was tested\n{text}");
    }
}

#[test]
fn forks_see_every_page() {
    passes(&["--chaos", "fork"]);
    passes(&["--chaos", "fork,collapse", "--page-size", "2m"]);
}

#[test]
fn unmapped_and_mapped_anew() {
    let text = passes(&["--chaos", "munmap"]);
    assert!(count(&text, "unmapped") > 0, "no event came\n{text}");
}

#[test]
fn moved_mappings_keep_their_bytes() {
    let text = passes(&["--chaos", "mremap"]);
    assert!(count(&text, "remapped") > 0, "no event came\n{text}");
}

#[test]
fn dropped_pages_stay_zero() {
    passes(&["--chaos", "dontneed"]);
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
    let all = "fork,munmap,mremap,dontneed,mprotect,rw";
    passes(&["--chaos", all, "--everywhere", "--workers", "2"]);
    passes(&[
        "--chaos",
        all,
        "--everywhere",
        "--workers",
        "2",
        "--copy-in-commit",
    ]);
    let all = format!("{all},collapse");
    passes(&["--chaos", &all, "--page-size", "2m"]);
}

#[test]
fn the_program_outlives_its_supervisor() {
    passes(&["--kill-supervisor"]);
    passes(&["--kill-supervisor", "--page-size", "2m"]);
    passes(&["--kill-supervisor", "--chaos", "fork,munmap,dontneed,rw"]);
}

/// The agent with the test switches, built beside the ordinary one.
fn breakable_agent() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_terrace-stress"));
    let target = program
        .parent()
        .and_then(std::path::Path::parent)
        .expect("target/PROFILE/terrace-stress")
        .join("test-switches");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "terrace-agent"])
        .args(["--features", "test-switches", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo starts");
    assert!(
        built.success(),
        "the agent with test switches does not build"
    );
    target.join("debug/libterrace.so")
}

#[test]
fn without_fork_events_forks_are_quiesced() {
    let agent = breakable_agent();
    let agent = agent.to_str().expect("a plain path");
    passes(&[
        "--chaos",
        "fork,munmap",
        "--no-fork-events",
        "--agent",
        agent,
    ]);
}

/// The step that protects a page again and compares it with its shadow is what keeps words.
#[test]
fn words_are_lost_without_verification() {
    let agent = breakable_agent();
    let agent = agent.to_str().expect("a plain path");
    for _ in 0..4 {
        let output = words("10", &["--skip-verify", "--agent", agent]);
        let errors = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            assert_eq!(output.status.code(), Some(1));
            assert!(errors.contains("LOST thread"), "{errors}");
            return;
        }
    }
    panic!("no word was lost although nothing was verified: the test proves nothing");
}

/// Our threads must not keep a process alive whose own have all ended.
#[test]
fn a_program_ends_with_its_last_thread() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_terrace-stress"));
    let dir = program.parent().expect("a directory");
    let agent = ["libterrace.so", "deps/libterrace.so"]
        .map(|name| dir.join(name))
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .expect("the agent was built")
        .1;
    let place = tempfile::tempdir().expect("a directory");
    let socket = place.path().join("socket");
    let mut driver = Command::new(&program)
        .args([
            "drive",
            "--seconds",
            "1",
            "--page-size",
            "4k",
            "--pages",
            "1",
        ])
        .args([
            "--chaos-areas",
            "0",
            "--workers",
            "1",
            "--batch",
            "1",
            "--socket",
        ])
        .arg(&socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the driver starts");
    let mut said = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
    assert_eq!(
        said.next().and_then(Result::ok).as_deref(),
        Some("LISTENING")
    );
    let mut program = Command::new(&program)
        .arg("leave")
        .env("LD_PRELOAD", agent)
        .env("TERRACE_SOCKET", &socket)
        .spawn()
        .expect("the program starts");
    let connected = said.next().and_then(Result::ok).unwrap_or_default();
    assert!(connected.starts_with("CONNECTED"), "{connected}");
    let begun = Instant::now();
    let ended = loop {
        let status = program.try_wait().expect("our child");
        if status.is_some() || begun.elapsed() > Duration::from_secs(90) {
            break status;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let _ = program.kill();
    let _ = program.wait();
    let _ = driver.kill();
    let _ = driver.wait();
    let status = ended.expect("the process ends with its last thread");
    assert!(status.success(), "{status}");
}
