// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace policies`: which there are, what each needs, what can be set.

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use terrace_policy::Evidence;
use terrace_policy::PRESETS;
use terrace_policy::PolicyError;
use terrace_policy::Preset;
use terrace_policy::preset::Listed;

use crate::args::PoliciesArgs;
use crate::out::say;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    title: &'static str,
    paper: Option<&'static str>,
    evidence: &'static str,
    agent: bool,
    priorities: bool,
    parameters: Vec<Listed>,
}

pub(crate) fn policies(args: &PoliciesArgs) -> anyhow::Result<u8> {
    let shown: Vec<&Preset> = match &args.name {
        None => PRESETS.to_vec(),
        Some(name) => {
            vec![Preset::of(name).ok_or_else(|| PolicyError::Unknown(name.clone()))?]
        }
    };
    let rows: Vec<Row> = shown.into_iter().map(row).collect();
    if args.json.json {
        say!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(0);
    }
    if let (Some(_), [one]) = (&args.name, rows.as_slice()) {
        say!("{}: {}", one.name, one.title);
        say!("{}", parameters(one));
        return Ok(0);
    }
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(["policy", "decides by", "moves pages by", "what it is"]);
    for row in &rows {
        let mover = match row.agent {
            _ if row.evidence == "nothing" => "-",
            true => "the agent",
            false => "move_pages",
        };
        let title = match row.paper {
            Some(paper) => format!("{} ({paper})", row.title),
            None => row.title.to_owned(),
        };
        table.add_row([row.name, row.evidence, mover, &title]);
    }
    say!("{table}");
    say!("Parameters: terrace policies NAME");
    Ok(0)
}

fn row(preset: &Preset) -> Row {
    Row {
        name: preset.name,
        title: preset.title,
        paper: preset.paper,
        evidence: match preset.evidence {
            Evidence::Nothing => "nothing",
            Evidence::HintFaults => "hint faults",
            Evidence::Samples => "samples",
            Evidence::AccessedBits => "accessed bits",
        },
        agent: preset.agent,
        priorities: preset.priorities,
        parameters: preset.parameters(),
    }
}

fn parameters(row: &Row) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header(["parameter", "default", "may be", ""]);
    for Listed { parameter, help } in &row.parameters {
        table.add_row([
            parameter.name,
            parameter.default.as_str(),
            parameter.range.as_str(),
            help,
        ]);
    }
    table
}
