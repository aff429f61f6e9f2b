// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace sim compare` as a user meets it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;
use std::time::Instant;

fn machine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml")
}

fn compare(out: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
    command.args(["sim", "compare"]).args(args);
    command.arg("--out").arg(out);
    if !args.contains(&"--machines") {
        command.arg("--machines").arg(machine());
    }
    command
}

/// A small matrix of six runs.
const SIX: &[&str] = &[
    "--workloads",
    "gups,zipf",
    "--policies",
    "none,nomad,oracle",
    "--fast-free",
    "32MiB",
    "--seconds",
    "20",
    "--jobs",
    "1",
];

fn kept(out: &Path) -> Vec<PathBuf> {
    let Ok(files) = std::fs::read_dir(out.join("runs")) else {
        return Vec::new();
    };
    let paths = files.map(|file| file.expect("a file").path());
    paths
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .collect()
}

#[test]
fn a_mistake_is_one_line_and_nothing_is_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let out = dir.path().join("out");
    let machine = machine();
    let machine = machine.to_str().expect("plain");
    let cases: &[(&[&str], &str)] = &[
        (&["--workloads", "gups,nonsense"], "nonsense"),
        (
            &["--workloads", "gups", "--policies", "none,nonsense"],
            "'nonsense'",
        ),
        (
            &["--workloads", "gups", "--policies", "none,thermostat"],
            "not built",
        ),
        (
            &["--workloads", "gups", "--machines", "/nonexistent.toml"],
            "/nonexistent.toml",
        ),
        (
            &["--workloads", "gups", "--fast-free", "1GiB,100TiB"],
            "Node 0",
        ),
        (
            &["--workloads", "gups", "--size", "working_set=1TiB"],
            "give less",
        ),
        (&["--workloads", "gups", "--seconds", "0"], "0 seconds"),
        (
            &[
                "--workloads",
                "gups",
                "--machines",
                machine,
                "--costs",
                "/nonexistent",
            ],
            "/nonexistent",
        ),
    ];
    for (args, word) in cases {
        let mut command = compare(&out, args);
        if !args.contains(&"--fast-free") {
            command.args(["--fast-free", "32MiB"]);
        }
        let output = command.output().expect("runs");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{args:?}: {error}");
        assert!(error.contains(word), "{args:?}: {error}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(!out.exists(), "{args:?} wrote something");
    }
}

#[test]
fn an_interrupted_matrix_goes_on_where_it_was() {
    let dir = tempfile::tempdir().expect("a directory");
    let (out, whole) = (dir.path().join("out"), dir.path().join("whole"));
    let child = compare(&out, SIX)
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("starts");
    let start = Instant::now();
    while kept(&out).is_empty() && start.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is our child");
    let output = child.wait_with_output().expect("ends");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{error}");
    assert!(error.contains("goes on from there"), "{error}");
    assert!(!out.join("index.html").exists());
    let before = kept(&out).len();
    assert!((1..6).contains(&before), "{before} runs were kept");

    let output = compare(&out, SIX).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(
        error.contains(&format!("{before} of 6 runs are kept")),
        "{error}"
    );
    let made = error.lines().filter(|line| line.contains("took")).count();
    assert_eq!(made, 6 - before, "{error}");

    // The same as in one go, to the bit.
    let output = compare(&whole, SIX).output().expect("runs");
    assert!(output.status.success());
    for file in ["results.json", "results.csv", "index.html"] {
        // But for where it went, which is an option.
        let read = |at: &Path| {
            let text = std::fs::read_to_string(at.join(file)).expect("it was written");
            text.replace(&at.display().to_string(), "OUT")
        };
        assert!(read(&out) == read(&whole), "{file} differs");
    }
    let json = std::fs::read_to_string(out.join("results.json")).expect("it was written");
    let entries: Vec<serde_json::Value> = serde_json::from_str(&json).expect("an array");
    for entry in &entries {
        let run = &entry["run"];
        assert_eq!(run["seed"], entry["seed"]);
        assert!(run["revision"].is_string() && run["machine_hash"].is_string());
        assert!(run["costs"].is_object() && run["parameters"].is_object());
    }
    let csv = std::fs::read_to_string(out.join("results.csv")).expect("it was written");
    assert_eq!(csv.lines().count(), 7);

    // A kept run that is torn is made again; all others are not.
    let torn = kept(&out).pop().expect("there are six");
    std::fs::write(&torn, "{").expect("written");
    let output = compare(&out, SIX).output().expect("runs");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let made = error.lines().filter(|line| line.contains("took")).count();
    assert_eq!(made, 1, "{error}");
}
