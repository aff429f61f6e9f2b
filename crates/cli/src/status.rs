// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace status`, `pause` and `resume`: ask the running supervisors.

use terrace_api::Request;
use terrace_api::Status;
use terrace_supervisor::control;

use crate::Usage;
use crate::args::SelectArgs;
use crate::args::StatusArgs;
use crate::out::say;

pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<u8> {
    let found = ask(&args.select, Request::Status)?;
    if args.json.json {
        say!("{}", serde_json::to_string_pretty(&found)?);
    } else if found.is_empty() {
        say!("{}", nobody());
    }
    if !args.json.json {
        for status in found {
            say!("{}", status.to_text().trim_end());
        }
    }
    Ok(0)
}

pub(crate) fn switch(args: &StatusArgs, request: Request) -> anyhow::Result<u8> {
    let found = ask(&args.select, request)?;
    if found.is_empty() {
        return Err(Usage(nobody().to_owned()).into());
    }
    if args.json.json {
        say!("{}", serde_json::to_string_pretty(&found)?);
        return Ok(0);
    }
    for status in found {
        let state = if status.paused { "paused" } else { "acting" };
        say!("terrace {}: {state}", status.supervisor_pid);
    }
    Ok(0)
}

/// Others' sockets cannot be asked.
fn nobody() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "no supervisor is running"
    } else {
        "no supervisor of this user is running; those of others are not shown"
    }
}

/// Asks those that match. Who matches must be known first, so that a pause reaches no other.
fn ask(select: &SelectArgs, request: Request) -> anyhow::Result<Vec<Status>> {
    let mut answers = Vec::new();
    for (_, path) in control::sockets(&control::run_dir()) {
        let Some(status) = control::ask(&path, Request::Status)? else {
            continue;
        };
        let wanted = select.pid.is_none_or(|pid| {
            status.supervisor_pid == pid || status.processes.iter().any(|p| p.pid == pid)
        });
        if !wanted {
            continue;
        }
        let answer = if request == Request::Status {
            Some(status)
        } else {
            control::ask(&path, request)?
        };
        answers.extend(answer);
    }
    if let Some(pid) = select.pid
        && answers.is_empty()
    {
        return Err(Usage(format!("no supervisor has or manages process {pid}")).into());
    }
    Ok(answers)
}
