// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a comparison needs from outside, checked before the first boot: programs of Debian, our
//! own programs, and the load generator from PyPI, which is fetched once into a directory.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;

/// What is fetched. `redis`, which the generator imports, wants `async-timeout` on Debian 12's
/// Python 3.11.2 but not on later ones, so a newer pip leaves it out by itself.
const PACKAGES: [&str; 2] = ["resp-benchmark==0.2.5", "async-timeout"];
/// Debian's Python.
pub(super) const PYTHON: &str = "/usr/bin/python3";

/// Makes sure that the load generator can be imported from `directory`.
///
/// # Errors
///
/// Where there is no pip, or it cannot fetch the package.
pub fn load_generator(directory: &Path) -> anyhow::Result<()> {
    if imports(directory) {
        return Ok(());
    }
    // Either Python will do: the package is for 3.11 whichever asks for it.
    for python in [PYTHON, "python3"] {
        let has_pip = Command::new(python)
            .args(["-m", "pip", "--version"])
            .output()
            .is_ok_and(|output| output.status.success());
        if !has_pip {
            continue;
        }
        let status = Command::new(python)
            .args(["-m", "pip", "install", "--quiet", "--upgrade"])
            .args([
                "--root-user-action=ignore",
                "--no-warn-conflicts",
                "--target",
            ])
            .arg(directory)
            .args(PACKAGES)
            .status()
            .with_context(|| format!("Cannot run {python}"))?;
        ensure!(
            status.success(),
            "pip could not fetch {} into {}",
            PACKAGES[0],
            directory.display()
        );
        ensure!(
            imports(directory),
            "{PYTHON} cannot import resp_benchmark from {}",
            directory.display()
        );
        return Ok(());
    }
    bail!("No pip to fetch {} with; install python3-pip", PACKAGES[0])
}

fn imports(directory: &Path) -> bool {
    Command::new(PYTHON)
        .args(["-c", "import resp_benchmark"])
        .env("PYTHONPATH", directory)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// Makes sure that a program exists.
///
/// # Errors
///
/// Where it does not, with what to do about it.
pub fn program(path: &Path, hint: &str) -> anyhow::Result<()> {
    ensure!(path.exists(), "{} does not exist; {hint}", path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_says_what_to_do() {
        let error = program(Path::new("/no/terrace"), "run make build").unwrap_err();
        assert_eq!(
            error.to_string(),
            "/no/terrace does not exist; run make build"
        );
        assert!(program(Path::new("/bin/sh"), "").is_ok());
    }

    #[test]
    fn an_empty_directory_has_no_load_generator() {
        let empty = tempfile::tempdir().unwrap();
        assert!(!imports(empty.path()));
    }
}
