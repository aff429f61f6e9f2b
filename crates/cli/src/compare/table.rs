// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the terminal's table and the page's have in common: columns, cells, names of runs.

use bytesize::ByteSize;
use comfy_table::CellAlignment;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use terrace_chart::thousands;
use terrace_policy::UNMANAGED;
use terrace_sim::ORACLE;

use super::record::Record;
use super::record::Spec;

/// The columns behind the policy's.
pub(crate) const COLUMNS: [&str; 10] = [
    "visits/s",
    "× none",
    "of oracle",
    "fast accesses",
    "90 % after",
    "promoted",
    "demoted",
    "profiling",
    "migration",
    "stalled",
];

/// Throughput as a multiple of another policy's on the same machine and workload.
pub(crate) fn of(record: &Record, records: &[Record], policy: &str) -> Option<f64> {
    let same =
        |other: &&Record| other.spec.policy == policy && other.spec.group() == record.spec.group();
    let other = records.iter().find(same)?.metric("ops_per_s")?;
    (other > 0.0).then_some(record.metric("ops_per_s")? / other)
}

/// The cells of a run, as [`COLUMNS`].
pub(crate) fn cells(record: &Record, records: &[Record]) -> [String; 10] {
    let dash = || "–".to_owned();
    let percent =
        |value: Option<f64>| value.map_or_else(dash, |value| format!("{:.1} %", value * 100.0));
    let metric = |name: &str| record.metric(name);
    let count = |name: &str| metric(name).map_or_else(dash, thousands);
    [
        rate(record),
        of(record, records, UNMANAGED.name).map_or_else(dash, |times| format!("{times:.2}")),
        percent(of(record, records, ORACLE.name)),
        percent(metric("fast_access_ratio")),
        metric("seconds_to_90pct").map_or_else(dash, |seconds| format!("{seconds:.0} s")),
        count("promoted_pages"),
        count("demoted_pages"),
        percent(metric("profiling_share")),
        percent(metric("migration_share")),
        percent(metric("stall_share")),
    ]
}

pub(crate) fn rate(record: &Record) -> String {
    record
        .metric("ops_per_s")
        .map_or_else(|| "–".to_owned(), thousands)
}

/// What a group of runs is on: workload, machine, and what differs from run to run of the matrix.
pub(crate) fn group(spec: &Spec) -> String {
    let mut text = format!("{} on {}", spec.workload, spec.machine);
    if let Some(bytes) = spec.fast_free {
        text.push_str(&format!(", {} fast", ByteSize(bytes)));
    }
    if spec.page_size != "4k" {
        text.push_str(&format!(", {} pages", spec.page_size));
    }
    text
}

/// One run in a line.
pub(crate) fn label(spec: &Spec) -> String {
    format!("{}, {}", group(spec), spec.policy)
}

/// What cannot be in a group's runs, and so is an error of the model; nothing usually.
pub(crate) fn model_errors(runs: &[Record]) -> Vec<String> {
    let above = |run: &Record| {
        let share = of(run, runs, ORACLE.name)?;
        terrace_sim::outcome::above_oracle(&run.spec.policy, share)
    };
    runs.iter().filter_map(above).collect()
}

/// All runs for the terminal, a table a group.
pub(crate) fn text(records: &[Record]) -> String {
    let mut out = String::new();
    for runs in records.chunk_by(|a, b| a.spec.group() == b.spec.group()) {
        let mut table = Table::new();
        table.load_preset(NOTHING);
        table.set_header(["policy"].into_iter().chain(COLUMNS));
        for run in runs {
            let cells = cells(run, records);
            table.add_row([run.spec.policy.clone()].into_iter().chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        out.push_str(&format!("{}\n{table}\n", group(&runs[0].spec)));
        for error in model_errors(runs) {
            out.push_str(&format!("Error of the model: {error}\n"));
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(policy: &str, rate: f64) -> Record {
        Record {
            spec: Spec {
                machine: "m".to_owned(),
                workload: "gups".to_owned(),
                fast_free: None,
                page_size: "4k".to_owned(),
                policy: policy.to_owned(),
                seconds: 1.0,
                seed: 1,
            },
            metrics: [("ops_per_s".to_owned(), rate)].into(),
            series: Vec::new(),
        }
    }

    #[test]
    fn who_is_above_the_oracle_is_an_error_of_the_model() {
        let of = |rate: f64| text(&[record("nomad", rate), record("oracle", 100.0)]);
        assert!(!of(102.0).contains("Error of the model"), "{}", of(102.0));
        let above = "Error of the model: nomad comes to 110.0 % of the oracle's speed";
        assert!(of(110.0).contains(above), "{}", of(110.0));
    }
}
