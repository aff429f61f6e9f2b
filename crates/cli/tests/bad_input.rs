// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the user gets for a mistake: one clear line, the right exit code, nothing changed; and the
//! program's own exit code where there is no mistake. Runs on any machine; what depends on the
//! number of memory nodes asks for it first.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;

use assert_cmd::Command;

fn terrace(dir: &Path) -> Command {
    let mut command = Command::cargo_bin("terrace").expect("built by cargo");
    command
        .env("TERRACE_RUN_DIR", dir)
        .env_remove("TERRACE_LOG");
    command
}

/// Runs, checks the code, gives standard error. One line unless the parser explains usage.
fn fails(dir: &Path, args: &[&str], code: i32) -> String {
    let output = terrace(dir).args(args).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
    assert!(
        output.stdout.is_empty(),
        "{args:?} printed to standard output"
    );
    error
}

fn one_node() -> bool {
    !Path::new("/sys/devices/system/node/node1").exists()
}

#[test]
fn an_unknown_policy_is_named_with_the_known_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = fails(dir.path(), &["run", "--policy", "nimad", "--", "true"], 125);
    assert_eq!(
        error,
        "terrace: Unknown policy 'nimad'; there are: none, nomad, hemem, hemem-page-table, chrono, mtm, autotiering, adaptive\n"
    );
}

