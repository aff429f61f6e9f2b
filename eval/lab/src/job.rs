// SPDX-License-Identifier: MIT OR Apache-2.0
//! What host and guest tell each other: the job going in as a file of the shared directory,
//! reports coming out as JSON lines on the control port.

use std::collections::BTreeMap;
use std::io;

use serde::Deserialize;
use serde::Serialize;
use terrace_machine_spec::Machine;

/// Name of the job's file in the shared directory.
pub const JOB_FILE: &str = "job.json";
/// Where the shared directory is mounted in the guest.
pub const GUEST_DIR: &str = "/run/terrace-lab";
/// Host's answer to [`Report::Exit`]: all output has arrived, power off.
pub const GOODBYE: &[u8] = b"bye\n";

/// When the memory model counts and delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Delays {
    /// From the command's start to its end.
    On,
    /// When the command says so, with `terrace-lab mark start` and `stop`.
    Mark,
    /// Never.
    Off,
}

/// A command to run in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub command: Vec<String>,
    pub directory: String,
    pub environment: BTreeMap<String, String>,
    pub delays: Delays,
    /// The node the lab's own memory should come from, and the one it should stay off.
    pub lab_node: usize,
    pub fast_node: usize,
    /// Host directories shared read-write: 9p tag and path.
    pub shares: Vec<(String, String)>,
    /// Whether the guest has a network card.
    pub network: bool,
}

impl Job {
    /// A command to run in the guest as it would run here: directory and environment of the
    /// calling process, and `TERRACE_LAB` with the machine's name.
    ///
    /// # Errors
    ///
    /// If there is no current directory (any more).
    pub fn here(machine: &Machine, command: Vec<String>, delays: Delays) -> io::Result<Self> {
        // What is not UTF-8 does not travel; nothing the lab runs needs it.
        let mut environment: BTreeMap<String, String> = std::env::vars_os()
            .filter_map(|(key, value)| Some((key.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        environment.insert("TERRACE_LAB".to_owned(), machine.name.clone());
        let ranking = machine.ranking(0);
        Ok(Self {
            command,
            directory: std::env::current_dir()?.to_string_lossy().into_owned(),
            environment,
            delays,
            lab_node: ranking[ranking.len() - 1],
            fast_node: ranking[0],
            shares: Vec::new(),
            network: false,
        })
    }
}

/// Memory of a node as the guest's kernel sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestNode {
    pub id: usize,
    pub total_kib: u64,
    pub free_kib: u64,
    /// The memory tier the kernel put it in, as `memory_tierN`; empty if it has none.
    pub tier: String,
}

/// A line of the control port.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The guest is set up and is about to start the command.
    Ready {
        uptime_s: f64,
        kernel: String,
        nodes: Vec<GuestNode>,
    },
    /// The command has ended, or could not be started.
    Exit {
        code: i32,
        stdout_bytes: u64,
        stderr_bytes: u64,
    },
    /// The guest could not be set up.
    Failed { what: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_survive_the_wire() {
        let report = Report::Exit {
            code: 3,
            stdout_bytes: 1,
            stderr_bytes: 0,
        };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(
            line,
            r#"{"exit":{"code":3,"stdout_bytes":1,"stderr_bytes":0}}"#
        );
        assert_eq!(serde_json::from_str::<Report>(&line).unwrap(), report);
    }
}
