// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace sim`: one run of the simulator, and beside it the oracle's for comparison.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Context;
use bytesize::ByteSize;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use terrace_core::PageSize;
use terrace_experiment::RunInfo;
use terrace_machine_spec::Machine;
use terrace_policy::Mover;
use terrace_policy::Share;
use terrace_policy::TrackerKind;
use terrace_sim::Costs;
use terrace_sim::EngineKind;
use terrace_sim::ORACLE;
use terrace_sim::Outcome;
use terrace_sim::Setup;
use terrace_workload::Sizes;
use terrace_workload::Workload;

use crate::Usage;
use crate::args::SimArgs;
use crate::out::say;

pub(crate) fn sim(args: &SimArgs) -> anyhow::Result<u8> {
    let setup = setup(args)?;
    let usage = |error: terrace_sim::SimError| Usage(error.to_string());
    let mut outcome = terrace_sim::run(&setup, &mut |_| {}).map_err(usage)?;
    if !args.no_oracle && setup.system != ORACLE.name {
        let oracle = Setup {
            system: ORACLE.name.to_owned(),
            costs: costs(args, ORACLE.name, Mover::Auto)?,
            params: toml::Table::new(),
            shares: BTreeMap::new(),
            trackers: vec![TrackerKind::Auto],
            mover: Mover::Auto,
            ..setup.clone()
        };
        // A machine with one tier has no better placement.
        outcome.oracle_ops_per_s = terrace_sim::run(&oracle, &mut |_| {})
            .ok()
            .and_then(|outcome| outcome.metric("ops_per_s"));
    }
    let text = if args.json.json {
        let made_with = RunInfo::of_simulation(&setup, &args.machine);
        json(&outcome, &made_with)?
    } else {
        human(&setup, &outcome)
    };
    say!("{text}");
    Ok(0)
}

/// What was typed as a set-up; every mistake is the user's.
pub(crate) fn setup(args: &SimArgs) -> anyhow::Result<Setup> {
    let usage = |text: String| anyhow::Error::from(Usage(text));
    let machine = Machine::load(&args.machine).map_err(|e| usage(e.to_string()))?;
    let mut free = BTreeMap::new();
    if let Some(bytes) = args.fast_free {
        let node = machine.ranking(0)[0];
        if bytes > machine.nodes[node].bytes {
            // Before a workload is made in proportion to it.
            let error = terrace_sim::SimError::Free {
                machine: machine.name.clone(),
                node,
                bytes: machine.nodes[node].bytes,
                free: bytes,
            };
            return Err(usage(error.to_string()));
        }
        free.insert(node, bytes);
        if args.play.spread {
            // Every socket has its part.
            let sockets = 0..machine.sockets.len();
            let part = bytes / machine.sockets.len() as u64;
            free.extend(sockets.map(|socket| (machine.ranking(socket)[0], part)));
        }
    }
    let mut sizes = match (args.play.paper_sizes, args.fast_free) {
        (false, Some(bytes)) => Sizes::fast_free(bytes),
        _ => Sizes::paper(),
    };
    for setting in &args.common.size {
        sizes = sizes.with(setting).map_err(|e| usage(e.to_string()))?;
    }
    let workload =
        Workload::named(&args.workload, &sizes).map_err(|error| usage(error.to_string()))?;
    let costs = costs(args, &args.policy, args.mover)?;
    let mut params = toml::Table::new();
    for param in &args.param {
        let (name, value) = param
            .split_once('=')
            .ok_or_else(|| usage(format!("'{param}' is not a parameter; write name=value")))?;
        params.insert(name.trim().replace('-', "_"), value_of(value.trim()));
    }
    let setup = Setup {
        lab: args.play.lab,
        costs,
        system: args.policy.clone(),
        params,
        shares: shares(args).map_err(usage)?,
        trackers: args.tracker.clone(),
        mover: args.mover,
        seconds: args.common.seconds,
        seed: args.common.seed,
        engine: if args.play.engine == "exact" {
            EngineKind::Exact
        } else {
            EngineKind::Rate
        },
        page_size: page_size(&args.page_size),
        free,
        cache: !args.play.no_cache,
        ..Setup::new(machine, workload)
    };
    Ok(setup.with_spread(args.play.spread))
}

/// What programs have beside others; whether there are such programs shows when they are simulated.
fn shares(args: &SimArgs) -> Result<BTreeMap<String, Share>, String> {
    let mut shares: BTreeMap<String, Share> = BTreeMap::new();
    let size = |text: &str| terrace_core::parse_bytes(text).ok();
    for (name, priority) in of_programs(&args.priority, "priority", "gups=1", |text| {
        text.parse().ok()
    })? {
        shares.entry(name).or_default().priority = priority;
    }
    for (name, bytes) in of_programs(&args.floor, "floor", "gups=64MiB", size)? {
        shares.entry(name).or_default().floor_bytes = bytes;
    }
    for (name, bytes) in of_programs(&args.ceiling, "ceiling", "gups=64MiB", size)? {
        shares.entry(name).or_default().ceiling_bytes = Some(bytes);
    }
    Ok(shares)
}

