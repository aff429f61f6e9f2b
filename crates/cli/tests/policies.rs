// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every policy there is can be listed, is in the help, and can be simulated by its name.

use assert_cmd::Command;
use terrace_policy::PRESETS;

const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines/cxl-2tier.toml");

fn terrace(args: &[&str]) -> String {
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    let output = command.args(args).output().expect("runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn all_are_listed_with_their_parameters() {
    let listed: serde_json::Value =
        serde_json::from_str(&terrace(&["policies", "--json"])).expect("JSON");
    let listed = listed.as_array().expect("a list");
    assert_eq!(listed.len(), PRESETS.len());
    let table = terrace(&["policies"]);
    for (one, preset) in listed.iter().zip(PRESETS) {
        assert_eq!(one["name"], preset.name);
        let parameters = one["parameters"].as_array().expect("a list");
        assert_eq!(parameters.len(), preset.help.len());
        for parameter in parameters {
            for part in ["name", "default", "range", "help"] {
                let text = parameter[part].as_str().expect("text");
                assert!(!text.is_empty(), "{}: {parameter}", preset.name);
            }
        }
        assert!(table.contains(preset.name) && table.contains(preset.title));
        let own = terrace(&["policies", preset.name]);
        assert!(
            preset.help.iter().all(|(name, _)| own.contains(name)),
            "{own}"
        );
    }
}

/// A preset is added by its folder and its line in `PRESETS`; nobody else lists them.
#[test]
fn all_are_in_the_help() {
    for command in [
        &["run", "--help"][..],
        &["attach", "--help"],
        &["sim", "--help"],
    ] {
        let help = terrace(command);
        let words = |c: char| !(c.is_alphanumeric() || c == '-');
        for preset in PRESETS {
            let offered = preset.in_user_space() || command[0] == "sim";
            let found = help.split(words).any(|word| word == preset.name);
            assert_eq!(found, offered, "{command:?} {}: {help}", preset.name);
        }
    }
    let defaults = terrace(&["sim", "compare", "--help"]);
    for preset in PRESETS {
        assert!(defaults.contains(preset.name), "{defaults}");
    }
}

#[test]
fn all_can_be_simulated() {
    for preset in PRESETS {
        let json = terrace(&[
            "sim",
            "--machine",
            MACHINE,
            "--fast-free",
            "64MiB",
            "--workload",
            "gups",
            "--seconds",
            "1",
            "--no-oracle",
            "--json",
            "--policy",
            preset.name,
        ]);
        let ran: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert!(ran.is_object(), "{}: {json}", preset.name);
    }
}

#[test]
fn what_only_the_kernel_can_do_is_refused_in_one_line() {
    for preset in PRESETS.iter().filter(|preset| !preset.in_user_space()) {
        let mut command = Command::cargo_bin("terrace").expect("built by cargo");
        let output = command.args(["run", "--policy", preset.name, "--", "true"]);
        let output = output.output().expect("runs");
        let error = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(125), "{error}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        let why = format!("terrace sim --policy {}", preset.name);
        assert!(
            error.contains("hint fault") && error.contains(&why),
            "{error}"
        );
    }
}
