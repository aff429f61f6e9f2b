// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guest's side of a run: starts one workload under one system and reports.
//!
//! Standard output carries [`GuestLine`]s and nothing else; what programs say goes to standard
//! error.

use std::io::BufRead;
use std::io::BufReader;
use std::io::Write;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;
use terrace_bench::placement;
use terrace_core::NodeId;
use terrace_core::Pid;
use terrace_sys::process;
use terrace_workload::report::Check;
use terrace_workload::report::Line;

use super::case;
use super::case::Case;
use super::case::Start;
use super::damon::Refused;
use super::heartbeat;
use super::record::GuestLine;
use super::record::System;
use super::redis;
use super::system_control::Steering;
use crate::lab_marker;

/// The name of the workload that is not one of `terrace-bench`.
pub const REDIS: &str = "redis";

/// One run.
#[derive(Debug, Clone)]
pub struct Setting {
    /// `redis`, or a workload of `terrace-bench`, and where its pages start.
    pub case: Case,
    /// Threads of the workload, over all its programs.
    pub threads: u32,
    /// The system.
    pub system: System,
    /// How long, from the moment when the system may act.
    pub time: Duration,
    /// What the sizes are made from; what is free now where absent.
    pub fast_free: Option<u64>,
    /// Whether a workload of `terrace-bench` asks for huge pages.
    pub huge: bool,
    /// The fast node.
    pub fast_node: usize,
    /// The slow node.
    pub slow_node: usize,
    /// All nodes as each socket sees them, the fastest first: `0,1,2,3`.
    pub orders: Vec<String>,
    /// Whether each thread of a workload of `terrace-bench` stays on a socket, in turn.
    pub bind: bool,
    /// Where `terrace` and `terrace-bench` are.
    pub tools: PathBuf,
    /// More options for `terrace run`.
    pub terrace_options: Vec<String>,
    /// Of everything random.
    pub seed: u64,
}

/// Runs it. What goes wrong is said as a [`GuestLine::Failed`], what this kernel cannot do as a [`GuestLine::Skipped`]; the
/// result is whether all is well.
#[must_use]
pub fn main(setting: &Setting) -> bool {
    match run(setting) {
        Ok(()) => true,
        Err(error) if error.is::<Refused>() => {
            say(&GuestLine::Skipped(error.to_string()));
            true
        }
        Err(error) => {
            say(&GuestLine::Failed(format!("{error:#}")));
            false
        }
    }
}

fn run(setting: &Setting) -> anyhow::Result<()> {
    heartbeat::start();
    let terrace = setting.tools.join("terrace");
    let options = setting.terrace_options.clone();
    let nodes = (setting.fast_node, setting.slow_node);
    let steering = Steering::prepare(setting.system, terrace, options, nodes)?;
    let result = if setting.case.is_redis() {
        redis::run(setting, &steering)
    } else {
        bench(setting, &steering)
    };
    let moves = steering.moves();
    result?;
    let (moves, terrace) = moves?;
    say(&GuestLine::Moves(moves));
    if let Some(status) = terrace {
        say(&GuestLine::Terrace(status));
    }
    Ok(())
}

