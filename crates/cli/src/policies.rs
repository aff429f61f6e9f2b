// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace policies`: which there are, what each needs, what can be set.

use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;
use terrace_policy::Capabilities;
use terrace_policy::PRESETS;
use terrace_policy::Preset;
use terrace_policy::preset::Listed;

use crate::Usage;
use crate::args::PoliciesArgs;
use crate::out::say;

#[derive(Serialize)]
struct Row {
    name: &'static str,
    title: &'static str,
    paper: Option<&'static str>,
    needs: Capabilities,
    uses: Capabilities,
    uses_on_sockets: Capabilities,
    simulated_only: bool,
    priorities: bool,
    limits: bool,
    parameters: Vec<Listed>,
}

pub(crate) fn policies(args: &PoliciesArgs) -> anyhow::Result<u8> {
    let shown: Vec<&Preset> = match &args.name {
        None => PRESETS.to_vec(),
        Some(name) => {
            let unknown = || {
                let names = Preset::names();
                Usage(format!("Unknown policy '{name}'; there are: {names}"))
            };
            vec![Preset::of(name).ok_or_else(unknown)?]
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
    table.set_header(["policy", "needs", "uses", "what it is"]);
    for row in &rows {
        let title = match row.paper {
            Some(paper) => format!("{} ({paper})", row.title),
            None => row.title.to_owned(),
        };
        let (needs, mut uses) = (row.needs.to_string(), row.uses.to_string());
        if !row.uses_on_sockets.is_empty() {
            uses = format!("{uses}; on several sockets {}", row.uses_on_sockets);
        }
        table.add_row([row.name, &needs, &uses, &title]);
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
        needs: preset.needs,
        uses: preset.uses,
        uses_on_sockets: preset.on_sockets,
        simulated_only: !preset.in_user_space(),
        priorities: preset.priorities,
        limits: preset.limits,
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
