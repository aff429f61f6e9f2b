// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table that a newcomer reads.

use comfy_table::Cell;
use comfy_table::CellAlignment;
use comfy_table::Table;
use comfy_table::presets;
use terrace_chart::thousands;

use super::record::RunRecord;
use super::record::System;
use super::verdict;
use super::verdict::Ratios;

const HEADER: [&str; 13] = [
    "workload",
    "system",
    "ops/s",
    "all runs",
    "x none",
    "fast accesses",
    "90 % of oracle after",
    "after a move",
    "promoted",
    "demoted (onto shadow)",
    "TPM ok / aborted",
    "written to slow, by copies",
    "memory",
];

/// All runs, one line each.
#[must_use]
pub fn render(records: &[RunRecord]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(HEADER);
    for record in records {
        table.add_row(cells(record, records));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.to_string();
    for note in notes(records).into_iter().chain(model_errors(records)) {
        text += &format!("\n{note}");
    }
    for record in records {
        if let Some(why) = &record.failed {
            let system = record.system.name();
            text += &format!("\n{} under {system} failed: {why}", record.workload);
        }
        if let Some(why) = &record.skipped {
            let system = record.system.name();
            text += &format!("\n{} under {system} skipped: {why}", record.workload);
        }
    }
    text
}

/// What a reader of the table has to know: who is ahead, and what the host did.
#[must_use]
pub fn notes(records: &[RunRecord]) -> Vec<String> {
    let mut workloads: Vec<&str> = records.iter().map(|r| r.workload.as_str()).collect();
    workloads.dedup();
    let verdicts = workloads
        .into_iter()
        .map(|workload| verdict::sentences(workload, records).join(" "))
        .filter(|told| !told.is_empty());
    let rates = records.iter().filter_map(rates_tried);
    verdicts.chain(rates).chain(paces(records)).collect()
}

/// What the runs show to be wrong with the model, a line each.
#[must_use]
pub fn model_errors(records: &[RunRecord]) -> Vec<String> {
    let each = |run: &RunRecord| -> Vec<String> {
        let line = |error| format!("Error of the model: {}: {error}", run.workload);
        run.model_errors.iter().map(line).collect()
    };
    records.iter().flat_map(each).collect()
}

/// Which rate a record is of, and what the others came to.
fn rates_tried(record: &RunRecord) -> Option<String> {
    let taken = record.tried.iter().find(|tried| tried.taken)?.sample_ms;
    let tried = record.tried.iter().map(|tried| {
        let rate = tried
            .ops_per_s
            .map_or_else(|| "failed".to_owned(), |rate| thousands(rate.round()));
        format!("{} {rate}", tried.sample_ms)
    });
    let tried: Vec<String> = tried.collect();
    let (workload, system) = (&record.workload, record.system.name());
    Some(format!(
        "{workload}: {system} samples every {taken}, the fastest of the first round ({} ops/s).",
        tried.join(", ")
    ))
}

/// How different the host's pace was; `None` where it is not known.
fn paces(records: &[RunRecord]) -> Option<String> {
    let again = |run: &RunRecord| -> Vec<f64> {
        let repeats = run.repeats.iter().filter_map(|repeat| repeat.host_pace);
        repeats.chain(run.host_pace).collect()
    };
    let paces: Vec<f64> = records.iter().flat_map(again).collect();
    let (least, most) = (
        paces.iter().copied().reduce(f64::min)?,
        paces.iter().copied().reduce(f64::max)?,
    );
    Some(format!(
        "This host's processors are shared, and were up to {:.0} % slower in one run than in another.",
        (1.0 - least / most) * 100.0
    ))
}

/// The rates of all runs of a pair, where there were several.
pub(super) fn runs(record: &RunRecord) -> String {
    let rates = record.rates();
    if rates.len() < 2 {
        return "–".to_owned();
    }
    let rates: Vec<String> = rates.iter().map(|rate| thousands(rate.round())).collect();
    rates.join("; ")
}

/// A run's rate as a multiple of the same workload's without migration, and the interval of its rounds.
#[must_use]
pub fn times_none(record: &RunRecord, records: &[RunRecord]) -> Option<String> {
    let none = records
        .iter()
        .find(|other| other.system == System::None && other.workload == record.workload)?;
    Some(Ratios::of(record, none)?.text(""))
}

fn cells(record: &RunRecord, records: &[RunRecord]) -> Vec<Cell> {
    let dash = || "–".to_owned();
    let moves = &record.moves;
    let (transactions, shadows) = if record
        .system
        .preset()
        .is_some_and(|preset| preset.is_in_process())
    {
        (
            format!("{} / {}", moves.tpm_committed, moves.tpm_aborted),
            format!(" ({})", moves.shadow_hits),
        )
    } else {
        (dash(), String::new())
    };
    [
        record.workload.clone(),
        record.system.name().to_owned(),
        record
            .ops_per_s
            .map_or_else(dash, |rate| thousands(rate.round())),
        runs(record),
        times_none(record, records).unwrap_or_else(dash),
        record
            .fast_access_ratio
            .map_or_else(dash, |ratio| format!("{:.1} %", ratio * 100.0)),
        record
            .seconds_to_90pct_of_oracle
            .map_or_else(dash, |seconds| format!("{seconds:.0} s")),
        after_move(record),
        moves.promoted_pages.to_string(),
        format!("{}{shadows}", moves.demoted_pages),
        transactions,
        written(record),
        match (&record.failed, &record.skipped) {
            (Some(_), _) => "FAILED",
            (None, Some(_)) => "skipped",
            (None, None) => "good",
        }
        .to_owned(),
    ]
    .into_iter()
    .map(Cell::new)
    .collect()
}

/// How long the earlier rate took to come back after the hot set moved.
pub(super) fn after_move(record: &RunRecord) -> String {
    match (record.moved_at, record.seconds_to_90pct_after_move) {
        (None, _) => "–".to_owned(),
        (Some(_), Some(seconds)) => format!("{seconds:.0} s"),
        (Some(_), None) => "not".to_owned(),
    }
}

/// MiB written to the memory of all nodes but the first, which is the fast one in all machine files
/// with a lab, and the part of it that was copies.
pub(super) fn written(record: &RunRecord) -> String {
    let slow = record.written.iter().skip(1);
    let (all, copies) = slow.fold((0, 0), |(all, copies), node| {
        let sum = node.program_bytes + node.copy_bytes + node.clear_bytes;
        (all + sum, copies + node.copy_bytes)
    });
    if record.written.is_empty() {
        return "–".to_owned();
    }
    format!("{} MiB, {} MiB", all >> 20, copies >> 20)
}

#[cfg(test)]
mod tests {
    use super::super::damon::Mode;
    use super::super::damon::Rate;
    use super::super::damon::Tried;
    use super::super::record::Repeat;
    use super::*;

    #[test]
    fn paces_of_all_runs_are_told() {
        let mut record = RunRecord::failed("gups", System::None, String::new());
        assert!(notes(&[record.clone()]).is_empty());
        record.host_pace = Some(80.0);
        record.repeats = vec![Repeat {
            host_pace: Some(100.0),
            ..Repeat::of(&record)
        }];
        let told = notes(&[record]);
        assert!(told[0].contains("up to 20 % slower"), "{told:?}");
    }

    #[test]
    fn errors_of_the_model_are_under_the_table() {
        let mut record = RunRecord::failed("gups", System::Kernel, String::new());
        record.failed = None;
        assert!(!render(&[record.clone()]).contains("Error"));
        record.model_errors = vec!["kernel is too fast".to_owned()];
        let text = render(&[record]);
        assert!(
            text.ends_with("\nError of the model: gups: kernel is too fast"),
            "{text}"
        );
    }

    #[test]
    fn what_a_kernel_cannot_do_is_skipped_and_what_was_tried_is_told() {
        let lacks = || "the guest's kernel lacks goals".to_owned();
        let skipped = RunRecord::skipped("gups", System::Damon(Mode::Auto), lacks());
        let at = |sample_ms, ops_per_s, taken| Tried {
            sample_ms: Rate { sample_ms },
            ops_per_s,
            fast_access_ratio: None,
            taken,
        };
        let best = RunRecord {
            ops_per_s: Some(2000.0),
            failed: None,
            tried: vec![at(5, None, false), at(20, Some(2000.0), true)],
            ..RunRecord::failed("gups", System::Damon(Mode::Best), String::new())
        };
        let text = render(&[best, skipped]);
        assert!(
            text.contains("every 20 ms") && text.contains("(5 ms failed, 20 ms 2,000 ops/s)"),
            "{text}"
        );
        assert!(!text.contains("FAILED"), "{text}");
        assert!(
            text.ends_with("gups under damon-auto skipped: the guest's kernel lacks goals"),
            "{text}"
        );
    }

    #[test]
    fn failures_are_in_the_table_and_under_it() {
        let good = |system, rate| RunRecord {
            ops_per_s: Some(rate),
            failed: None,
            ..RunRecord::failed("gups", system, String::new())
        };
        let records = [
            good(System::None, 1000.0),
            good(System::Oracle, 2500.0),
            RunRecord::failed(
                "gups",
                System::Preset("nomad"),
                "Memory is wrong".to_owned(),
            ),
        ];
        let text = render(&records);
        assert!(text.contains("2,500") && text.contains("2.50"), "{text}");
        assert!(text.contains("FAILED"), "{text}");
        let of = |system, rates: [f64; 3]| {
            let runs = rates.map(|rate| good(system, rate));
            RunRecord::of_all(&runs).expect("three")
        };
        let none = of(System::None, [1000.0, 1250.0, 1100.0]);
        let oracle = of(System::Oracle, [2500.0, 2250.0, 2400.0]);
        let text = render(&[none, oracle]);
        assert!(text.contains("2.18, 1.42 to 3.23"), "{text}");
        let text = render(&records);
        assert!(
            text.ends_with("gups under nomad failed: Memory is wrong"),
            "{text}"
        );
    }
}
