// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of other crates that want the emulated machine's kernel and its two tiers, run in it as they are.

use std::process::Command;

use serde_json::Value;

use crate::machine::guest;

/// The programs of the workspace's tests of these names, built already or now.
fn built(names: &[&str]) -> Vec<String> {
    let named = names.iter().flat_map(|name| ["--test", name]);
    let output = Command::new(env!("CARGO"))
        .args([
            "test",
            "--release",
            "--workspace",
            "--no-run",
            "--message-format",
            "json",
        ])
        .args(named)
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let tests =
        messages.filter(|message| names.iter().any(|name| message["target"]["name"] == *name));
    let programs = tests.filter_map(|message| Some(message["executable"].as_str()?.to_owned()));
    programs.collect()
}

#[test]
#[ignore = "boots the emulated machine"]
fn trackers_and_movers_are_right_of_this_kernel() {
    let programs = built(&["hint_faults", "page_tables", "parts"]);
    assert_eq!(programs.len(), 3, "{programs:?}");
    for program in programs {
        // `many` wants more memory than this machine has.
        let ran = guest(&format!("{program} --test-threads 1 --skip many 2>&1"));
        let out = ran.good();
        println!("{out}");
        assert!(
            out.contains("test result: ok") && !out.contains("SKIPPED"),
            "{out}"
        );
        assert!(!out.contains("0 passed"), "{out}");
    }
}