/// `PROGRAM=VALUE`, each.
fn of_programs<T>(
    given: &[String],
    what: &str,
    example: &str,
    value: impl Fn(&str) -> Option<T>,
) -> Result<Vec<(String, T)>, String> {
    let one = |text: &String| {
        let (name, number) = text.rsplit_once('=')?;
        Some((name.trim().to_owned(), value(number.trim())?))
    };
    let wrong = |text: &String| format!("'{text}' is no {what}; write PROGRAM=N, e.g. {example}");
    given
        .iter()
        .map(|text| one(text).ok_or_else(|| wrong(text)))
        .collect()
}

fn page_size(text: &str) -> PageSize {
    match text {
        "2m" => PageSize::Huge2M,
        "1g" => PageSize::Giant1G,
        _ => PageSize::Base4K,
    }
}

/// Numbers and truth values as such, all else as text (`1s`, `32MiB`).
fn value_of(text: &str) -> toml::Value {
    let number = text.parse().map(toml::Value::Integer);
    let truth = text.parse().map(toml::Value::Boolean);
    number
        .or(truth)
        .unwrap_or_else(|_| toml::Value::String(text.to_owned()))
}

/// Of what was asked for, else of that system as it is.
fn costs(args: &SimArgs, system: &str, mover: Mover) -> anyhow::Result<Costs> {
    let own = || Costs::as_it_is(system, mover);
    let path = match &args.common.costs {
        None if args.play.lab => return Ok(Costs::lab()),
        None => return Ok(own()),
        Some(path) => path,
    };
    if let Some(named) = path.to_str().and_then(Costs::named) {
        return Ok(named);
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        let names = Costs::NAMES.join(", ");
        Usage(format!(
            "Cannot read {}: {error}; give a file, or one of: {names}",
            path.display()
        ))
    })?;
    let costs = if path.extension().is_some_and(|e| e == "json") {
        own().with_json(&text)
    } else {
        own().with_toml(&text)
    };
    costs.map_err(|error| Usage(format!("{}: {error}", path.display())).into())
}

fn json(outcome: &Outcome, made_with: &RunInfo) -> anyhow::Result<String> {
    let metrics: BTreeMap<&str, Option<f64>> = Outcome::METRICS
        .iter()
        .map(|(name, _)| (*name, outcome.metric(name)))
        .collect();
    let mut value = serde_json::to_value(outcome).context("Cannot print the outcome")?;
    value["metrics"] = serde_json::to_value(metrics).context("Cannot print the metrics")?;
    value["run"] = serde_json::to_value(made_with).context("Cannot print the set-up")?;
    value["model_errors"] = outcome.model_errors().into();
    Ok(serde_json::to_string_pretty(&value)?)
}

fn human(setup: &Setup, outcome: &Outcome) -> String {
    let mut text = String::new();
    let engine = match outcome.engine {
        EngineKind::Exact => "every visit played",
        EngineKind::Rate => "by rates",
    };
    let _ = writeln!(
        text,
        "{} on {}, {}, {} resident, {} s, seed {}, {engine}\n",
        outcome.system,
        outcome.machine,
        outcome.workload,
        ByteSize(setup.workload.bytes()),
        outcome.seconds,
        outcome.seed,
    );
    let series: Vec<f64> = outcome.series.iter().map(|p| p.ops_per_s).collect();
    let fast: Vec<f64> = outcome.series.iter().map(|p| p.fast_access_ratio).collect();
    let _ = writeln!(text, "throughput  {}", spark(&series));
    let _ = writeln!(text, "fast share  {}\n", spark(&fast));
    let _ = writeln!(text, "{}\n", figures(outcome));
    let _ = write!(text, "{}", by_node(setup, outcome));
    if outcome.programs.len() > 1 {
        let _ = write!(text, "\n\n{}", by_program(setup, outcome));
    }
    for error in outcome.model_errors() {
        let _ = write!(text, "\n\nError of the model: {error}");
    }
    text
}

