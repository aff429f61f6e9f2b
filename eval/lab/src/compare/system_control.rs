// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems, as they are switched on in the guest: kernel settings, or Terrace around the
//! workload.
//!
//! Every run starts with the kernel's tiering off. [`Steering::go`] is the moment from which the
//! system may act; it comes when the workload's memory is filled and in place.

use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use anyhow::ensure;

use terrace_api::Status;
use terrace_core::Pid;
use terrace_policy::Stats;
use terrace_sys::process;
use terrace_sys::procmaps::Mapping;
use terrace_sys::procmaps::MapsFile;

use super::damon;
use super::record::GuestLine;
use super::record::Moves;
use super::record::System;
use super::scenario::say;
use crate::lab_marker;

const AGENT_FILE: &str = "libterrace.so";
const SUPERVISOR: &str = "terrace";
const NUMA_BALANCING: &str = "/proc/sys/kernel/numa_balancing";
const DEMOTION: &str = "/sys/kernel/mm/numa/demotion_enabled";

/// One system around one workload.
#[derive(Debug)]
pub(super) struct Steering {
    system: System,
    /// The program `terrace`.
    terrace: PathBuf,
    /// More options for `terrace run`.
    options: Vec<String>,
    /// Where Terrace writes its statistics.
    stats: PathBuf,
    before: Moves,
    damon: Option<damon::Control>,
}

impl Steering {
    /// Brings the kernel into the state in which every run starts.
    pub(super) fn prepare(
        system: System,
        terrace: PathBuf,
        options: Vec<String>,
        (fast, slow): (usize, usize),
    ) -> anyhow::Result<Self> {
        write(NUMA_BALANCING, "0")?;
        write(DEMOTION, "0")?;
        let damon = match system {
            System::Damon(mode) => Some(damon::Control::prepare(mode, fast, slow)?),
            System::None
            | System::Autonuma
            | System::Kernel
            | System::Preset(_)
            | System::Oracle => None,
        };
        Ok(Self {
            system,
            terrace,
            options,
            stats: std::env::temp_dir().join(format!("terrace-stats-{}.json", std::process::id())),
            before: kernel_moves(system)?,
            damon,
        })
    }

    /// `program`, to be run under the system.
    pub(super) fn command(&self, program: &Path) -> Command {
        if !self.system.is_terrace() {
            return Command::new(program);
        }
        let mut command = Command::new(&self.terrace);
        command
            .args(["run", "--paused", "--policy", self.system.policy()])
            .arg(format!("--stats={}", self.stats.display()))
            .args(&self.options)
            .arg("--")
            .arg(program);
        command
    }

    /// Tells the memory model which code is Terrace's: its agent's in these processes, and all that its
    /// supervisor runs. What it does is counted apart. To be called before the model starts.
    pub(super) fn point_out_terrace(&self, pids: impl Iterator<Item = Pid>) {
        if !self.system.is_terrace() {
            return;
        }
        let supervisors = process::named(SUPERVISOR);
        let programs = pids.filter(|pid| !supervisors.contains(pid)).flat_map(code);
        let (agents, programs): (Vec<_>, Vec<_>) =
            programs.partition(|mapping| mapping.name.ends_with(AGENT_FILE));
        // A range is one of all processes: where a program has code there, too, it is the program's.
        let own = supervisors.iter().copied().flat_map(code);
        let own = own.filter(|mapping| !programs.iter().any(|program| overlap(program, mapping)));
        for mapping in agents.into_iter().chain(own) {
            lab_marker::tiering(mapping.range.start.0..mapping.range.end.0);
        }
    }

    /// From now on the system may act. What of the fast node the set-up has filled with page cache,
    /// programs' files above all, is free again.
    pub(super) fn go(&self) -> anyhow::Result<()> {
        write("/proc/sys/vm/drop_caches", "1")?;
        match self.system {
            System::None | System::Oracle => Ok(()),
            System::Damon(_) => self.damon.as_ref().map_or(Ok(()), damon::Control::go),
            System::Autonuma => write(NUMA_BALANCING, "1"),
            System::Kernel => {
                write(DEMOTION, "1")?;
                write(NUMA_BALANCING, "2")
            }
            System::Preset(_) => {
                let status = Command::new(&self.terrace)
                    .arg("resume")
                    .status()
                    .with_context(|| format!("Cannot run {}", self.terrace.display()))?;
                ensure!(status.success(), "terrace resume ended with {status}");
                Ok(())
            }
        }
    }