/// A workload of `terrace-bench`.
fn bench(setting: &Setting, steering: &Steering) -> anyhow::Result<()> {
    let fast_free = match setting.fast_free {
        Some(bytes) => bytes,
        None => free_bytes(setting.fast_node)?,
    };
    say(&GuestLine::Sized(fast_free));
    let program = setting.tools.join("terrace-bench");
    let mut child = steering
        .command(&program)
        .arg(&setting.case.workload)
        .args(case::settings(
            &setting.case.workload,
            fast_free,
            setting.threads,
        ))
        .args(["--hold", "--place", place(setting.system, &setting.case)])
        .arg(format!("--fast-free={fast_free}"))
        .arg(format!("--seconds={}s", setting.time.as_secs()))
        .arg(format!("--fast-node={}", setting.fast_node))
        .args(
            setting
                .orders
                .iter()
                .map(|nodes| format!("--order={nodes}")),
        )
        .args(setting.bind.then_some("--bind"))
        .arg(format!("--slow-node={}", setting.slow_node))
        .arg(format!("--seed={}", setting.seed))
        .args(setting.huge.then_some("--huge"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("Cannot run {}", program.display()))?;
    let mut stdin = child.stdin.take().context("No pipe to terrace-bench")?;
    let stdout = child.stdout.take().context("No pipe from terrace-bench")?;
    let mut checked = None;
    for line in BufReader::new(stdout).lines() {
        let line = line.context("Cannot read what terrace-bench says")?;
        let Ok(line) = serde_json::from_str::<Line>(&line) else {
            eprintln!("{line}");
            continue;
        };
        match &line {
            Line::Ready(_) => {
                let starter = Pid(child.id());
                steering.point_out_terrace(process::descendants(starter)?.into_iter());
                // Memory is as slow as it is said to be before anybody measures it.
                lab_marker::start();
                steering.go()?;
                stdin
                    .write_all(b"go\n")
                    .context("Cannot start the workload")?;
            }
            Line::Check(check) => checked = Some(check.clone()),
            Line::Second(_) | Line::Total(_) => {}
        }
        say(&GuestLine::Workload(line));
    }
    let status = child.wait().context("Cannot wait for terrace-bench")?;
    match checked {
        Some(check) if !check.passed() => bail!("{}", what_is_wrong(&check)),
        None => bail!("The workload ended with {status} before its memory was checked"),
        Some(_) => ensure!(status.success(), "The workload ended with {status}"),
    }
    Ok(())
}

/// Where the workload puts its pages: the oracle's where they are best, from any start.
fn place(system: System, case: &Case) -> &'static str {
    match system {
        System::Oracle => "oracle",
        System::None | System::Autonuma | System::Kernel | System::Damon(_) | System::Preset(_) => {
            case.start.map_or("default", Start::place)
        }
    }
}

fn what_is_wrong(check: &Check) -> String {
    let first = check.wrong.first().map_or(String::new(), |word| {
        format!(
            "; {:#x} holds {:#018x} instead of {:#018x}",
            word.address, word.found, word.expected
        )
    });
    format!(
        "Memory is wrong: {} updates made, {} found{first}",
        check.updates_made, check.updates_found
    )
}

/// Bytes free on a node.
pub(super) fn free_bytes(node: usize) -> anyhow::Result<u64> {
    Ok(placement::free_bytes(NodeId(u16::try_from(node)?))?)
}

/// Prints one line. A host that is gone is no reason to stop: it ends the guest anyway.
pub(super) fn say(line: &GuestLine) {
    let text = serde_json::to_string(line).expect("plain data");
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use terrace_workload::report::WrongWord;

    use super::*;

    #[test]
    fn a_failed_check_names_the_first_word() {
        let wrong = WrongWord {
            address: 0x7f00,
            expected: 3,
            found: 2,
        };
        let check = Check {
            words: 9,
            updates_made: 5,
            updates_found: 4,
            wrong: vec![wrong],
        };
        let text = what_is_wrong(&check);
        assert!(
            text.contains("0x7f00") && text.contains("5 updates"),
            "{text}"
        );
    }

    #[test]
    fn every_system_but_the_oracle_starts_where_it_was_asked_to() {
        for (case, wanted) in [
            ("gups", "default"),
            ("gups:slow", "slow"),
            ("gups:full", "fast"),
        ] {
            let case = case.parse().unwrap();
            for system in [System::None, System::Kernel, System::Preset("nomad")] {
                assert_eq!(place(system, &case), wanted);
            }
            assert_eq!(place(System::Oracle, &case), "oracle");
        }
    }

    #[test]
    fn this_machine_s_node_0_has_free_memory() {
        assert!(free_bytes(0).unwrap() > 0);
        assert!(free_bytes(4000).is_err());
    }
}
