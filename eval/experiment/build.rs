// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes the sources that a simulation's result depends on: kept results of another simulator are not
//! this one's (`src/kept.rs`). `TERRACE_SIMULATION` is of all but the presets' own folders, which
//! have hashes of their own, by name, in `TERRACE_PRESETS`, and which nothing else uses. A change
//! elsewhere in the program leaves kept results valid. `TERRACE_BUILD` is of all that runs in the emulated machine, and of that
//! machine.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

/// What decides a result, from the drawing of a visit to the figure made of the outcome.
const SOURCES: [&str; 6] = [
    "crates/core",
    "crates/policy",
    "crates/machine-spec",
    "eval/workload",
    "eval/sim",
    "eval/claims",
];

/// What runs in the emulated machine, and the machine.
const IN_THE_MACHINE: [&str; 15] = [
    "crates/agent",
    "crates/api",
    "crates/bpf",
    "crates/cli",
    "crates/core",
    "crates/machine-spec",
    "crates/mover",
    "crates/policy",
    "crates/proto",
    "crates/supervisor",
    "crates/sys",
    "crates/track",
    "eval/bench",
    "eval/lab",
    "eval/workload",
];

/// Of those, what only judges and shows runs that have been made: they stay valid.
const AFTERWARDS: [&str; 9] = [
    "eval/lab/src/cmd_validate.rs",
    "eval/lab/src/compare/page",
    "eval/lab/src/compare/page.rs",
    "eval/lab/src/compare/table.rs",
    "eval/lab/src/compare/verdict.rs",
    "eval/lab/src/validate/judge.rs",
    "eval/lab/src/validate/results.rs",
    "eval/lab/src/validate/simulated.rs",
    "eval/lab/src/validate/table.rs",
];

/// Presets, each in a folder of its own.
const PRESETS: &str = "../../crates/policy/src/presets";

fn main() -> io::Result<()> {
    println!("cargo::rustc-env=TERRACE_SIMULATION={:016x}", of(&SOURCES)?);
    let mut presets = Vec::new();
    for folder in folders(Path::new(PRESETS))? {
        let mut hash = Fnv::EMPTY;
        add(&mut hash, &folder)?;
        for name in names(&folder)? {
            presets.push(format!("{name}={:016x}", hash.0));
        }
    }
    println!("cargo::rustc-env=TERRACE_PRESETS={}", presets.join(","));
    // With the presets' own folders: which of them runs is not told apart.
    let mut build = Fnv::EMPTY;
    build.add(&of(&IN_THE_MACHINE)?.to_le_bytes());
    build.add(presets.join(",").as_bytes());
    println!("cargo::rustc-env=TERRACE_BUILD={:016x}", build.0);
    Ok(())
}

/// The hash of these crates' sources and of the versions of the libraries, of the random numbers above all.
fn of(crates: &[&str]) -> io::Result<u64> {
    let mut hash = Fnv::EMPTY;
    let parts = crates.iter().flat_map(|part| {
        ["src", "costs", "plugin", "Cargo.toml"]
            .map(|below| Path::new("../..").join(part).join(below))
    });
    for path in parts.chain([PathBuf::from("../../Cargo.lock")]) {
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
            add(&mut hash, &path)?;
        }
    }
    Ok(hash.0)
}

/// What the presets that are defined in a folder's files are called.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(path)?;
        let values = text.split(": Preset = Preset {").skip(1);
        names.extend(values.filter_map(|value| Some(value.split('"').nth(1)?.to_owned())));
    }
    names.sort();
    let what = || io::Error::other(format!("{}: no preset", folder.display()));
    (!names.is_empty()).then_some(names).ok_or_else(what)
}

/// The folders in a folder, by name.
fn folders(path: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.is_dir());
    paths.sort();
    Ok(paths)
}

/// Names and contents, in the order of the names.
fn add(hash: &mut Fnv, path: &Path) -> io::Result<()> {
    if AFTERWARDS.iter().any(|one| path.ends_with(one)) {
        return Ok(());
    }
    hash.add(path.to_string_lossy().as_bytes());
    if !path.is_dir() {
        hash.add(&fs::read(path)?);
        return Ok(());
    }
    let entries = fs::read_dir(path)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    if path == Path::new(PRESETS) {
        paths.retain(|path| !path.is_dir());
    }
    paths.sort();
    paths.iter().try_for_each(|path| add(hash, path))
}

/// FNV-1a, 64 bits; each part with its length.
struct Fnv(u64);

impl Fnv {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn add(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        for byte in length.to_le_bytes().iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