    /// What the system counted, and all of it where that is Terrace; to be asked when the workload
    /// has ended.
    pub(super) fn moves(&self) -> anyhow::Result<(Moves, Option<Box<Status>>)> {
        if self.system.is_terrace() {
            let path = self.stats.display();
            let text =
                fs::read_to_string(&self.stats).with_context(|| format!("Cannot read {path}"))?;
            let status: Box<Status> =
                serde_json::from_str(&text).with_context(|| format!("{path} is no status"))?;
            return Ok((terrace_moves(&status.stats), Some(status)));
        }
        if let Some(damon) = &self.damon {
            let (moves, line) = damon.end()?;
            say(&GuestLine::Note(line));
            return Ok((moves, None));
        }
        let now = kernel_moves(self.system)?;
        let moves = Moves {
            promoted_pages: now.promoted_pages - self.before.promoted_pages,
            demoted_pages: now.demoted_pages - self.before.demoted_pages,
            ..Moves::default()
        };
        Ok((moves, None))
    }
}

fn overlap(one: &Mapping, other: &Mapping) -> bool {
    one.range.start < other.range.end && other.range.start < one.range.end
}

/// Where a process has code of files; nothing if it is gone.
fn code(pid: Pid) -> impl Iterator<Item = Mapping> {
    let maps = MapsFile::of(pid.0).and_then(|mut maps| maps.all());
    let maps = maps.unwrap_or_default().into_iter();
    maps.filter(|mapping| mapping.executable && mapping.inode != 0)
}

fn write(path: &str, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("Cannot write {text} to {path}"))
}

fn kernel_moves(system: System) -> anyhow::Result<Moves> {
    let text = fs::read_to_string("/proc/vmstat").context("Cannot read /proc/vmstat")?;
    Ok(vmstat_moves(&text, system))
}

/// The kernel's counters; reclaim by whom is all the same. Balancing without tiers counts no promotion: there it is all
/// that was moved to who uses it.
fn vmstat_moves(vmstat: &str, system: System) -> Moves {
    let promoted = match system {
        System::Autonuma => "numa_pages_migrated",
        _ => "pgpromote_success",
    };
    let mut moves = Moves::default();
    for line in vmstat.lines() {
        let Some((name, value)) = line.split_once(' ') else {
            continue;
        };
        let value = value.parse().unwrap_or(0);
        if name == promoted {
            moves.promoted_pages = value;
        } else if name.starts_with("pgdemote_") {
            moves.demoted_pages += value;
        }
    }
    moves
}

/// What `terrace run` counted.
const fn terrace_moves(stats: &Stats) -> Moves {
    Moves {
        promoted_pages: stats.promoted_pages,
        demoted_pages: stats.demoted_pages,
        tpm_committed: stats.tpm_committed,
        tpm_aborted: stats.tpm_aborted,
        shadow_hits: stats.shadow_hits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_counters() {
        let text = "numa_pages_migrated 20500\npgpromote_success 19175\npgpromote_candidate 20000\npgdemote_kswapd 3\n\
                    pgdemote_direct 4\npgdemote_khugepaged 0\nnr_free_pages 5\n";
        let moves = vmstat_moves(text, System::Kernel);
        assert_eq!((moves.promoted_pages, moves.demoted_pages), (19175, 7));
        assert_eq!(vmstat_moves(text, System::Autonuma).promoted_pages, 20500);
    }

    #[test]
    fn terrace_s_counters() {
        let stats = serde_json::json!({
            "promoted_pages": 5, "demoted_pages": 4, "tpm_committed": 3, "tpm_aborted": 2,
            "shadow_hits": 1, "hint_faults": 9});
        let moves = terrace_moves(&serde_json::from_value(stats.clone()).unwrap());
        assert_eq!((moves.promoted_pages, moves.shadow_hits), (5, 1));
        for partial in [serde_json::json!({}), serde_json::json!({ "stats": stats })] {
            assert!(serde_json::from_value::<Status>(partial).is_err());
        }
    }
}
