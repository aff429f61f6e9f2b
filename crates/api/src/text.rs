// SPDX-License-Identifier: MIT OR Apache-2.0
//! A status for people: the run in some lines, then a line for each figure that is not 0.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use bytesize::ByteSize;
use terrace_core::Figure;
use terrace_core::Nanos;
use terrace_core::Unit;
use terrace_policy::Distribution;

use crate::status::NodeStatus;
use crate::status::Status;

/// A figure's value, of whatever kind.
enum Value {
    Whole(Option<u64>),
    Share(Option<f64>),
    ByNode(BTreeMap<u16, u64>),
    Spans(Distribution),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(Some(value))
    }
}

impl From<Option<u64>> for Value {
    fn from(value: Option<u64>) -> Self {
        Self::Whole(value)
    }
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        Self::Share(value)
    }
}

impl From<BTreeMap<u16, u64>> for Value {
    fn from(value: BTreeMap<u16, u64>) -> Self {
        Self::ByNode(value)
    }
}

impl From<Distribution> for Value {
    fn from(value: Distribution) -> Self {
        Self::Spans(value)
    }
}

impl Value {
    /// As people write it; nothing where it is 0 or not known.
    fn shown(&self, unit: Unit) -> Option<String> {
        match self {
            Self::Whole(None | Some(0)) | Self::Share(None) => None,
            Self::Whole(Some(value)) => Some(whole(*value, unit)),
            Self::Share(Some(share)) => Some(format!("{:.6} %", share * 100.0)),
            Self::ByNode(nodes) => {
                let nodes = nodes.iter().filter(|(_, value)| **value > 0);
                let nodes =
                    nodes.map(|(node, value)| format!("node {node}: {}", whole(*value, unit)));
                let nodes: Vec<String> = nodes.collect();
                (!nodes.is_empty()).then(|| nodes.join(", "))
            }
            Self::Spans(spans) if spans.count == 0 => None,
            Self::Spans(spans) => {
                let quantiles = [("p50", spans.p50), ("p99", spans.p99), ("max", spans.max)];
                let quantiles = quantiles.map(|(name, ns)| format!("{name} {}", whole(ns, unit)));
                Some(quantiles.join(", "))
            }
        }
    }
}

fn whole(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Bytes => ByteSize(value).display().iec().to_string(),
        Unit::Nanoseconds => format!("{:.1?}", Duration::from_nanos(value)),
        Unit::Count => value.to_string(),
        other => format!("{value} {}", other.name()),
    }
}

/// How many took under 10 us, how many under 100 us, and so on.
fn decades(spans: &Distribution) -> String {
    let mut decades: BTreeMap<u64, u64> = BTreeMap::new();
    for bucket in &spans.buckets {
        let decade = (bucket.below_ns.max(2) - 1).ilog10() + 1;
        *decades.entry(10_u64.saturating_pow(decade)).or_default() += bucket.count;
    }
    let decades = decades.iter();
    let decades = decades.map(|(below, count)| format!("{count} under {}", Nanos(*below)));
    decades.collect::<Vec<_>>().join(", ")
}

impl NodeStatus {
    fn line(&self) -> String {
        let iec = |bytes| ByteSize(bytes).display().iec();
        let cache = match self.cache_bytes {
            0 => String::new(),
            bytes => format!(", {} of page cache to give back", iec(bytes)),
        };
        format!(
            "node {:<3} tier {}   {} free of {}{cache}",
            self.node,
            self.tier,
            iec(self.free_bytes),
            iec(self.total_bytes)
        )
    }
}

