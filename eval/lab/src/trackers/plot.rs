// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rows as one picture (SVG) that stands alone, in light and in dark: recall over the price, a panel for
//! each workload and share of the pages.

use std::fmt::Write;

use super::record::Row;
use super::record::Source;
use super::record::percent;
use super::score::HOTTEST;
use super::table::groups;

/// A panel, and what is around it.
const WIDTH: f64 = 150.0;
const HEIGHT: f64 = 110.0;
const GAP: f64 = 22.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 58.0;
const STYLE: &str = "text{font:12px sans-serif;fill:#333}line{stroke:#8886}polyline{fill:none;stroke-width:2}\
    @media(prefers-color-scheme:dark){text{fill:#ccc}}";

/// Colours that can be told apart on either ground.
fn colour(source: Source) -> &'static str {
    match source {
        Source::AccessedBits => "#2a7de1",
        Source::HintFaults => "#d9822b",
        Source::Pmu => "#3a9a5b",
        Source::Damon(regions) if regions < 500 => "#b04ec4",
        Source::Damon(_) => "#c4434e",
    }
}

/// Draws them.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a few panels")]
pub fn render(rows: &[Row]) -> String {
    let groups = groups(rows);
    let mut workloads: Vec<&str> = groups.iter().map(|group| group.0).collect();
    workloads.dedup();
    let mut sources: Vec<Source> = groups.iter().map(|group| group.1).collect();
    sources.sort_unstable();
    sources.dedup();
    let mut prices: Vec<u32> = rows.iter().map(|row| row.permille).collect();
    prices.sort_unstable();
    prices.dedup();
    let width = LEFT + (WIDTH + GAP) * workloads.len() as f64;
    let height = TOP + (HEIGHT + GAP) * HOTTEST.len() as f64 + GAP;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\"><style>{STYLE}</style>\n"
    );
    for (index, source) in sources.iter().enumerate() {
        let (x, colour) = (LEFT + index as f64 * 130.0, colour(*source));
        let _ = writeln!(
            out,
            "<polyline points=\"{x:.0},16 {:.0},16\" stroke=\"{colour}\"/><text x=\"{:.0}\" y=\"20\">{source}</text>",
            x + 22.0,
            x + 28.0
        );
    }
    for (column, workload) in workloads.iter().enumerate() {
        let x = LEFT + column as f64 * (WIDTH + GAP);
        let _ = writeln!(
            out,
            "<text x=\"{x:.0}\" y=\"{:.0}\">{workload}</text>",
            TOP - 10.0
        );
        for set in 0..HOTTEST.len() {
            let y = TOP + set as f64 * (HEIGHT + GAP);
            frame(&mut out, (x, y), column == 0, set);
            for (of, source, rows) in &groups {
                if of == workload {
                    line(&mut out, (x, y), &prices, rows, set, colour(*source));
                }
            }
        }
        let y = TOP + HOTTEST.len() as f64 * (HEIGHT + GAP) - 4.0;
        for (index, price) in prices.iter().enumerate() {
            let x = x + place(index, prices.len()) - 10.0;
            let _ = writeln!(
                out,
                "<text x=\"{x:.0}\" y=\"{y:.0}\">{} %</text>",
                percent(*price)
            );
        }
    }
    out.push_str("</svg>\n");
    out
}

/// Where a price is in a panel.
#[expect(clippy::cast_precision_loss, reason = "a few prices")]
fn place(index: usize, of: usize) -> f64 {
    WIDTH * (index as f64 + 0.5) / of as f64
}

fn frame(out: &mut String, (x, y): (f64, f64), named: bool, set: usize) {
    for percent in [0.0, 50.0, 100.0] {
        let at = y + HEIGHT * (1.0 - percent / 100.0);
        let _ = writeln!(
            out,
            "<line x1=\"{x:.0}\" y1=\"{at:.1}\" x2=\"{:.0}\" y2=\"{at:.1}\"/>",
            x + WIDTH
        );
        if named {
            let _ = writeln!(
                out,
                "<text x=\"{:.0}\" y=\"{:.1}\">{percent:.0}</text>",
                x - 26.0,
                at + 4.0
            );
        }
    }
    if named {
        let (label, at) = (HOTTEST[set] * 100.0, y + HEIGHT / 2.0);
        let _ = writeln!(
            out,
            "<text transform=\"translate(16 {at:.0}) rotate(-90)\" text-anchor=\"middle\">hottest {label:.0} %</text>"
        );
    }
}

fn line(
    out: &mut String,
    (x, y): (f64, f64),
    prices: &[u32],
    rows: &[&Row],
    set: usize,
    colour: &str,
) {
    let mut points = String::new();
    for row in rows {
        let index = prices.iter().position(|price| *price == row.permille);
        if let (Some(index), Some(score)) = (index, &row.score) {
            let at = x + place(index, prices.len());
            let _ = write!(
                points,
                "{at:.1},{:.1} ",
                y + HEIGHT * (1.0 - score.recall[set])
            );
        }
    }
    let points = points.trim_end();
    let _ = writeln!(out, "<polyline points=\"{points}\" stroke=\"{colour}\"/>");
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::row;
    use super::*;

    #[test]
    fn every_tracker_has_its_line_in_every_panel() {
        let rows = [
            row("gups", Source::AccessedBits, 5, 1.0),
            row("gups", Source::AccessedBits, 10, 0.0),
            row("zipf", Source::HintFaults, 10, 0.5),
        ];
        let svg = render(&rows);
        let lines = |source| {
            svg.matches(&format!("stroke=\"{}\"", colour(source)))
                .count()
        };
        // In the key, and in three panels of its workload.
        assert_eq!(
            (lines(Source::AccessedBits), lines(Source::HintFaults)),
            (4, 4)
        );
        // From the top of the first panel to its bottom.
        assert!(svg.contains("points=\"101.5,58.0 176.5,168.0\""), "{svg}");
        for name in ["gups", "zipf", "hottest 25 %", "0.5 %", "accessed-bits"] {
            assert!(svg.contains(name), "{name} is not in {svg}");
        }
    }
}
