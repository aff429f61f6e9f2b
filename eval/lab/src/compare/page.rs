// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results as one HTML file: opens without a network, on a phone and on a desktop, in light
//! and in dark.

mod texts;

use std::fmt::Write;

use terrace_chart::Bar;
use terrace_chart::Line;
use terrace_chart::Quantity;
use terrace_chart::escape;
use terrace_chart::thousands;
use terrace_machine_spec::Machine;

use super::record::Point;
use super::record::RunRecord;
use super::record::System;
use super::table::after_move;
use super::table::model_errors;
use super::table::notes;
use super::table::times_none;
use super::table::written;
use super::verdict::Ratios;

/// The page: who is ahead in words, the machine, all runs in one chart; then how it went, and the figures.
///
/// # Errors
///
/// Where a chart cannot be drawn.
pub fn render(title: &str, machine: &Machine, records: &[RunRecord]) -> anyhow::Result<String> {
    let mut workloads: Vec<&str> = records.iter().map(|r| r.workload.as_str()).collect();
    workloads.dedup();
    let mut out = "<section class=\"verdict\">\n".to_owned();
    for note in notes(records) {
        writeln!(out, "<p>{}</p>", escape(&note))?;
    }
    for error in model_errors(records) {
        writeln!(out, "<p class=\"bad\">{}</p>", escape(&error))?;
    }
    busy(&mut out, records)?;
    out.push_str("</section>\n<section>\n<h2>The machine</h2>\n");
    picture(&mut out, machine)?;
    writeln!(out, "<p>{}</p>", texts::ABOUT)?;
    if let Some(kernel) = records.iter().map(|r| &r.kernel).find(|k| !k.is_empty()) {
        writeln!(out, "<p>Kernel {}.</p>", escape(kernel))?;
    }
    out.push_str("</section>\n<section>\n<h2>Operations a second in the last third, in times of no tiering; a dot is a round</h2>\n");
    let groups: Vec<(&str, Vec<Bar<'_>>)> = workloads
        .iter()
        .map(|workload| (*workload, bars(workload, records)))
        .collect();
    out.push_str(&terrace_chart::bars(&groups, " x")?);
    out.push_str("</section>\n");
    for workload in workloads {
        section(&mut out, workload, records)?;
    }
    texts::glossary(&mut out)?;
    texts::next(&mut out, records)?;
    Ok(terrace_chart::page(title, &out, &super::record::looks()))
}

fn busy(out: &mut String, records: &[RunRecord]) -> std::fmt::Result {
    let busiest = records.iter().filter_map(|r| r.host_busy_ratio);
    let busiest = busiest.fold(0.0, f64::max) * 100.0;
    if busiest > 10.0 {
        writeln!(
            out,
            "<p class=\"bad\">Other programs used up to {busiest:.0} % of the host during a run; \
             these rates are not those of an idle host.</p>"
        )?;
    }
    Ok(())
}

/// The processors and each node, as wide as it has memory.
fn picture(out: &mut String, machine: &Machine) -> std::fmt::Result {
    let cpus = machine.lab.as_ref().map_or(0, |lab| lab.cpus);
    writeln!(
        out,
        "<div class=\"machine\">\n<div class=\"cpus\">{cpus} processors</div>"
    )?;
    for (index, place) in machine.ranking(0).into_iter().enumerate() {
        let node = &machine.nodes[place];
        let mib = node.lab_bytes.unwrap_or(node.bytes) >> 20;
        let (class, read) = (
            if index == 0 { "fast" } else { "slow" },
            machine.path(0, place).read_ns,
        );
        writeln!(
            out,
            "<div class=\"node {class}\" style=\"flex-grow:{mib}\"><b>{}</b><br>{mib} MiB, {read:.0} ns</div>",
            node.kind
        )?;
    }
    out.push_str("</div>\n");
    Ok(())
}

/// A workload's systems, round by round in times of the first one's rate, which is no tiering where that ran.
fn bars<'a>(workload: &str, all: &'a [RunRecord]) -> Vec<Bar<'a>> {
    let runs = || all.iter().filter(|run| run.workload == workload);
    let none = runs().find(|run| run.system == System::None);
    let base = none.or(runs().next());
    let bar = |run: &'a RunRecord| {
        let ratios = base.and_then(|base| Ratios::of(run, base));
        Bar {
            name: run.system.name(),
            value: ratios.as_ref().map_or(0.0, Ratios::median),
            runs: ratios.map_or_else(Vec::new, |ratios| ratios.rounds().to_vec()),
        }
    };
    runs().map(bar).collect()
}

