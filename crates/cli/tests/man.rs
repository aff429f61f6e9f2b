// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace man`: a page for each command that `--help` lists.

use assert_cmd::Command;

fn terrace(arguments: &[&str]) -> std::process::Output {
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    command.args(arguments).output().expect("runs")
}

#[test]
fn every_command_has_its_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().to_str().expect("a plain path");
    assert!(terrace(&["man", place]).status.success());
    let help = String::from_utf8(terrace(&["--help"]).stdout).expect("text");
    let listed = help
        .split_once("Commands:\n")
        .expect("a list of commands")
        .1;
    let commands = listed.lines().take_while(|line| !line.is_empty());
    let commands = commands.filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let named: Vec<_> = commands.filter(|name| *name != "help").collect();
    assert!(named.contains(&"run") && named.len() > 8, "{help}");
    for name in named {
        let page = dir.path().join(format!("terrace-{name}.1"));
        assert!(page.is_file(), "{name} has no page");
    }
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let output = terrace(&["man", "/nowhere/at/all"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("/nowhere/at/all"), "{error}");
}
