// SPDX-License-Identifier: MIT OR Apache-2.0
//! Developer tasks. `cargo run -p xtask -- check-deps` fails on a dependency that points the wrong
//! way ([`edges`]), on a preset's name outside of its folder ([`names`]) and on one that is not in the list of presets
//! ([`listed`]), and on documents that say otherwise ([`documents`]); `write-docs` writes what of them is generated.

mod documents;
mod edges;
mod listed;
mod names;
mod sources;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use anyhow::bail;

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let done = match task.as_str() {
        "check-deps" => check(),
        "write-docs" => write(),
        other => Err(anyhow::anyhow!(
            "unknown task '{other}'; there are: check-deps, write-docs"
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

fn metadata() -> anyhow::Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command.no_deps().exec().context("cargo metadata")
}

fn check() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let root = metadata.workspace_root.as_std_path();
    let found = [
        ("dependencies point the wrong way", edges::wrong(&metadata)?),
        ("go through PRESETS instead", names::wrong(root)?),
        ("PRESETS is the list of presets", listed::wrong(root)?),
        ("the documents say otherwise", documents::wrong(root)?),
    ];
    for (what, wrong) in found {
        if !wrong.is_empty() {
            bail!("{what}:\n  {}", wrong.join("\n  "));
        }
    }
    let crates = metadata.workspace_packages().len();
    println!("dependencies: {crates} crates, all edges allowed");
    Ok(())
}

fn write() -> anyhow::Result<()> {
    let metadata = metadata()?;
    let path: &Path = metadata.workspace_root.as_std_path();
    documents::write(path)
}
