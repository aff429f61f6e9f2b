// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace man`: the manual pages, made from the same descriptions as `--help`.

use anyhow::Context;
use clap::CommandFactory;

use crate::args::Cli;
use crate::args::ManArgs;

/// Writes `terrace.1` and a page for each command.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<u8> {
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .with_context(|| format!("Cannot write the manual pages into {}", args.dir.display()))?;
    Ok(0)
}
