// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every figure is documented, and what a run writes keeps to the published schema.
//!
//! `TERRACE_WRITE_DOCS=1` writes the tables of docs/status.md anew.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use assert_cmd::Command;
use serde_json::Value;
use terrace_api::Status;
use terrace_core::Figure;
use terrace_policy::PRESETS;
use terrace_policy::Stats;

/// What follows this line is made of the tables.
const MARK: &str = "<!-- figures: written by `make figures` -->\n";

fn docs(name: &str) -> PathBuf {
    let docs = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs"));
    docs.join(name)
}

fn table<'a>(title: &str, figures: impl Iterator<Item = &'a Figure>) -> String {
    let mut out = format!("\n{title}\n\n| name | unit | |\n|---|---|---|\n");
    for Figure { name, unit, help } in figures {
        let _ = writeln!(out, "| `{name}` | {} | {help} |", unit.name());
    }
    out
}

fn tables() -> String {
    let mut out = table("## Of the run: `stats`", Stats::FIGURES.iter());
    for preset in PRESETS.iter().filter(|preset| preset.in_user_space()) {
        let own = preset.figures();
        if !own.is_empty() {
            let title = format!("## Of the policy `{}`: `policy_counters`", preset.name);
            out += &table(&title, own.into_iter());
        }
    }
    for (name, figures) in terrace_track::FIGURES {
        let title = format!("## Of the tracker `{name}`: `trackers[].counters`");
        out += &table(&title, figures.iter());
    }
    out
}

#[test]
fn all_are_documented() {
    let path = docs("status.md");
    let text = fs::read_to_string(&path).expect("it is there");
    let (before, found) = text.split_once(MARK).expect("the mark");
    let now = tables();
    if std::env::var_os("TERRACE_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{before}{MARK}{now}")).expect("written");
    } else {
        assert!(
            found == now,
            "docs/status.md is out of date: run `make figures`"
        );
    }
    let sentences = now.lines().filter(|line| line.starts_with("| `"));
    for line in sentences {
        assert!(
            line.ends_with(". |"),
            "a sentence ends with its stop: {line}"
        );
    }
}

#[test]
fn what_a_run_writes_keeps_to_the_schema() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stats.json");
    let stats = format!("--stats={}", file.display());
    let run = ["run", "--policy", "none", "--mover=move-pages", &stats];
    Command::cargo_bin("terrace")
        .expect("built by cargo")
        .env("TERRACE_RUN_DIR", dir.path())
        .args(run)
        .args(["--", "true"])
        .assert()
        .success();
    let text = fs::read_to_string(&file).expect("written");
    let written: Value = serde_json::from_str(&text).expect("JSON");
    let schema = fs::read_to_string(docs("status.schema.json")).expect("it is published");
    let schema = serde_json::from_str(&schema).expect("JSON");
    if let Err(error) = jsonschema::validate(&schema, &written) {
        panic!("{error} in {text}");
    }
    // No name that the schema does not have.
    let status: Status = serde_json::from_str(&text).expect("a status");
    assert_eq!(serde_json::to_value(&status).expect("JSON"), written);
}
