// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the BPF program with clang. The object is embedded in the crate ([`crate::driver`]).
//!
//! The BPF helper headers are libbpf's own, which `libbpf-sys` unpacks (`DEP_BPF_INCLUDE`); the
//! kernel's user-space headers come from `linux-libc-dev`. `CLANG` names another compiler.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bpf/hint_faults.bpf.c";
const HEADER: &str = "src/bpf/hint_faults.h";

fn main() -> Result<(), String> {
    for changed in [SOURCE, HEADER] {
        println!("cargo::rerun-if-changed={changed}");
    }
    println!("cargo::rerun-if-env-changed=CLANG");

    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out = PathBuf::from(env::var("OUT_DIR").map_err(|e| format!("OUT_DIR: {e}"))?);
    let include = env::var("DEP_BPF_INCLUDE")
        .map_err(|_| "libbpf-sys gave no include directory: build it with its vendored libbpf")?;
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();

    let mut command = Command::new(&clang);
    command
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
        ])
        .args(["-Wno-unused-parameter", "-Wno-missing-field-initializers"])
        .arg(format!("-I{include}"))
        // asm/types.h, which a bpf target does not find by itself on Debian.
        .arg(format!("-idirafter/usr/include/{arch}-linux-gnu"))
        .args(["-c", SOURCE, "-o"])
        .arg(out.join("hint_faults.bpf.o"));
    let status = command
        .status()
        .map_err(|e| format!("Cannot start {clang}: {e}; install clang or set CLANG"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{clang} failed on {SOURCE}: {status}"))
    }
}
