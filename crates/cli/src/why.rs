// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace why`: what the policy believes of a process, and why it moves its pages or leaves them.

use std::path::PathBuf;

use anyhow::Context;
use terrace_api::Request;
use terrace_api::Status;
use terrace_api::Why;
use terrace_api::WhyQuestion;
use terrace_supervisor::control;

use crate::Usage;
use crate::args::WhyArgs;
use crate::out::say;

pub(crate) fn why(args: &WhyArgs) -> anyhow::Result<u8> {
    let (path, status) = supervisor_of(args.pid)?;
    // Of a supervisor: all that it manages.
    let pids: Vec<u32> = if status.supervisor_pid == args.pid {
        status.processes.iter().map(|process| process.pid).collect()
    } else {
        vec![args.pid]
    };
    let ask = |pid: u32| -> anyhow::Result<Why> {
        let page = args.page;
        let why = control::why(&path, WhyQuestion { pid, page })?;
        why.with_context(|| format!("the supervisor of process {pid} has ended"))
    };
    let found: Vec<Why> = pids.into_iter().map(ask).collect::<anyhow::Result<_>>()?;
    if args.json.json {
        say!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(0);
    }
    for why in &found {
        say!("{}", why.to_text().trim_end());
        let page = why.belief.as_ref().and_then(|belief| belief.page);
        if let Some(address) = args.page.filter(|_| why.belief.is_some() && page.is_none()) {
            say!(
                "  nothing is known of {address:#x}: not the process's own memory, not present, or not seen yet"
            );
        }
    }
    Ok(0)
}

fn supervisor_of(pid: u32) -> anyhow::Result<(PathBuf, Status)> {
    for (_, path) in control::sockets(&control::run_dir()) {
        let Some(status) = control::ask(&path, Request::Status)? else {
            continue;
        };
        if status.supervisor_pid == pid || status.processes.iter().any(|one| one.pid == pid) {
            return Ok((path, status));
        }
    }
    Err(Usage(format!(
        "no supervisor has or manages process {pid}; see terrace status"
    ))
    .into())
}
