// SPDX-License-Identifier: MIT OR Apache-2.0
//! The agent with its test switches.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

/// The agent with the test switches, built beside the ordinary one.
pub(crate) fn agent() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_terrace-stress"));
    let target = program
        .parent()
        .and_then(Path::parent)
        .expect("target/PROFILE/terrace-stress")
        .join("test-switches");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", "terrace-agent"])
        .args(["--features", "test-switches", "--target-dir"])
        .arg(&target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status()
        .expect("cargo starts");
    assert!(
        built.success(),
        "the agent with test switches does not build"
    );
    target.join("debug/libterrace.so")
}