fn section(out: &mut String, workload: &str, all: &[RunRecord]) -> anyhow::Result<()> {
    let runs: Vec<&RunRecord> = all.iter().filter(|r| r.workload == workload).collect();
    writeln!(out, "<section>\n<h2>{}</h2>", escape(workload))?;
    let lines = |value: fn(&Point) -> Option<f64>| {
        let line = |run: &&RunRecord| Line {
            name: run.system.name(),
            points: run
                .series
                .iter()
                .filter_map(|point| Some((point.t, value(point)?)))
                .collect(),
        };
        runs.iter().map(line).collect()
    };
    out.push_str(&terrace_chart::pair(&[
        (
            "Operations a second",
            Quantity::Rate,
            lines(|point| Some(point.ops_per_s)),
        ),
        (
            "Accesses served by the fast node",
            Quantity::Share,
            lines(|point| point.fast_access_ratio),
        ),
    ])?);
    out.push_str("<details><summary>All figures</summary>\n");
    table(out, &runs, all)?;
    out.push_str("</details>\n</section>\n");
    Ok(())
}

fn table(out: &mut String, runs: &[&RunRecord], all: &[RunRecord]) -> std::fmt::Result {
    out.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>system</th><th>ops/s</th><th>all runs</th><th>× none</th>\
         <th>fast accesses</th><th>90 % of oracle after</th><th>after a move</th><th>promoted</th><th>demoted</th>\
         <th>TPM committed</th><th>aborted</th><th>shadow hits</th>\
         <th>written to slow, by copies</th></tr>\n",
    );
    for run in runs {
        row(out, run, all)?;
    }
    out.push_str("</table></div>\n");
    Ok(())
}

fn row(out: &mut String, run: &RunRecord, all: &[RunRecord]) -> std::fmt::Result {
    let name = run.system.name();
    let key = terrace_chart::key(name);
    write!(out, "<tr><td>{key}{name}</td>")?;
    if let Some(why) = &run.failed {
        return writeln!(
            out,
            "<td colspan=\"12\" class=\"bad\">failed: {}</td></tr>",
            escape(why)
        );
    }
    if let Some(why) = &run.skipped {
        return writeln!(out, "<td colspan=\"12\">skipped: {}</td></tr>", escape(why));
    }
    let dash = || "–".to_owned();
    let moves = &run.moves;
    let transacts = run
        .system
        .preset()
        .is_some_and(|preset| preset.is_in_process());
    let terrace = |number: u64| if transacts { count(number) } else { dash() };
    let cells = [
        run.ops_per_s.map_or_else(dash, thousands),
        super::table::runs(run),
        times_none(run, all).unwrap_or_else(dash),
        run.fast_access_ratio
            .map_or_else(dash, |ratio| format!("{:.1} %", ratio * 100.0)),
        run.seconds_to_90pct_of_oracle
            .map_or_else(dash, |seconds| format!("{seconds:.0} s")),
        after_move(run),
        count(moves.promoted_pages),
        count(moves.demoted_pages),
        terrace(moves.tpm_committed),
        terrace(moves.tpm_aborted),
        terrace(moves.shadow_hits),
        written(run),
    ];
    for cell in cells {
        write!(out, "<td>{cell}</td>")?;
    }
    out.push_str("</tr>\n");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a count to print")]
fn count(number: u64) -> String {
    thousands(number as f64)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn machine() -> Machine {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cxl-2tier.toml");
        Machine::load(&path).expect("it is in the repository")
    }

    #[test]
    fn a_busy_host_is_mentioned() {
        let mut record = RunRecord::failed("gups", System::None, String::new());
        assert!(
            !render("t", &machine(), &[record.clone()])
                .unwrap()
                .contains("Other programs")
        );
        record.host_busy_ratio = Some(0.4);
        assert!(
            render("t", &machine(), &[record])
                .unwrap()
                .contains("up to 40 %")
        );
    }

    #[test]
    fn an_error_of_the_model_is_on_the_page() {
        let mut record = RunRecord::failed("gups", System::Kernel, String::new());
        record.model_errors = vec!["kernel is > oracle".to_owned()];
        let page = render("t", &machine(), &[record]).unwrap();
        let wanted = "<p class=\"bad\">Error of the model: gups: kernel is &gt; oracle</p>";
        assert!(page.contains(wanted), "{page}");
    }

    #[test]
    fn the_page_stands_alone_and_says_what_failed() {
        let point = |t: f64| Point {
            t,
            ops_per_s: 5.0,
            fast_access_ratio: Some(0.5),
            host_pace: None,
        };
        let good = RunRecord {
            ops_per_s: Some(5.0),
            failed: None,
            series: vec![point(1.0), point(2.0)],
            kernel: "6.12.1".to_owned(),
            ..RunRecord::failed("gups", System::None, String::new())
        };
        let bad = RunRecord::failed("redis", System::Preset("nomad"), "a <b> & c".to_owned());
        let page = render("Terrace on cxl", &machine(), &[good, bad]).unwrap();
        assert!(page.contains("<h2>gups</h2>") && page.contains("<h2>redis</h2>"));
        assert!(page.contains("failed: a &lt;b&gt; &amp; c"));
        assert!(page.contains("6.12.1") && page.contains("250 MiB, 80 ns"));
        // Nothing is loaded from anywhere; the one address is a name space.
        for address in page.split("http").skip(1) {
            assert!(
                address.starts_with("://www.w3.org/2000/svg"),
                "{address:.60}"
            );
        }
        assert!(!page.contains("<script") && !page.contains("@import"));
    }
}