#[test]
fn a_tracker_that_does_not_give_what_the_policy_decides_by_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut args = vec!["run", "--tracker", "pmu"];
    if one_node() {
        args.extend(["--fast", "64M"]);
    }
    args.extend(["--", "true"]);
    let error = fails(dir.path(), &args, 125);
    assert!(
        error.starts_with("terrace: --tracker pmu: policy 'adaptive' needs accessed bits")
            && error.ends_with("use accessed-bits or auto\n"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = fails(dir.path(), &["run", "--mover", "memcpy", "--", "true"], 125);
    assert!(error.contains("auto, move-pages, agent"), "{error}");
    let alone = ["run", "--policy", "hemem", "--mover", "move-pages"];
    for option in [
        ["--commit", "transaction"],
        ["--copy-threads", "2"],
        ["--stores", "ordinary"],
    ] {
        let error = fails(
            dir.path(),
            &[&alone[..], &option, &["--", "true"]].concat(),
            125,
        );
        assert!(
            error.starts_with(&format!("terrace: {} says how the agent", option[0])),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn more_copying_threads_than_the_agent_has_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    for policy in ["hemem", "mtm"] {
        let mut args = vec!["run", "--policy", policy, "--param", "copy_threads=9"];
        if one_node() {
            args.extend(["--fast", "64M"]);
        }
        let error = fails(dir.path(), &[&args[..], &["--", "true"]].concat(), 125);
        let start = "terrace: copy_threads=9: the agent copies a page by 1 to 8 threads";
        assert!(error.starts_with(start), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Whatever this kernel can: there is no agent, or the fact is off.
#[test]
fn pages_that_nobody_can_arm_are_refused_before_anything_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let flag = dir.path().join("ran");
    for (mover, off) in [("move-pages", ""), ("agent", "uffd_rwp")] {
        let mut command = terrace(dir.path());
        command.env("TERRACE_PROBE_OFF", off);
        command.args(["run", "--policy=chrono", "--param=probe=chosen-faults"]);
        command.args(["--mover", mover]);
        if one_node() {
            command.arg("--fast=64M");
        }
        let output = command.args(["--", "touch"]).arg(&flag).output();
        let output = output.expect("runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{error}");
        let wanted =
            "give accessed-bits, faults, or with --mover agent on Linux 7.3 or later chosen-faults";
        assert!(error.trim_end().ends_with(wanted), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
        assert!(!flag.exists());
    }
}

#[test]
fn sizes_that_make_no_sense_or_do_not_fit_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = fails(dir.path(), &["run", "--fast", "lots", "--", "true"], 125);
    assert!(error.contains("'lots' is not a size"), "{error}");
    let error = fails(dir.path(), &["run", "--fast", "900TiB", "--", "true"], 125);
    assert!(
        error.starts_with("terrace: --fast 900.0 TiB: the fast tier can have"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    fails(dir.path(), &["run", "--fast", "0", "--", "true"], 125);
}

#[test]
fn no_command_is_a_usage_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = fails(dir.path(), &["run"], 125);
    assert!(error.contains("<CMD>"), "{error}");
}

#[test]
fn exit_codes_are_the_programs_or_those_of_env() {
    let dir = tempfile::tempdir().expect("a directory");
    let run = |program: &[&str]| {
        let mut args = vec!["run", "--policy", "none", "--mover=move-pages", "--"];
        args.extend(program);
        terrace(dir.path())
            .args(&args)
            .output()
            .expect("runs")
            .status
            .code()
    };
    assert_eq!(run(&["true"]), Some(0));
    assert_eq!(run(&["sh", "-c", "exit 42"]), Some(42));
    assert_eq!(run(&["/no/such/program"]), Some(127));
    assert_eq!(run(&["/etc/passwd"]), Some(126));
    let error = fails(
        dir.path(),
        &[
            "run",
            "--policy",
            "none",
            "--mover=move-pages",
            "--",
            "no-such-program",
        ],
        127,
    );
    assert_eq!(
        error,
        "terrace: Program 'no-such-program' not found; check the name or give its path\n"
    );
}

#[test]
fn attaching_to_nobody_fails() {
    let dir = tempfile::tempdir().expect("a directory");
    let error = fails(dir.path(), &["attach", "--policy", "none", "4194303"], 1);
    assert!(error.contains("There is no process 4194303"), "{error}");
    fails(dir.path(), &["attach", "zero"], 2);
}

#[test]
fn on_one_node_only_a_split_in_name_runs_and_says_so() {
    if !one_node() {
        eprintln!("SKIPPED: this machine has more than one memory node");
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let error = fails(
        dir.path(),
        &["run", "--mover=move-pages", "--", "true"],
        125,
    );
    assert!(
        error.contains("this machine has one memory node"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
    let output = terrace(dir.path())
        .args([
            "run",
            "--fast",
            "256M",
            "--mover=move-pages",
            "--",
            "sh",
            "-c",
            "exit 5",
        ])
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("splitting it in name into 256.0 MiB fast"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn exchange_that_nobody_can_do_is_told_of_and_stands_in_the_statistics() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stats");
    let stats = format!("--stats={}", file.display());
    let mut args = vec!["run", "--policy=autotiering", "--param=mode=opmx", &stats];
    if one_node() {
        args.push("--fast=64M");
    }
    args.extend(["--", "true"]);
    let output = terrace(dir.path()).args(&args).output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let line = "is to exchange pages by its parameters, which --mover move-pages cannot";
    assert!(said.contains(line), "{said}");
    let stats = std::fs::read_to_string(&file).expect("written at the end");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let limits = stats["limits"].to_string();
    assert!(limits.contains(line), "{stats}");
}

#[test]
fn a_stats_file_that_cannot_be_written_stops_the_run_before_it_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let flag = dir.path().join("ran");
    let touch = flag.to_string_lossy().into_owned();
    let args = [
        "run",
        "--policy",
        "none",
        "--mover=move-pages",
        "--stats=/no/such/dir/x",
        "--",
        "touch",
        &touch,
    ];
    let error = fails(dir.path(), &args, 125);
    assert!(error.contains("Cannot write /no/such/dir/x"), "{error}");
    assert!(!flag.exists(), "the program ran");
}

#[test]
fn a_run_that_does_not_begin_leaves_an_earlier_ones_statistics() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stats.json");
    std::fs::write(&file, "earlier").expect("written");
    let stats = format!("--stats={}", file.display());
    let begin = ["run", "--policy=none", "--mover=move-pages", &stats];
    for (rest, code) in [
        (&["--param=x=1", "--", "true"][..], 125),
        (&["--", "/no/such/program"][..], 127),
    ] {
        fails(dir.path(), &[&begin[..], rest].concat(), code);
        let kept = std::fs::read_to_string(&file).expect("still there");
        assert_eq!(kept, "earlier", "{rest:?}");
    }
}

#[test]
fn statistics_are_json_with_closed_books() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("stats.json");
    let stats = format!("--stats={}", file.display());
    terrace(dir.path())
        .args([
            "run",
            "--policy",
            "none",
            "--mover=move-pages",
            &stats,
            "--",
            "true",
        ])
        .assert()
        .success();
    let text = std::fs::read_to_string(&file).expect("written");
    let run = [
        "run",
        "--policy",
        "none",
        "--mover=move-pages",
        "--json",
        "--",
        "true",
    ];
    let output = terrace(dir.path()).args(run).output().expect("runs");
    let said: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON");
    assert_eq!(said["stats"]["ordered"], 0);
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status["policy"], "none");
    for name in [
        "hint_faults",
        "promoted_pages",
        "tpm_committed",
        "shadow_hits",
        "ordered",
    ] {
        assert_eq!(status["stats"][name], 0, "{name}");
    }
}

#[test]
fn status_pause_and_resume_reach_a_running_supervisor() {
    let dir = tempfile::tempdir().expect("a directory");
    let idle = terrace(dir.path()).arg("status").output().expect("runs");
    assert_eq!(
        String::from_utf8_lossy(&idle.stdout),
        "no supervisor is running\n"
    );
    fails(dir.path(), &["pause"], 2);

    let mut run = std::process::Command::new(assert_cmd::cargo::cargo_bin("terrace"))
        .env("TERRACE_RUN_DIR", dir.path())
        .args([
            "run",
            "--policy",
            "none",
            "--mover=move-pages",
            "--",
            "sleep",
            "300",
        ])
        .spawn()
        .expect("starts");
    let status = || -> Vec<serde_json::Value> {
        let output = terrace(dir.path())
            .args(["status", "--json"])
            .output()
            .expect("runs");
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while status().is_empty() && std::time::Instant::now() < until {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let paused = terrace(dir.path()).args(["pause", "--json"]).output();
    let paused: serde_json::Value =
        serde_json::from_slice(&paused.expect("runs").stdout).expect("JSON");
    assert_eq!(paused[0]["paused"], true);
    assert_eq!(status()[0]["paused"], true);
    terrace(dir.path())
        .args(["resume", &run.id().to_string()])
        .assert()
        .success();
    assert_eq!(status()[0]["paused"], false);
    fails(dir.path(), &["status", "1"], 2);

    // SIGTERM goes on to the program, and it ends of it.
    let pid = i32::try_from(run.id()).expect("a pid");
    std::process::Command::new("kill")
        .arg(pid.to_string())
        .status()
        .expect("kill is there");
    assert_eq!(run.wait().expect("ends").signal(), Some(15));
    assert!(status().is_empty());
}

#[test]
fn doctor_and_tiers_speak_json_and_a_wrong_fact_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    for verb in ["doctor", "tiers"] {
        let output = terrace(dir.path())
            .args([verb, "--json"])
            .output()
            .expect("runs");
        let parsed: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(
            parsed.is_ok(),
            "{verb}: {}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
    let output = terrace(dir.path())
        .env("TERRACE_PROBE_OFF", "warp_drive")
        .arg("doctor")
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("warp_drive"));
}

/// `terrace sim`: one clear line, exit code 2, nothing printed to standard output.
#[test]
fn a_simulation_that_cannot_be() {
    let dir = tempfile::tempdir().expect("a directory");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let machine = root.join("machines/cxl-2tier.toml");
    let machine = machine.to_str().expect("plain");
    let sim = |args: &[&str]| {
        let all = [&["sim", "--machine", machine][..], args].concat();
        let error = fails(dir.path(), &all, 2);
        assert_eq!(error.lines().count(), 1, "{error}");
        error
    };
    assert!(sim(&["--workload", "nonsense"]).contains("nonsense"));
    assert!(sim(&["--policy", "nonsense"]).contains("kernel-tiering"));
    assert!(sim(&["--policy", "thermostat"]).contains("not built"));
    assert!(sim(&["--fast-free", "100TiB"]).contains("Node 0"));
    assert!(sim(&["--param", "heat=3"]).contains("horizon"));
    assert!(sim(&["--param", "heat"]).contains("name=value"));
    assert!(sim(&["--priority", "gups"]).contains("PROGRAM=N"));
    assert!(sim(&["--priority", "gups=-1"]).contains("PROGRAM=N"));
    let hemem = ["--policy", "hemem", "--priority", "gusp=1"];
    assert!(sim(&hemem).contains("no program 'gusp'; there are: gups"));
    let nomad = ["--policy", "nomad", "--priority", "gups=1"];
    assert!(sim(&nomad).contains("knows no priorities"));
    assert!(sim(&["--floor", "gups"]).contains("PROGRAM=N"));
    assert!(sim(&["--ceiling", "gups=much"]).contains("'gups=much' is no ceiling"));
    let nomad = ["--policy", "nomad", "--floor", "gups=1MiB"];
    assert!(sim(&nomad).contains("do: adaptive"));
    let above = ["--floor", "gups=2MiB", "--ceiling", "gups=1MiB"];
    assert!(sim(&above).contains("floor is above its ceiling"));
    assert!(sim(&["--seconds", "nan"]).contains("NaN"));
    assert!(sim(&["--costs", "/nonexistent"]).contains("/nonexistent"));
    assert!(sim(&["--costs", "hardwear"]).contains("papers, hardware, lab"));

    // A machine file without processors.
    let text = std::fs::read_to_string(machine).expect("it is there");
    let file = dir.path().join("nocpu.toml");
    std::fs::write(&file, text.replace("cpus = 16", "cpus = 0")).expect("written");
    let file = file.to_str().expect("plain");
    let error = fails(dir.path(), &["sim", "--machine", file], 2);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(
        error.contains("cpus") || error.contains("processor"),
        "{error}"
    );
}
