// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--tiers FILE`: what the operator says of the machine's memory nodes (docs/tiers.md).

use serde::Deserialize;
use terrace_core::AccessPath;
use terrace_core::GivenWay;
use terrace_core::NodeId;
use terrace_core::WayKind;
use terrace_sys::topology::Override;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    tiers: Option<Vec<Vec<u16>>>,
    #[serde(default)]
    path: Vec<Path>,
    #[serde(default)]
    way: Vec<Ways>,
}

/// Named as `terrace tiers --json` names them.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Path {
    from_node: u16,
    node: u16,
    read_latency_ns: Option<u32>,
    read_bandwidth_mbps: Option<u32>,
    distance: Option<u32>,
}

impl Path {
    fn path(self) -> Result<AccessPath, String> {
        let said = [
            ("read_latency_ns", self.read_latency_ns),
            ("read_bandwidth_mbps", self.read_bandwidth_mbps),
            ("distance", self.distance),
        ];
        let place = format!("the path from node {} to {}", self.from_node, self.node);
        if let Some((name, _)) = said.iter().find(|(_, value)| *value == Some(0)) {
            return Err(format!("{place}: {name} is 0, expected more"));
        }
        if said.iter().all(|(_, value)| value.is_none()) {
            let names = said.map(|(name, _)| name).join(", ");
            return Err(format!("{place} says nothing; it takes {names}"));
        }
        Ok(AccessPath {
            from: NodeId(self.from_node),
            to: NodeId(self.node),
            read_latency_ns: self.read_latency_ns,
            read_bandwidth_mbps: self.read_bandwidth_mbps,
            distance: self.distance,
        })
    }
}

/// As `terrace tiers --json` has them under `ways`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ways {
    from_node: u16,
    node: u16,
    promotion: Option<Vec<u16>>,
    migration: Option<Vec<u16>>,
    demotion: Option<Vec<u16>>,
}

impl Ways {
    fn given(self) -> Result<Vec<GivenWay>, String> {
        let (from, node) = (NodeId(self.from_node), NodeId(self.node));
        let said = [
            (WayKind::Promotion, self.promotion),
            (WayKind::Migration, self.migration),
            (WayKind::Demotion, self.demotion),
        ];
        let ways = said.into_iter().filter_map(|(kind, to)| {
            let to = to?.into_iter().map(NodeId).collect();
            Some(GivenWay {
                from,
                node,
                kind,
                to,
            })
        });
        let ways: Vec<GivenWay> = ways.collect();
        if ways.is_empty() {
            return Err(format!(
                "the ways from node {node} as seen from {from} say nothing; they take promotion, migration, demotion"
            ));
        }
        Ok(ways)
    }
}

/// Reads the file; the error is a line for the user.
pub(super) fn nodes(path: &str) -> Result<Override, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("Cannot read it: {e}"))?;
    let file: File = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        format!("line {line}: {}", error.message())
    })?;
    let tiers = file.tiers.map(|tiers| {
        let tiers = tiers.into_iter();
        tiers
            .map(|nodes| nodes.into_iter().map(NodeId).collect())
            .collect()
    });
    let paths = file.path.into_iter().map(Path::path);
    let ways: Vec<_> = file
        .way
        .into_iter()
        .map(Ways::given)
        .collect::<Result<_, _>>()?;
    Ok(Override {
        tiers,
        paths: paths.collect::<Result<_, _>>()?,
        ways: ways.into_iter().flatten().collect(),
    })
}
