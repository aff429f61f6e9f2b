// SPDX-License-Identifier: MIT OR Apache-2.0
//! A run's statistics, as JSON and for people.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Deserialize;
use serde::Serialize;
use terrace_core::Nanos;
use terrace_policy::Engine;

/// What `terrace status` shows and `terrace run --stats` writes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Status {
    /// Process id of the supervisor.
    pub supervisor_pid: u32,
    /// Preset name.
    pub policy: String,
    /// Kept from acting.
    pub paused: bool,
    /// Seconds since the start.
    pub seconds: f64,
    /// The managed processes.
    pub processes: Vec<ProcessStatus>,
    /// Free and total bytes by node.
    pub nodes: Vec<NodeStatus>,
    /// The counters, by name; defined in `terrace_policy::Stats`.
    pub stats: serde_json::Value,
    /// The policy's own counters.
    pub policy_counters: BTreeMap<String, u64>,
    /// Where accesses are learnt from, if the policy looks at any.
    #[serde(default)]
    pub tracker: Option<TrackerStatus>,
    /// Why something does not work as asked, if so.
    pub limits: Vec<String>,
}

/// A tracker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrackerStatus {
    /// Its name, as on the command line.
    pub name: String,
    /// Its own counters.
    pub counters: BTreeMap<String, u64>,
}

/// A managed process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: u32,
    /// Whether it has an agent that can do transactions.
    pub agent: bool,
    /// Name of the program.
    pub name: String,
}

/// A node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The kernel's number.
    pub node: u16,
    /// 0 is the fastest.
    pub tier: u16,
    /// Not allocated, bytes.
    pub free_bytes: u64,
    /// All of it, bytes.
    pub total_bytes: u64,
}

/// The counters and the policy's own.
#[must_use]
pub fn counters(engine: &Engine) -> (serde_json::Value, BTreeMap<String, u64>) {
    let stats = serde_json::to_value(engine.stats()).unwrap_or_default();
    let own = engine
        .policy()
        .counters()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
    (stats, own)
}

impl Status {
    fn stat(&self, name: &str) -> u64 {
        self.stats
            .get(name)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or(0)
    }

    /// For people, several lines.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let paused = if self.paused { ", paused" } else { "" };
        let _ = writeln!(
            out,
            "terrace {}: policy {}{paused}, {:.1} s",
            self.supervisor_pid, self.policy, self.seconds
        );
        for p in &self.processes {
            let how = if p.agent {
                "transactions"
            } else {
                "move_pages"
            };
            let _ = writeln!(out, "  process {:<8} {:<16} {how}", p.pid, p.name);
        }
        for n in &self.nodes {
            let _ = writeln!(
                out,
                "  node {:<3} tier {}   {} free of {}",
                n.node,
                n.tier,
                bytesize::ByteSize(n.free_bytes).display().iec(),
                bytesize::ByteSize(n.total_bytes).display().iec()
            );
        }
        let bytes = |name| {
            bytesize::ByteSize(self.stat(name))
                .display()
                .iec()
                .to_string()
        };
        self.accesses(&mut out);
        let _ = writeln!(
            out,
            "  promoted       {:>10}   {}",
            self.stat("promoted_pages"),
            bytes("promoted_bytes")
        );
        let _ = writeln!(
            out,
            "  demoted        {:>10}   {}, {} onto shadows without a copy",
            self.stat("demoted_pages"),
            bytes("demoted_bytes"),
            self.stat("shadow_hits")
        );
        let _ = writeln!(
            out,
            "  transactions   {:>10}   aborted {}, by move_pages instead {}",
            self.stat("tpm_committed"),
            self.stat("tpm_aborted"),
            self.stat("ordinary_moves")
        );
        let _ = writeln!(
            out,
            "  refused        {:>10}   busy {}, no memory {}, gone or unmovable {}",
            self.stat("refused_busy") + self.stat("refused_no_memory") + self.stat("lost"),
            self.stat("refused_busy"),
            self.stat("refused_no_memory"),
            self.stat("lost")
        );
        self.spans(&mut out);
        for limit in &self.limits {
            let _ = writeln!(out, "  note: {limit}");
        }
        out
    }

    fn accesses(&self, out: &mut String) {
        let (what, seen) = match self.stat("samples") {
            0 => ("hint faults", "hint_faults"),
            _ => ("samples", "samples"),
        };
        let lost = self.stat(&format!("{seen}_lost"));
        let seen = self.stat(seen);
        let _ = writeln!(out, "  {what:<14} {seen:>10}   lost {lost}");
    }
        self.waits(&mut out);

    fn spans(&self, out: &mut String) {
        let span = |key: &str| {
            let ns = self
                .stats
                .get("inaccessible_ns")
                .and_then(|m| m.get(key))
                .and_then(serde_json::Value::as_u64);
            Nanos(ns.unwrap_or(0)).to_string()
        };
        let _ = writeln!(
            out,
            "  inaccessible   {:>10}   p50, {} p99, {} max, a page",
            span("p50"),
            span("p99"),
            span("max")
        );
        let cpu = Nanos(self.stat("terrace_cpu_ns"));
        let share = cpu.as_secs_f64() / self.seconds.max(1e-9) * 100.0;
        let _ = writeln!(
            out,
            "  Terrace's cpu  {:>9.2}s   {share:.1} % of one processor",
            cpu.as_secs_f64()
        );
    }
}
    /// Nothing where no write can have waited.
    fn waits(&self, out: &mut String) {
        let waited = self.stat("writes_waited");
        let float = |name: &str| self.stats.get(name).and_then(serde_json::Value::as_f64);
        let of = match (float("writes_waited_share"), float("writes")) {
            (Some(share), Some(all)) => format!("{:.6} % of about {all:.2e}", share * 100.0),
            _ if waited == 0 => return,
            _ => "of an unknown number".to_owned(),
        };
        let _ = writeln!(out, "  writes waited  {waited:>10}   {of}");
    }

    /// How many pages were out of reach for under 10 us, how many for under 100 us, and so on.
    fn decades(&self) -> Vec<String> {
        let buckets = self.stats.get("inaccessible_ns").map(|m| &m["buckets"]);
        let buckets = buckets.and_then(serde_json::Value::as_array);
        let mut decades: BTreeMap<u64, u64> = BTreeMap::new();
        for bucket in buckets.into_iter().flatten() {
            let (below, count) = (bucket["below_ns"].as_u64(), bucket["count"].as_u64());
            if let (Some(below), Some(count)) = (below, count) {
                let decade = (below.max(2) - 1).ilog10() + 1;
                *decades.entry(10_u64.saturating_pow(decade)).or_default() += count;
            }
        }
        decades
            .iter()
            .map(|(below, count)| format!("{count} under {}", Nanos(*below)))
            .collect()
    }