impl Status {
    /// For people, several lines.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut out = format!("terrace {}: {}\n", self.supervisor_pid, self.summary());
        for p in &self.processes {
            let how = if p.agent {
                "transactions"
            } else {
                "move_pages"
            };
            let _ = writeln!(out, "  process {:<8} {:<16} {how}", p.pid, p.name);
        }
        for node in &self.nodes {
            let _ = writeln!(out, "  {}", node.line());
        }
        for (figure, value) in self.stats.clone().values::<Value>() {
            if let Some(shown) = value.shown(figure.unit) {
                let _ = writeln!(out, "  {}", line(figure, &shown));
            }
            if let Value::Spans(spans) = value
                && spans.count > 0
            {
                let _ = writeln!(out, "  {:<24} {}", "", decades(&spans));
            }
        }
        let _ = writeln!(out, "  other figures are 0 or not known");
        for limit in &self.limits {
            let _ = writeln!(out, "  note: {limit}");
        }
        out
    }

    fn summary(&self) -> String {
        let paused = if self.paused { ", paused" } else { "" };
        let cpu = Nanos(self.stats.terrace_cpu_ns).as_secs_f64();
        // Starting takes some hundredths of a second, of which no share of a short run says anything.
        let share = match self.seconds {
            short if short < 1.0 => String::new(),
            seconds => format!(", itself {:.1} % of one processor", cpu / seconds * 100.0),
        };
        format!(
            "policy {}{paused}, {:.1} s{share}",
            self.policy, self.seconds
        )
    }
}

/// Name, value, and of the help the sentence that stands alone.
fn line(figure: &Figure, value: &str) -> String {
    let help = figure.help.split_inclusive(". ").next().unwrap_or_default();
    format!("{:<24} {value:>10}   {}", figure.name, help.trim_end())
}

#[cfg(test)]
mod tests {
    use terrace_policy::Engine;
    use terrace_policy::Event;
    use terrace_policy::Mechanism;
    use terrace_policy::Migration;
    use terrace_policy::Stats;
    use terrace_policy::Verdict;

    use super::*;

    fn status(stats: Stats) -> Status {
        Status {
            schema_version: crate::SCHEMA_VERSION,
            supervisor_pid: 7,
            policy: "none".to_owned(),
            paused: false,
            seconds: 0.1,
            processes: Vec::new(),
            nodes: Vec::new(),
            stats,
            policy_counters: BTreeMap::new(),
            trackers: Vec::new(),
            limits: Vec::new(),
        }
    }

    #[test]
    fn times_out_of_reach_are_a_histogram() {
        let tiers = terrace_core::Tiers::default();
        let policy = terrace_policy::by_name("none", &tiers).expect("known");
        let mut engine = Engine::new(policy);
        for us in [7, 30, 40, 2_000] {
            let page = terrace_core::PageRef {
                pid: terrace_core::Pid(1),
                addr: terrace_core::Addr(0),
                size: terrace_core::PageSize::Base4K,
            };
            let to = terrace_core::NodeId(1);
            let ended = Event::Ended {
                page,
                migration: Migration::Demote { to },
                from: None,
                verdict: Verdict::Moved { shadow: false },
                mechanism: Mechanism::Transaction,
                took: Nanos(us * 2000),
                inaccessible: Nanos(us * 1000),
            };
            engine.observe(Nanos::ZERO, &ended);
        }
        let text = status(engine.stats()).to_text();
        assert!(
            text.contains("1 under 10µs, 2 under 100µs, 1 under 10ms\n"),
            "{text}"
        );
        assert!(!text.contains("of one processor"), "of 0.1 s: {text}");
    }

    #[test]
    fn every_figure_has_its_line_where_it_is_not_0() {
        let text = status(Stats::default()).to_text();
        let none = |figure: &Figure| !text.contains(&format!("  {} ", figure.name));
        assert!(Stats::FIGURES.iter().all(none), "{text}");
        let mut all = serde_json::to_value(Stats::default()).expect("JSON");
        for figure in Stats::FIGURES {
            let value = &mut all[figure.name];
            if value.is_object() {
                // By node, or a distribution.
                let object = value.as_object_mut().expect("it is one");
                let key = if object.is_empty() { "0" } else { "count" };
                object.insert(key.to_owned(), 4096.into());
            } else {
                *value = 4096.into();
            }
        }
        let all = serde_json::from_value(all).expect("figures");
        let text = status(all).to_text();
        for figure in Stats::FIGURES {
            let line = text
                .lines()
                .find(|l| l.starts_with(&format!("  {} ", figure.name)));
            let line = line.unwrap_or_else(|| panic!("no {} in {text}", figure.name));
            assert!(line.ends_with('.'), "{line}");
            let bytes = figure.unit == Unit::Bytes;
            assert_eq!(
                line.contains("4 KiB") || line.contains("4.0 KiB"),
                bytes,
                "{line}"
            );
        }
    }
}
