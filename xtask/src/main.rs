// SPDX-License-Identifier: MIT OR Apache-2.0
//! Developer tasks. `cargo run -p xtask -- check-deps` fails on a dependency that points the wrong
//! way: what decides stays pure, lower never names upper.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::bail;

/// Which of our crates each crate may name. A new edge is a decision: make it here, in review.
const ALLOWED: &[(&str, &[&str])] = &[
    ("terrace-core", &[]),
    ("terrace-policy", &["terrace-core"]),
    ("terrace-workload", &["terrace-core"]),
    ("terrace-proto", &["terrace-core"]),
    ("terrace-machine-spec", &["terrace-core"]),
    ("terrace-chart", &[]),
    ("terrace-sys", &["terrace-core"]),
    ("terrace-bpf", &["terrace-core", "terrace-sys"]),
    (
        "terrace-track",
        &["terrace-core", "terrace-sys", "terrace-bpf"],
    ),
    (
        "terrace-mover",
        &["terrace-core", "terrace-sys", "terrace-proto"],
    ),
    (
        "terrace-agent",
        &["terrace-core", "terrace-sys", "terrace-proto"],
    ),
    (
        "terrace-supervisor",
        &[
            "terrace-core",
            "terrace-policy",
            "terrace-proto",
            "terrace-machine-spec",
            "terrace-sys",
            "terrace-bpf",
            "terrace-track",
            "terrace-mover",
        ],
    ),
    (
        "terrace-bench",
        &["terrace-core", "terrace-sys", "terrace-workload"],
    ),
    (
        "terrace-stress",
        &[
            "terrace-core",
            "terrace-sys",
            "terrace-proto",
            "terrace-agent",
        ],
    ),
    (
        "terrace-claims",
        &[
            "terrace-core",
            "terrace-machine-spec",
            "terrace-workload",
            "terrace-sim",
        ],
    ),
    (
        "terrace-sim",
        &[
            "terrace-core",
            "terrace-policy",
            "terrace-workload",
            "terrace-machine-spec",
        ],
    ),
    (
        "terrace-cli",
        &[
            "terrace-core",
            "terrace-policy",
            "terrace-machine-spec",
            "terrace-chart",
            "terrace-claims",
            "terrace-sys",
            "terrace-bench",
            "terrace-workload",
            "terrace-sim",
            "terrace-track",
            "terrace-supervisor",
        ],
    ),
    (
        "terrace-lab",
        &[
            "terrace-core",
            "terrace-policy",
            "terrace-machine-spec",
            "terrace-chart",
            "terrace-workload",
            "terrace-sim",
            "terrace-bench",
            "terrace-sys",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that must build anywhere: nothing below them may touch an operating system by itself.
const PURE: &[&str] = &[
    "terrace-core",
    "terrace-policy",
    "terrace-workload",
    "terrace-proto",
    "terrace-machine-spec",
    "terrace-chart",
    "terrace-claims",
    "terrace-sim",
];
const IMPURE: &[&str] = &[
    "libc",
    "rustix",
    "nix",
    "linux-raw-sys",
    "libbpf-rs",
    "tokio",
];

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let done = match task.as_str() {
        "check-deps" => check_deps(),
        other => Err(anyhow::anyhow!(
            "unknown task '{other}'; there is: check-deps"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn check_deps() -> anyhow::Result<()> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .exec()
        .context("cargo metadata")?;
    let ours: BTreeSet<String> = metadata
        .workspace_packages()
        .iter()
        .map(|p| p.name.to_string())
        .collect();
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.iter().copied().collect();
    let mut wrong = Vec::new();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} is not in xtask's table"));
            continue;
        };
        for dependency in &package.dependencies {
            let to = dependency.name.as_str();
            let normal = dependency.kind != cargo_metadata::DependencyKind::Development;
            if ours.contains(to) && normal && !may.contains(&to) {
                wrong.push(format!("{name} -> {to}"));
            }
            if PURE.contains(&name) && normal && IMPURE.contains(&to) {
                wrong.push(format!("{name} is pure and names {to}"));
            }
        }
    }
    for name in PURE {
        let root = metadata
            .workspace_packages()
            .iter()
            .find(|p| p.name == *name)
            .and_then(|p| {
                p.targets
                    .iter()
                    .find(|t| t.is_lib())
                    .map(|t| t.src_path.clone())
            })
            .with_context(|| format!("{name} has no library"))?;
        let text = std::fs::read_to_string(&root).with_context(|| root.to_string())?;
        if !text.contains("#![forbid(unsafe_code)]") {
            wrong.push(format!("{root} does not forbid unsafe code"));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "dependencies point the wrong way:\n  {}",
            wrong.join("\n  ")
        );
    }
    println!("dependencies: {} crates, all edges allowed", ours.len());
    Ok(())
}
