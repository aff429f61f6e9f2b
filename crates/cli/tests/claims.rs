// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace claims` on folders of our own: exit codes, and one line for bad input.

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use tempfile::TempDir;

const MACHINE: &str = include_str!("../../../machines/cxl-2tier.toml");

/// A folder with a machine and one claim: fast memory serves more than `bound` of the accesses.
fn folder(status: &str, system: &str, workload: &str, bound: f64) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("not the root")).expect("made");
        fs::write(path, text).expect("written");
    };
    write("machines/m.toml", MACHINE);
    write(
        "claims/nomad/x.toml",
        &format!(
            r#"
id = "nomad/x"
paper = "nomad"
section = "1"
says = "It is so."
scaled = "Small."
status = "{status}"
why = "So it is."
[[run]]
name = "a"
machine = "machines/m.toml"
workload = "{workload}"
sizes = {{ working_set = "64GiB" }}
free = ["32GiB", "64GiB"]
system = "{system}"
seconds = 3.0
divide = 1024
[[holds]]
left = "a.fast_access_ratio"
relation = ">="
right = {bound}
"#
        ),
    );
    folder
}

fn claims(folder: &Path, more: &[&str]) -> Command {
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    command.arg("claims").arg(folder.join("claims")).args(more);
    command
}

/// Each run of the repository's own claims can be made: its preset has these parameters, its machine these nodes.
#[test]
fn the_claims_there_are_can_be_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let nothing = tempfile::tempdir().expect("a folder");
    let keep = nothing.path().to_str().expect("a plain path");
    let output = claims(&root, &["--finished", "--keep", keep, "--json"]).assert();
    let output = output.success();
    let told = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    assert!(told.contains("claims need runs"), "{told}");
}

/// More than half of the accesses are fast where all pages stay where they are: only more than that says something
/// of Nomad.
#[test]
fn a_held_claim_that_none_meets_as_well_fails() {
    for (bound, code) in [(0.5, 1), (0.9, 0)] {
        let folder = folder("held", "nomad", "pmbench", bound);
        let table = claims(folder.path(), &[]).assert().code(code);
        let text = String::from_utf8(table.get_output().stdout.clone()).unwrap();
        assert_eq!(text.contains("1 hold of none, too."), code == 1, "{text}");
        let json = claims(folder.path(), &["--json"]).assert().code(code);
        let rows: serde_json::Value = serde_json::from_slice(&json.get_output().stdout).unwrap();
        assert_eq!(rows[0]["finding"], "as_marked", "it holds");
        assert_eq!(rows[0]["of_none"][0]["holds"], code == 1);
    }
}

#[test]
fn a_held_claim_that_does_not_hold_fails() {
    // Half of the pages fit the fast node.
    let holds = folder("held", "none", "gups-uniform", 0.4);
    let table = claims(holds.path(), &[]).assert().success();
    let text = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains("1 claims: 1 held, 0 refuted (0 with a cause that a run shows), 0 open."),
        "{text}"
    );
    let broken = folder("held", "none", "gups-uniform", 0.6);
    let table = claims(broken.path(), &[]).assert().code(1);
    let text = String::from_utf8(table.get_output().stdout.clone()).unwrap();
    assert!(text.contains("1 marked held do not hold"), "{text}");
}

/// Two programs that do not fit the fast node together: the one with priority is in it, though it is
/// visited evenly and seldom.
#[test]
fn a_claim_can_put_a_program_first_and_speak_of_it() {
    let folder = folder("held", "hemem", "mix", 0.5);
    let path = folder.path().join("claims/nomad/x.toml");
    let text = fs::read_to_string(&path).expect("written before");
    let sizes = "sizes = { of = \"rest:zipf+kv:zipf\", \"rest.working_set\" = \"40GiB\", \
                 \"kv.working_set\" = \"16GiB\", \"kv.theta\" = 0.01, \"kv.think\" = \"2us\", \
                 \"kv.threads\" = 1 }\nparams = { sample_period = 500 }\npriorities = { kv = 1 }";
    let text = text
        .replace("sizes = { working_set = \"64GiB\" }", sizes)
        .replace("seconds = 3.0", "seconds = 10.0")
        .replace("a.fast_access_ratio", "a.kv.fast_access_ratio");
    let with = |from: &str, to: &str| {
        fs::write(&path, text.replace(from, to)).expect("written");
        claims(folder.path(), &[]).assert()
    };
    with("", "").success();
    with("kv = 1", "kv = 0").code(1);
    for (from, to, expected) in [
        ("kv = 1", "vk = 1", "no program 'vk'; there are: rest, kv"),
        (
            "a.kv.fast",
            "a.vk.fast",
            "no program 'vk'; there are rest, kv",
        ),
        (
            "fast_access_ratio",
            "fast_ratio",
            "no metric 'kv.fast_ratio'",
        ),
        ("\"hemem\"", "\"nomad\"", "knows no priorities"),
    ] {
        let run = with(from, to).code(2);
        let error = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(error.contains(expected), "{error} lacks {expected}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    }
}

#[test]
fn a_refuted_claim_that_holds_is_pointed_out() {
    let now = folder("refuted", "none", "gups-uniform", 0.4);
    let output = claims(now.path(), &["--json"]).assert().success();
    let rows: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(rows[0]["finding"], "holds_now");
    assert_eq!(rows[0]["verdict"], "holds");
    assert_eq!(rows[0]["checks"][0]["holds"], true);
    // Beside its figures a run says what it was made with.
    let run = &rows[0]["runs"]["a"];
    assert!(run["fast_access_ratio"].is_number(), "{run}");
    for field in ["revision", "machine_hash", "costs", "seed"] {
        assert!(!run["run"][field].is_null(), "{field}: {run}");
    }
    assert_eq!(run["run"]["seconds"], 3.0);
    assert_eq!(run["run"]["machine_file"], "machines/m.toml");
}

#[test]
fn a_planned_preset_keeps_a_claim_open() {
    let open = folder("open", "thermostat", "gups-uniform", 0.4);
    let output = claims(open.path(), &["--json"]).assert().success();
    let rows: serde_json::Value = serde_json::from_slice(&output.get_output().stdout).unwrap();
    assert_eq!(rows[0]["verdict"], "not_run");
    assert_eq!(rows[0]["missing"][0], "preset thermostat");
}

#[test]
fn bad_input_is_one_line_and_exit_2() {
    let policy = folder("open", "nimble", "gups-uniform", 0.4);
    let workload = folder("held", "none", "gusp", 0.4);
    let planned = folder("held", "thermostat", "gups-uniform", 0.4);
    let paper = folder("held", "none", "gups-uniform", 0.4);
    let empty = tempfile::tempdir().expect("a folder");
    let cases: [(&Path, &[&str], &str); 5] = [
        (policy.path(), &[], "x.toml:9: run 'a': no policy 'nimble'"),
        (workload.path(), &[], "x.toml:9: run 'a'"),
        (
            planned.path(),
            &[],
            "status is 'held', but preset thermostat is missing",
        ),
        (
            paper.path(),
            &["--paper", "nimble"],
            "No paper 'nimble'; there are mtm",
        ),
        (empty.path(), &[], "Cannot read"),
    ];
    for (folder, more, expected) in cases {
        let run = claims(folder, more).assert().code(2);
        let error = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(error.contains(expected), "{error} lacks {expected}");
        assert_eq!(error.trim_end().lines().count(), 1, "{error}");
        assert!(run.get_output().stdout.is_empty());
    }
}