/// What the run came to, a line each.
fn figures(outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    let metric = |name: &str| outcome.metric(name);
    let percent = |name: &str| metric(name).map(|x| format!("{:.2} %", x * 100.0));
    let number = |name: &str| metric(name).map(grouped);
    let rows = [
        ("visits/s at the end", number("ops_per_s")),
        ("visits/s on average", number("mean_ops_per_s")),
        ("of the oracle's", percent("of_oracle")),
        (
            "90 % of the end reached after",
            metric("seconds_to_90pct").map(|s| format!("{s:.0} s")),
        ),
        ("fast accesses at the end", percent("fast_access_ratio")),
        (
            "promoted, demoted pages",
            pair(outcome, "promoted_pages", "demoted_pages"),
        ),
        (
            "transactions committed, aborted",
            pair(outcome, "tpm_committed", "tpm_aborted"),
        ),
        ("demotions onto a shadow", number("shadow_hits")),
        ("hint faults", number("hint_faults")),
        ("profiling, of thread time", percent("profiling_share")),
        ("migration, of thread time", percent("migration_share")),
        ("waiting for migration", percent("stall_share")),
        (
            "writes that waited for a copy",
            metric("writes_waited_share").map(|x| format!("{:.6} %", x * 100.0)),
        ),
        (
            "page inaccessible, p99",
            metric("inaccessible_p99_ns").map(|ns| format!("{} ns", grouped(ns))),
        ),
        ("shadows at most", metric("shadow_bytes_max").map(bytes)),
        (
            "policy metadata at most",
            Some(ByteSize(outcome.metadata_bytes).to_string()),
        ),
        ("allocations failed", number("allocations_failed")),
    ];
    for (name, value) in rows {
        table.add_row([name.to_owned(), value.unwrap_or_else(|| "-".to_owned())]);
    }
    table
}

/// What each node served.
fn by_node(setup: &Setup, outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    table.set_header([
        "node",
        "tier",
        "kind",
        "reads",
        "writes",
        "share",
        "written back",
        "migrated here",
    ]);
    let all: u64 = outcome.nodes.iter().map(|n| n.reads + n.writes).sum();
    for node in &outcome.nodes {
        #[expect(clippy::cast_precision_loss, reason = "a printed figure")]
        let share = (node.reads + node.writes) as f64 / all.max(1) as f64;
        table.add_row([
            node.node.to_string(),
            node.tier.to_string(),
            setup.machine.nodes[node.node].kind.to_string(),
            node.reads.to_string(),
            node.writes.to_string(),
            format!("{:.2} %", share * 100.0),
            ByteSize(node.written_bytes).to_string(),
            ByteSize(node.migration_written_bytes).to_string(),
        ]);
    }
    table
}

/// What each program came to, over the whole run.
fn by_program(setup: &Setup, outcome: &Outcome) -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING);
    let header = [
        "program",
        "priority",
        "floor",
        "ceiling",
        "visits/s",
        "fast accesses",
        "fast at the end",
    ];
    table.set_header(header);
    for program in &outcome.programs {
        let share = setup.shares.get(&program.name).copied().unwrap_or_default();
        let bytes = |bytes: u64| ByteSize(bytes).to_string();
        let floor = Some(share.floor_bytes).filter(|floor| *floor > 0);
        table.add_row([
            program.name.clone(),
            share.priority.to_string(),
            floor.map_or_else(String::new, bytes),
            share.ceiling_bytes.map_or_else(String::new, bytes),
            grouped(program.ops_per_s),
            format!("{:.2} %", program.fast_access_ratio * 100.0),
            format!("{} of {}", bytes(program.fast_bytes), bytes(program.bytes)),
        ]);
    }
    table
}

fn pair(outcome: &Outcome, first: &str, second: &str) -> Option<String> {
    let (first, second) = (outcome.metric(first)?, outcome.metric(second)?);
    Some(format!("{}, {}", grouped(first), grouped(second)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size, not negative"
)]
fn bytes(bytes: f64) -> String {
    ByteSize(bytes as u64).to_string()
}

/// With a comma after every three digits.
fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A line of at most 60 blocks, from 0 to the greatest value.
fn spark(values: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = values.iter().copied().fold(0.0, f64::max);
    let width = values.len().min(60);
    (0..width)
        .map(|column| {
            let part = &values[values.len() * column / width..values.len() * (column + 1) / width];
            #[expect(clippy::cast_precision_loss, reason = "a few points")]
            let mean = part.iter().sum::<f64>() / part.len().max(1) as f64;
            let share = if most > 0.0 { mean / most } else { 0.0 };
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 7"
            )]
            BLOCKS[((share * 7.99) as usize).min(7)]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped_and_blocks_follow_the_values() {
        assert_eq!(grouped(1_234_567.4), "1,234,567");
        assert_eq!(grouped(12.0), "12");
        assert_eq!(spark(&[0.0, 1.0]), "▁█");
        assert_eq!(spark(&[]), "");
        assert_eq!(spark(&[1.0; 600]).chars().count(), 60);
    }
}
