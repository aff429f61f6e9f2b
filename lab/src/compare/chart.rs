// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line chart as SVG, coloured by the page it is in.
//!
//! The drawing library writes fixed colours; each has a stand-in here that is replaced by a CSS
//! variable, so that one drawing serves light and dark. It is drawn in two sizes, for wide and for
//! narrow screens, because text in a scaled-down drawing cannot be read.

use plotters::prelude::*;

use super::record::Point;
use super::record::System;

/// Width and height, the left margin for numbers, and the size of text, in CSS pixels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Format {
    pub(super) class: &'static str,
    size: (u32, u32),
    text: u32,
    ticks: usize,
}

/// For desktops and for phones.
pub(super) const FORMATS: [Format; 2] = [
    Format {
        class: "wide",
        size: (560, 260),
        text: 15,
        ticks: 7,
    },
    Format {
        class: "narrow",
        size: (340, 220),
        text: 14,
        ticks: 4,
    },
];

/// What a chart shows of a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Operations a second.
    Rate,
    /// Share of the accesses that the fast node served.
    FastShare,
}

/// Stand-ins for colours: what is drawn, and what it becomes.
const INK: RGBColor = RGBColor(1, 2, 1);
const GRID: RGBColor = RGBColor(1, 2, 2);
const STAND_INS: [(&str, &str); 6] = [
    ("#010201", "var(--ink-soft)"),
    ("#010202", "var(--grid)"),
    ("#010301", "var(--none)"),
    ("#010302", "var(--kernel)"),
    ("#010303", "var(--nomad)"),
    ("#010304", "var(--oracle)"),
];

fn colour(system: System) -> RGBColor {
    match system {
        System::None => RGBColor(1, 3, 1),
        System::Kernel => RGBColor(1, 3, 2),
        System::Nomad => RGBColor(1, 3, 3),
        System::Oracle => RGBColor(1, 3, 4),
    }
}

impl Quantity {
    fn of(self, point: &Point) -> Option<f64> {
        match self {
            Self::Rate => Some(point.ops_per_s),
            Self::FastShare => point.fast_access_ratio.map(|ratio| ratio * 100.0),
        }
    }

    fn label(self, value: f64) -> String {
        match self {
            Self::FastShare => format!("{value:.0} %"),
            Self::Rate if value >= 1e6 => format!("{:.1} M", value / 1e6),
            Self::Rate if value >= 1e4 => format!("{:.0} k", value / 1e3),
            Self::Rate if value >= 1e3 => format!("{:.1} k", value / 1e3),
            Self::Rate => format!("{value:.0}"),
        }
    }
}

/// Draws the runs of one workload.
pub(super) fn draw(
    runs: &[(System, &[Point])],
    quantity: Quantity,
    format: Format,
) -> anyhow::Result<String> {
    let values = runs.iter().flat_map(|(_, points)| points.iter());
    let end = values.clone().map(|point| point.t).fold(1.0, f64::max);
    let top = match quantity {
        Quantity::FastShare => 100.0,
        Quantity::Rate => values.map(|point| point.ops_per_s).fold(1.0, f64::max) * 1.05,
    };
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, format.size).into_drawing_area();
        let font = ("sans-serif", format.text).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .margin(4)
            .margin_top(10)
            .margin_right(14)
            .x_label_area_size(28)
            .y_label_area_size(54)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .axis_style(GRID)
            .label_style(font)
            .x_labels(format.ticks)
            .y_labels(5)
            .x_label_formatter(&|t| format!("{t:.0} s"))
            .y_label_formatter(&|value| quantity.label(*value))
            .draw()?;
        for (system, points) in runs {
            let line = points
                .iter()
                .filter_map(|point| Some((point.t, quantity.of(point)?)));
            chart.draw_series(LineSeries::new(line, colour(*system).stroke_width(2)))?;
        }
        area.present()?;
    }
    Ok(dress(&svg, format))
}

/// Puts the page's colours in, and lets the page set the size.
fn dress(svg: &str, format: Format) -> String {
    let (width, height) = format.size;
    let fixed = format!("width=\"{width}\" height=\"{height}\" ");
    let classed = format!("class=\"{}\" ", format.class);
    let mut out = svg.replacen(&fixed, &classed, 1);
    for (stand_in, variable) in STAND_INS {
        out = out.replace(stand_in, variable);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_gets_its_colour_and_no_stand_in_is_left() {
        let points: Vec<Point> = (1..=30)
            .map(|t| Point {
                t: f64::from(t),
                ops_per_s: 1000.0 * f64::from(t),
                fast_access_ratio: (t > 3).then_some(0.5),
            })
            .collect();
        let systems = [System::None, System::Kernel, System::Nomad, System::Oracle];
        let runs = systems.map(|system| (system, &points[..]));
        for quantity in [Quantity::Rate, Quantity::FastShare] {
            for format in FORMATS {
                let svg = draw(&runs, quantity, format).unwrap();
                for system in systems {
                    assert!(svg.contains(&format!("var(--{})", system.name())), "{svg}");
                }
                assert!(!svg.contains("#01"), "{svg}");
                assert!(
                    svg.contains(&format!("class=\"{}\"", format.class)),
                    "{svg}"
                );
                assert!(svg.contains("viewBox"), "{svg}");
            }
        }
    }

    #[test]
    fn no_points_is_an_empty_chart() {
        assert!(draw(&[(System::None, &[])], Quantity::Rate, FORMATS[0]).is_ok());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(Quantity::Rate.label(125_000.0), "125 k");
        assert_eq!(Quantity::Rate.label(2_500.0), "2.5 k");
        assert_eq!(Quantity::FastShare.label(40.0), "40 %");
    }
}
