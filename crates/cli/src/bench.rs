// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace bench`: hands over to `terrace-bench`, which is a program of its own so that a
//! supervisor can manage it like any other.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use crate::args::BenchArgs;

pub(crate) fn bench(args: &BenchArgs) -> anyhow::Result<u8> {
    let own = std::env::current_exe().context("Cannot find this program")?;
    let program = own.with_file_name("terrace-bench");
    let error = Command::new(&program).args(&args.args).exec();
    Err(error)
        .with_context(|| format!("Cannot run {}; build it with make build", program.display()))
}
