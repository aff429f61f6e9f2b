// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds the QEMU plugin (C, GPL-2.0-only) with the C compiler that Rust links with anyway, and
//! tells the crate where it lies.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 6] = [
    "options.c",
    "llc.c",
    "delay.c",
    "hook.c",
    "pmu.c",
    "report.c",
];
const HEADERS: [&str; 3] = ["api.h", "model.h", "pmu.h"];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let library = out.join("terrace-lab-plugin.so");
    let mut compiler = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args([
        "-O2",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-shared",
        "-fPIC",
    ]);
    // One optimisation unit: the hot path crosses files.
    compiler
        .args(["-flto", "-fvisibility=hidden", "-pthread", "-o"])
        .arg(&library);
    for source in SOURCES {
        compiler.arg(format!("plugin/{source}"));
    }
    let status = compiler
        .status()
        .unwrap_or_else(|error| panic!("Cannot run cc: {error}"));
    assert!(
        status.success(),
        "Cannot build the QEMU plugin: {compiler:?} ended with {status}"
    );
    for file in SOURCES.iter().chain(&HEADERS) {
        println!("cargo::rerun-if-changed=plugin/{file}");
    }
    println!("cargo::rerun-if-env-changed=CC");
    println!("cargo::rustc-env=TERRACE_LAB_PLUGIN={}", library.display());
}
