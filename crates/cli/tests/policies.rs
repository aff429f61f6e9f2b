// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every preset there is appears everywhere: in lists with its parameters, in help and manual pages, in the simulator, in
//! claims, in comparisons and their charts. The lab's own list is tested beside it
//! (`every_preset_is_a_system_with_a_look`). Code cannot tell a preset from another, as none is named outside its folder
//! (`xtask/src/names.rs`): where all are that exist, a new one will be.

use std::fmt::Write;
use std::fs;

use assert_cmd::Command;
use serde_json::json;
use terrace_policy::PRESETS;
use terrace_policy::preset::Colour;

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
        for (parameter, (name, help)) in parameters.iter().zip(preset.help) {
            assert_eq!(
                (&parameter["name"], &parameter["help"]),
                (&json!(name), &json!(help))
            );
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

#[test]
fn all_are_in_the_help_and_the_manual() {
    let dir = tempfile::tempdir().expect("a folder");
    terrace(&["man", dir.path().to_str().expect("a plain path")]);
    for command in ["run", "attach", "sim"] {
        let page = dir.path().join(format!("terrace-{command}.1"));
        // `-` is escaped there.
        let page = fs::read_to_string(page).expect("written").replace('\\', "");
        for text in [terrace(&[command, "--help"]), page] {
            let words = |c: char| !(c.is_alphanumeric() || c == '-');
            for preset in PRESETS {
                let offered = preset.in_user_space() || command == "sim";
                let found = text.split(words).any(|word| word == preset.name);
                assert_eq!(found, offered, "{command} {}: {text}", preset.name);
            }
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

/// Where none is named all are compared; each has its row and its colours in the page's charts.
#[test]
fn all_are_compared_and_drawn() {
    let dir = tempfile::tempdir().expect("a folder");
    let out = dir.path().to_str().expect("a plain path");
    terrace(&[
        "sim",
        "compare",
        "--machines",
        MACHINE,
        "--fast-free",
        "32MiB",
        "--workloads",
        "gups",
        "--seconds",
        "1",
        "--out",
        out,
    ]);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).expect("written");
    let (page, csv) = (read("index.html"), read("results.csv"));
    for preset in PRESETS {
        let row = |line: &str| line.split(',').any(|cell| cell == preset.name);
        assert!(csv.lines().any(row), "{}: {csv}", preset.name);
        let Colour { light, dark } = preset.colour;
        for part in [preset.name, light, dark] {
            assert!(page.contains(part), "{}: no {part}", preset.name);
        }
    }
}

/// A file of claims with a run of each.
#[test]
fn all_are_systems_of_claims() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut claim = r#"
id = "nomad/x"
paper = "nomad"
section = "1"
says = "It is so."
scaled = "Small."
status = "refuted"
why = "So it is."
"#
    .to_owned();
    for (index, preset) in PRESETS.iter().enumerate() {
        write!(
            claim,
            r#"
[[run]]
name = "r{index}"
machine = "machines/m.toml"
workload = "gups-uniform"
sizes = {{ working_set = "64GiB" }}
free = ["32GiB", "64GiB"]
system = "{}"
seconds = 1.0
divide = 1024
[[holds]]
left = "r{index}.ops_per_s"
relation = ">="
right = 1
"#,
            preset.name
        )
        .expect("text");
    }
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().expect("not the root")).expect("made");
        fs::write(path, text).expect("written");
    };
    let machine = fs::read_to_string(MACHINE).expect("there");
    write("machines/m.toml", &machine);
    write("claims/nomad/x.toml", &claim);
    let claims = dir.path().join("claims");
    let text = terrace(&["claims", claims.to_str().expect("a plain path")]);
    assert!(text.contains("1 marked refuted hold now"), "{text}");
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
