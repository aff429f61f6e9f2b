// SPDX-License-Identifier: MIT OR Apache-2.0
//! The repository's Rust files.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;

/// All of them, in order.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in ["crates", "eval", "xtask"] {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
