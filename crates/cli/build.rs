// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hashes the sources that a simulation's result depends on: kept results of another simulator are not
//! this one's (`src/parallel.rs`). `TERRACE_SIMULATION` is of all but the presets' own folders, which
//! have hashes of their own, by name, in `TERRACE_PRESETS`, and which nothing else uses. A change
//! elsewhere in the program leaves kept results valid.

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

/// Presets, each in a folder of its own.
const PRESETS: &str = "../../crates/policy/src/presets";

fn main() -> io::Result<()> {
    let mut hash = Fnv::EMPTY;
    for part in SOURCES {
        for below in ["src", "costs", "Cargo.toml"] {
            let path = Path::new("../..").join(part).join(below);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
                add(&mut hash, &path)?;
            }
        }
    }
    // Versions of the libraries, of the random numbers above all.
    println!("cargo::rerun-if-changed=../../Cargo.lock");
    add(&mut hash, Path::new("../../Cargo.lock"))?;
    println!("cargo::rustc-env=TERRACE_SIMULATION={:016x}", hash.0);
    let mut presets = Vec::new();
    for folder in folders(Path::new(PRESETS))? {
        let mut hash = Fnv::EMPTY;
        add(&mut hash, &folder)?;
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        presets.push(format!("{name}={:016x}", hash.0));
    }
    println!("cargo::rustc-env=TERRACE_PRESETS={}", presets.join(","));
    Ok(())
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
