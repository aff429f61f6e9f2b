// SPDX-License-Identifier: MIT OR Apache-2.0
//! The repository's Rust files.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use anyhow::Context;
use proc_macro2::TokenStream;

/// All of them, in order.
pub(crate) fn all(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in ["crates", "eval", "xtask"] {
        rust_files(&root.join(folder), &mut files)?;
    }
    files.sort();
    Ok(files)
}

/// Those of a folder, in order.
pub(crate) fn below(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    rust_files(folder, &mut files)?;
    files.sort();
    Ok(files)
}

/// A file's text as Rust reads it.
pub(crate) fn tokens(file: &Path) -> anyhow::Result<TokenStream> {
    let text = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let tokens = text.parse();
    tokens.map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
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
