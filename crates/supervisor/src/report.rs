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
    /// Page cache that the kernel would give back at once, bytes: room, too.
    #[serde(default)]
    pub cache_bytes: u64,
    /// All of it, bytes.
    pub total_bytes: u64,
}

/// The counters and the policy's own.
#[must_use]
pub fn counters(engine: &Engine) -> (serde_json::Value, BTreeMap<String, u64>) {
    let mut stats = serde_json::to_value(engine.stats()).unwrap_or_default();
    stats["inaccessible_ns"]["buckets"] = buckets(engine);
    let own = engine
        .policy()
        .counters()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v))
        .collect();
    (stats, own)
}

/// How long pages were out of reach, a histogram: the buckets that have any.
fn buckets(engine: &Engine) -> serde_json::Value {
    let mut found: BTreeMap<u64, u64> = BTreeMap::new();
    for value in engine.stats().inaccessible.iter_recorded() {
        *found.entry(bound(value.value_iterated_to())).or_default() +=
            value.count_since_last_iteration();
    }
    let bucket = |(below, count)| serde_json::json!({ "below_ns": below, "count": count });
    found.into_iter().map(bucket).collect()
}

/// The first of 1, 2, 5, 10, 20, 50, ... that is above.
fn bound(ns: u64) -> u64 {
    let decade = 10_u64.pow(ns.max(1).ilog10());
    [2, 5, 10]
        .map(|step| decade.saturating_mul(step))
        .into_iter()
        .find(|bound| *bound > ns)
        .unwrap_or(u64::MAX)
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
        self.memory(&mut out);
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
        self.wear(&mut out);
        self.waits(&mut out);
        self.spans(&mut out);
        for limit in &self.limits {
            let _ = writeln!(out, "  note: {limit}");
        }
        out
    }

    fn memory(&self, out: &mut String) {
        let iec = |bytes| bytesize::ByteSize(bytes).display().iec().to_string();
        for n in &self.nodes {
            let cache = match n.cache_bytes {
                0 => String::new(),
                bytes => format!(", {} of page cache to give back", iec(bytes)),
            };
            let _ = writeln!(
                out,
                "  node {:<3} tier {}   {} free of {}{cache}",
                n.node,
                n.tier,
                iec(n.free_bytes),
                iec(n.total_bytes)
            );
        }
    }

    fn accesses(&self, out: &mut String) {
        let readings = self.stat("chunk_readings");
        if readings > 0 {
            let _ = writeln!(out, "  accessed bits  {readings:>10}   readings of 2 MiB");
            return;
        }
        let (what, seen) = match self.stat("samples") {
            0 => ("hint faults", "hint_faults"),
            _ => ("samples", "samples"),
        };
        let lost = self.stat(&format!("{seen}_lost"));
        let seen = self.stat(seen);
        let _ = writeln!(out, "  {what:<14} {seen:>10}   lost {lost}");
    }

    fn wear(&self, out: &mut String) {
        let nodes = self.stats.get("migration_written_bytes");
        let nodes = nodes.and_then(serde_json::Value::as_object);
        let written = nodes.into_iter().flatten().map(|(node, bytes)| {
            let bytes = bytesize::ByteSize(bytes.as_u64().unwrap_or(0));
            format!("{} to node {node}", bytes.display().iec())
        });
        let written = written.collect::<Vec<_>>().join(", ");
        if !written.is_empty() {
            let _ = writeln!(out, "  migrations wrote           {written}");
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
        let decades = self.decades();
        if !decades.is_empty() {
            let _ = writeln!(out, "{:>30}{}", "", decades.join(", "));
        }
        let cpu = Nanos(self.stat("terrace_cpu_ns")).as_secs_f64();
        // Starting takes some hundredths of a second, of which no share of a short run says anything.
        let share = match self.seconds {
            short if short < 1.0 => String::new(),
            seconds => format!("   {:.1} % of one processor", cpu / seconds * 100.0),
        };
        let _ = writeln!(out, "  Terrace's cpu  {cpu:>9.2}s{share}");
    }
}

#[cfg(test)]
mod tests {
    use terrace_policy::Settings;

    use super::*;

    #[test]
    fn times_out_of_reach_are_a_histogram() {
        assert_eq!(
            [0, 1, 2, 4, 5, 9, 10, 999].map(bound),
            [2, 2, 5, 5, 10, 10, 20, 1000]
        );
        assert_eq!(bound(u64::MAX), u64::MAX);
        let mut settings = Settings::new("none", BTreeMap::new());
        let tiers = terrace_core::Tiers::default();
        let policy = terrace_policy::with_settings("none", &tiers, &mut settings).expect("known");
        let mut engine = Engine::new(policy);
        for us in [7, 30, 40, 2_000] {
            engine.stats_mut().inaccessible(Nanos(us * 1000));
        }
        let (stats, policy_counters) = counters(&engine);
        let buckets = &stats["inaccessible_ns"]["buckets"];
        let bucket = |at: usize| {
            let of = |name: &str| buckets[at][name].as_u64().expect("a number");
            (of("below_ns"), of("count"))
        };
        assert_eq!(buckets.as_array().map(Vec::len), Some(3), "{buckets}");
        assert_eq!([bucket(0), bucket(1)], [(10_000, 1), (50_000, 2)]);
        let status = Status {
            supervisor_pid: 7,
            policy: "none".to_owned(),
            paused: false,
            seconds: 0.1,
            processes: Vec::new(),
            nodes: Vec::new(),
            stats,
            policy_counters,
            tracker: None,
            limits: Vec::new(),
        };
        let text = status.to_text();
        assert!(
            text.contains("1 under 10µs, 2 under 100µs, 1 under 10ms\n"),
            "{text}"
        );
        assert!(!text.contains("of one processor"), "of 0.1 s: {text}");
    }
}
