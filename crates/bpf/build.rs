// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the BPF programs with clang. The objects are embedded in the crate (`driver`, `accessed`).
//!
//! The BPF helper headers are libbpf's own, which `libbpf-sys` unpacks (`DEP_BPF_INCLUDE`); the
//! kernel's user-space headers come from `linux-libc-dev`. `CLANG` names another compiler.

use std::env;
use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 4] = [
    "hint_faults",
    "accessed_bits",
    "chosen_faults",
    "placed_ranges",
];

fn main() -> Result<(), String> {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=src/bpf");
    for program in PROGRAMS {
        compile(program)?;
    }
    Ok(())
}

fn compile(program: &str) -> Result<(), String> {
    let source = format!("src/bpf/{program}.bpf.c");
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
        .args(["-c", &source, "-o"])
        .arg(out.join(format!("{program}.bpf.o")));
    let status = command
        .status()
        .map_err(|e| format!("Cannot start {clang}: {e}; install clang or set CLANG"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("{clang} failed on {source}: {status}"))
    }
}
