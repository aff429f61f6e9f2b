// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results as one HTML file: opens without a network, on a phone and on a desktop, in light
//! and in dark.

use std::fmt::Write;

use terrace_chart::Line;
use terrace_chart::Quantity;
use terrace_chart::escape;
use terrace_chart::thousands;

use super::record::Point;
use super::record::RunRecord;
use super::table::after_move;
use super::table::notes;
use super::table::times_none;
use super::table::written;

const ABOUT: &str = "Each run boots an emulated machine with a fast and a slow memory node under \
    an unpatched kernel. The slow node is as slow, against the fast one, as the machine file says; \
    the emulator counts which node serves each access. Rates compare with each other, not with \
    those of a real machine.";

/// The page.
///
/// # Errors
///
/// Where a chart cannot be drawn.
pub fn render(title: &str, records: &[RunRecord]) -> anyhow::Result<String> {
    let mut out = format!("<p>{ABOUT}</p>\n");
    if let Some(kernel) = records.iter().map(|r| &r.kernel).find(|k| !k.is_empty()) {
        writeln!(out, "<p>Kernel {}.</p>", escape(kernel))?;
    }
    for note in notes(records) {
        writeln!(out, "<p>{}</p>", escape(&note))?;
    }
    let busiest = records.iter().filter_map(|r| r.host_busy_ratio);
    let busiest = busiest.fold(0.0, f64::max) * 100.0;
    if busiest > 10.0 {
        writeln!(
            out,
            "<p class=\"bad\">Other programs used up to {busiest:.0} % of the host during a run; \
             these rates are not those of an idle host.</p>"
        )?;
    }
    let mut workloads: Vec<&str> = records.iter().map(|r| r.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        section(&mut out, workload, records)?;
    }
    Ok(terrace_chart::page(title, &out))
}

fn section(out: &mut String, workload: &str, all: &[RunRecord]) -> anyhow::Result<()> {
    let runs: Vec<&RunRecord> = all.iter().filter(|r| r.workload == workload).collect();
    writeln!(out, "<section>\n<h2>{}</h2>", escape(workload))?;
    table(out, &runs, all)?;
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
    out.push_str("</section>\n");
    Ok(())
}

fn table(out: &mut String, runs: &[&RunRecord], all: &[RunRecord]) -> std::fmt::Result {
    out.push_str(
        "<div class=\"scroll\"><table>\n<tr><th>system</th><th>ops/s</th><th>at one pace</th><th>× none</th>\
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
    let dash = || "–".to_owned();
    let moves = &run.moves;
    let transacts = run.system.preset().is_some_and(|preset| preset.agent);
    let terrace = |number: u64| if transacts { count(number) } else { dash() };
    let cells = [
        run.ops_per_s.map_or_else(dash, thousands),
        run.ops_per_s_same_pace.map_or_else(dash, thousands),
        times_none(run, all).map_or_else(dash, |times| format!("{times:.2}")),
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
    use super::super::record::System;
    use super::*;

    #[test]
    fn a_busy_host_is_mentioned() {
        let mut record = RunRecord::failed("gups", System::None, String::new());
        assert!(
            !render("t", &[record.clone()])
                .unwrap()
                .contains("Other programs")
        );
        record.host_busy_ratio = Some(0.4);
        assert!(render("t", &[record]).unwrap().contains("up to 40 %"));
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
        let page = render("Terrace on cxl", &[good, bad]).unwrap();
        assert!(page.contains("<h2>gups</h2>") && page.contains("<h2>redis</h2>"));
        assert!(page.contains("failed: a &lt;b&gt; &amp; c"));
        assert!(page.contains("6.12.1"));
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
