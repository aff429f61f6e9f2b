// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace tiers`: the memory nodes and the tiers they form.

use std::path::Path;

use bytesize::ByteSize;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::View;
use terrace_sys::topology::TierSource;
use terrace_sys::topology::Topology;
use terrace_sys::topology::memory::MemoryReader;

use crate::args::TiersArgs;
use crate::out::say;

#[derive(Serialize)]
struct Row {
    tier: u16,
    node: u16,
    cpus: Vec<u32>,
    total_bytes: u64,
    free_bytes: u64,
    read_latency_ns: Option<u32>,
    write_latency_ns: Option<u32>,
    read_bandwidth_mbps: Option<u32>,
    distances: Vec<Distance>,
}

#[derive(Serialize)]
struct Distance {
    from_node: u16,
    distance: u32,
}

/// Where a page may go from a node, the best first, for processors of another.
#[derive(Serialize)]
struct Ways {
    node: u16,
    promotion: Vec<u16>,
    migration: Vec<u16>,
    demotion: Vec<u16>,
}

/// Memory as the processors of a node see it.
#[derive(Serialize)]
struct Seen {
    from_node: u16,
    /// The best first.
    order: Vec<u16>,
    ways: Vec<Ways>,
}

#[derive(Serialize)]
struct Report {
    tiers: usize,
    source: &'static str,
    kernel_tiers: Option<usize>,
    nodes: Vec<Row>,
    views: Vec<Seen>,
}

pub(crate) fn tiers(args: &TiersArgs) -> anyhow::Result<u8> {
    let root = Path::new("/");
    let topology = Topology::discover(root, &args.tiers.clone().unwrap_or_default())?;
    let memory = MemoryReader::open(root)?;
    let row = |node: &NodeInfo| Row {
        tier: node.tier.0,
        node: node.id.0,
        cpus: node.cpus.clone(),
        total_bytes: node.capacity_bytes,
        free_bytes: memory.read(node.id).map_or(0, |m| m.free_bytes),
        read_latency_ns: node.read_latency_ns,
        write_latency_ns: node.write_latency_ns,
        read_bandwidth_mbps: node.read_bandwidth_mbps,
        distances: topology
            .cpu_nodes
            .iter()
            .map(|from| Distance {
                from_node: from.0,
                distance: topology.distance(*from, node.id),
            })
            .collect(),
    };
    let report = Report {
        tiers: topology.tiers.count(),
        source: source(topology.source),
        kernel_tiers: topology.kernel_tiers,
        nodes: topology.tiers.nodes().iter().map(row).collect(),
        views: topology.views().all().iter().map(seen).collect(),
    };
    if args.json.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(0)
}

fn seen(view: &View) -> Seen {
    let order: Vec<u16> = view.nodes().iter().map(|seen| seen.node.0).collect();
    let ways = |node: &u16| Ways {
        node: *node,
        promotion: numbers(view.promotion(NodeId(*node))),
        migration: numbers(view.migration(NodeId(*node))),
        demotion: numbers(view.demotion(NodeId(*node))),
    };
    Seen {
        from_node: view.from.0,
        ways: order.iter().map(ways).collect(),
        order,
    }
}

fn numbers(nodes: impl Iterator<Item = NodeId>) -> Vec<u16> {
    nodes.map(|node| node.0).collect()
}

fn joined(nodes: &[u16]) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    names.join(", ")
}

const fn source(source: TierSource) -> &'static str {
    match source {
        TierSource::Override => "the operator's configuration",
        TierSource::Kernel => "the kernel's memory tiers",
        TierSource::Latency => "latencies; the kernel has one tier",
        TierSource::Distance => "distances; the kernel has one tier and no latencies",
        TierSource::OneTier => "nothing tells the nodes apart",
    }
}

fn print(report: &Report) {
    match report.tiers {
        1 => say!("1 tier: {}", report.source),
        tiers => say!("{tiers} tiers, by {}", report.source),
    }
    let mut table = Table::new();
    table.load_preset(NOTHING).set_header([
        "tier",
        "node",
        "cpus",
        "memory",
        "free",
        "read",
        "write",
        "bandwidth",
        "distance",
    ]);
    for node in &report.nodes {
        let ns = |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |ns| format!("{ns} ns"));
        let distances: Vec<String> = node
            .distances
            .iter()
            .map(|d| format!("{} from {}", d.distance, d.from_node))
            .collect();
        table.add_row([
            node.tier.to_string(),
            node.node.to_string(),
            cpu_list(&node.cpus),
            ByteSize(node.total_bytes).display().iec().to_string(),
            ByteSize(node.free_bytes).display().iec().to_string(),
            ns(node.read_latency_ns),
            ns(node.write_latency_ns),
            node.read_bandwidth_mbps
                .map_or_else(|| "-".to_owned(), |mb| format!("{mb} MB/s")),
            distances.join(", "),
        ]);
    }
    for line in table.lines() {
        say!("{}", line.trim_end());
    }
    // With one node of processors it is the order above.
    let several = report.views.len() > 1;
    for view in report.views.iter().filter(|_| several) {
        say!("seen from node {}: {}", view.from_node, joined(&view.order));
        for ways in &view.ways {
            let kinds = [
                ("promotion", &ways.promotion),
                ("migration", &ways.migration),
                ("demotion", &ways.demotion),
            ];
            let some = kinds.iter().filter(|(_, to)| !to.is_empty());
            let some: Vec<String> = some
                .map(|(kind, to)| format!("{kind} to {}", joined(to)))
                .collect();
            if !some.is_empty() {
                say!("  from node {}: {}", ways.node, some.join("; "));
            }
        }
    }
}

/// As the kernel writes lists: `0-3,8`.
fn cpu_list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    if runs.is_empty() {
        return "-".to_owned();
    }
    let text: Vec<String> = runs
        .iter()
        .map(|(a, b)| {
            if a == b {
                a.to_string()
            } else {
                format!("{a}-{b}")
            }
        })
        .collect();
    text.join(",")
}

#[cfg(test)]
mod tests {
    use super::cpu_list;

    #[test]
    fn lists_as_the_kernel_writes_them() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[5]), "5");
        assert_eq!(cpu_list(&[]), "-");
    }
}
