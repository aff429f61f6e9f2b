// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which crate may name which: what decides stays pure, lower never names upper.

use std::collections::BTreeSet;

use anyhow::Context;
use cargo_metadata::Metadata;
use cargo_metadata::Package;

/// Which of our crates each crate may name. A new edge is a decision: make it here, in review.
pub(crate) const ALLOWED: &[(&str, &[&str])] = &[
    ("terrace-core", &[]),
    ("terrace-policy", &["terrace-core"]),
    ("terrace-api", &["terrace-core", "terrace-policy"]),
    ("terrace-workload", &["terrace-core"]),
    ("terrace-proto", &["terrace-core"]),
    ("terrace-machine-spec", &[]),
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
            "terrace-api",
            "terrace-proto",
            "terrace-sys",
            "terrace-track",
            "terrace-mover",
        ],
    ),
    (
        "terrace-bench",
        &[
            "terrace-core",
            "terrace-experiment",
            "terrace-sys",
            "terrace-workload",
        ],
    ),
    (
        "terrace-stress",
        &[
            "terrace-core",
            "terrace-sys",
            "terrace-proto",
            "terrace-agent",
            "terrace-experiment",
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
        "terrace-experiment",
        &[
            "terrace-policy",
            "terrace-sim",
            "terrace-chart",
            "terrace-sys",
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
            "terrace-api",
            "terrace-machine-spec",
            "terrace-chart",
            "terrace-claims",
            "terrace-experiment",
            "terrace-sys",
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
            "terrace-api",
            "terrace-machine-spec",
            "terrace-chart",
            "terrace-experiment",
            "terrace-workload",
            "terrace-sim",
            "terrace-bench",
            "terrace-sys",
            "terrace-track",
        ],
    ),
    ("xtask", &[]),
];

/// Crates that must build anywhere: nothing below them may touch an operating system by itself.
const PURE: &[&str] = &[
    "terrace-core",
    "terrace-policy",
    "terrace-api",
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

/// Edges that are not allowed and crates that are not as pure as they should be, a line each.
pub(crate) fn wrong(metadata: &Metadata) -> anyhow::Result<Vec<String>> {
    let packages = metadata.workspace_packages();
    let ours: BTreeSet<&str> = packages.iter().map(|p| p.name.as_str()).collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package.name.as_str();
        match ALLOWED.iter().find(|(one, _)| *one == name) {
            Some((_, may)) => {
                wrong.extend(edges(package, may, &ours));
                let names = |to: &&&str| package.dependencies.iter().any(|d| d.name == **to);
                let unused = may.iter().filter(|to| !names(to));
                wrong.extend(unused.map(|to| format!("{name} may name {to} and does not")));
            }
            None => wrong.push(format!("{name} is not in xtask's table")),
        }
        if PURE.contains(&name) {
            wrong.extend(unsafe_root(package)?);
        }
    }
    Ok(wrong)
}

fn edges(package: &Package, may: &[&str], ours: &BTreeSet<&str>) -> Vec<String> {
    let name = package.name.as_str();
    let mut wrong = Vec::new();
    for dependency in &package.dependencies {
        let to = dependency.name.as_str();
        if dependency.kind == cargo_metadata::DependencyKind::Development {
            continue;
        }
        if ours.contains(to) && !may.contains(&to) {
            wrong.push(format!("{name} -> {to}"));
        }
        if PURE.contains(&name) && IMPURE.contains(&to) {
            wrong.push(format!("{name} is pure and names {to}"));
        }
    }
    wrong
}

/// A pure crate forbids unsafe code.
fn unsafe_root(package: &Package) -> anyhow::Result<Option<String>> {
    let library = package.targets.iter().find(|target| target.is_lib());
    let root = library.with_context(|| format!("{} has no library", package.name))?;
    let root = &root.src_path;
    let text = std::fs::read_to_string(root).with_context(|| root.to_string())?;
    let forbids = text.contains("#![forbid(unsafe_code)]");
    Ok((!forbids).then(|| format!("{root} does not forbid unsafe code")))
}
