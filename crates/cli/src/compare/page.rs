// SPDX-License-Identifier: MIT OR Apache-2.0
//! The matrix as one HTML page: an overview, and for each machine and workload a table and plots.

use std::fmt::Write;

use terrace_chart::Line;
use terrace_chart::Quantity;
use terrace_chart::escape;
use terrace_chart::key;
use terrace_policy::UNMANAGED;

use super::record::Point;
use super::record::Record;
use super::table;
use crate::args::CompareArgs;

const ABOUT: &str = "Simulated: the policies are the ones that run on Linux, the machines are \
    described in files. Visits a second are the mean of the last third of a run; 90 % is of \
    that. Profiling, migration (with its workers) and stalls are shares of the programs' thread time.";

/// The page.
pub(crate) fn render(args: &CompareArgs, records: &[Record]) -> anyhow::Result<String> {
    let mut body = format!(
        "<p>{ABOUT}</p>\n<p>{} simulated seconds, seed {}, {}.</p>\n",
        args.common.seconds,
        args.common.seed,
        match args.play.engine.as_str() {
            "exact" => "every visit played",
            _ => "drawn from the pages' rates",
        },
    );
    let groups: Vec<&[Record]> = records
        .chunk_by(|a, b| a.spec.group() == b.spec.group())
        .collect();
    if groups.len() > 1 {
        overview(&mut body, &groups, records)?;
    }
    for runs in groups {
        section(&mut body, runs, records)?;
    }
    Ok(terrace_chart::page(
        "Terrace: simulated side by side",
        &body,
        &terrace_experiment::looks(),
    ))
}

/// Throughput of all, as a multiple of `none` where that was run.
fn overview(out: &mut String, groups: &[&[Record]], all: &[Record]) -> std::fmt::Result {
    let policies = groups[0].iter().map(|run| run.spec.policy.as_str());
    let relative = groups[0]
        .iter()
        .any(|run| run.spec.policy == UNMANAGED.name);
    let what = if relative {
        "Throughput, as a multiple of none"
    } else {
        "Throughput, visits a second"
    };
    write!(
        out,
        "<section>\n<h2>{what}</h2>\n<div class=\"scroll\"><table>\n<tr><th>run</th>"
    )?;
    for policy in policies {
        write!(out, "<th>{}</th>", escape(policy))?;
    }
    out.push_str("</tr>\n");
    for runs in groups {
        write!(out, "<tr><td>{}</td>", escape(&table::group(&runs[0].spec)))?;
        for run in *runs {
            let cell = match table::of(run, all, UNMANAGED.name) {
                Some(times) if relative => format!("{times:.2}"),
                _ => table::rate(run),
            };
            write!(out, "<td>{cell}</td>")?;
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n</section>\n");
    Ok(())
}

fn section<'a>(out: &mut String, runs: &'a [Record], all: &[Record]) -> anyhow::Result<()> {
    let heading = table::group(&runs[0].spec);
    write!(
        out,
        "<section>\n<h2>{}</h2>\n<div class=\"scroll\"><table>\n<tr><th>policy</th>",
        escape(&heading)
    )?;
    for column in table::COLUMNS {
        write!(out, "<th>{column}</th>")?;
    }
    out.push_str("</tr>\n");
    for run in runs {
        let name = &run.spec.policy;
        write!(out, "<tr><td>{}{}</td>", key(name), escape(name))?;
        for cell in table::cells(run, all) {
            write!(out, "<td>{cell}</td>")?;
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    for error in table::model_errors(runs) {
        writeln!(out, "<p>Error of the model: {}</p>", escape(&error))?;
    }
    let lines = |value: fn(&Point) -> f64| -> Vec<Line<'a>> {
        let line = |run: &'a Record| Line {
            name: &run.spec.policy,
            points: points(run, value),
        };
        runs.iter().map(line).collect()
    };
    out.push_str(&terrace_chart::pair(&[
        ("Visits a second", Quantity::Rate, lines(|p| p.ops_per_s)),
        (
            "Accesses served by the fast tier",
            Quantity::Share,
            lines(|p| p.fast_access_ratio),
        ),
    ])?);
    out.push_str("</section>\n");
    Ok(())
}

fn points(run: &Record, value: fn(&Point) -> f64) -> Vec<(f64, f64)> {
    let points = run.series.iter();
    points.map(|point| (point.t, value(point))).collect()
}
