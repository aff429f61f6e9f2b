// SPDX-License-Identifier: MIT OR Apache-2.0
//! One line chart as SVG, coloured by the page it is in.
//!
//! The drawing library writes fixed colours; each has a stand-in here that is replaced by a CSS
//! variable, so that one drawing serves light and dark. It is drawn in two sizes, for wide and for
//! narrow screens, because text in a scaled-down drawing cannot be read.

use plotters::prelude::*;
use thiserror::Error;

use crate::escape;

/// Why a chart was not drawn.
#[derive(Debug, Error)]
#[error("Cannot draw a chart: {0}")]
pub struct ChartError(String);

impl ChartError {
    pub(crate) fn of(error: &dyn std::error::Error) -> Self {
        Self(error.to_string())
    }
}

/// Width and height, the left margin for numbers, and the size of text, in CSS pixels.
#[derive(Debug, Clone, Copy)]
pub struct Format {
    pub(crate) class: &'static str,
    size: (u32, u32),
    text: u32,
    ticks: usize,
}

/// For desktops and for phones.
pub const FORMATS: [Format; 2] = [
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

impl Format {
    pub(crate) const fn width(self) -> u32 {
        self.size.0
    }

    pub(crate) const fn text(self) -> u32 {
        self.text
    }
}

/// What a chart shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Operations a second, from 0.
    Rate,
    /// Shares from 0 to 1, shown in percent.
    Share,
}

/// A system's line.
#[derive(Debug, Clone)]
pub struct Line<'a> {
    /// The system; decides the colour.
    pub name: &'a str,
    /// Seconds and value.
    pub points: Vec<(f64, f64)>,
}

/// Stand-ins for colours of text and grid; lines have (1, 3, index).
pub(crate) const INK: RGBColor = RGBColor(1, 2, 1);
const GRID: RGBColor = RGBColor(1, 2, 2);

/// The stand-in of the line or bar with that index.
pub(crate) fn line_colour(index: usize) -> Result<RGBColor, std::num::TryFromIntError> {
    Ok(RGBColor(1, 3, u8::try_from(index)?))
}

/// The colour of a system in the page's style ([`crate::Look`]), or that of all without a look.
pub(crate) fn colour(name: &str) -> String {
    format!("var(--{}, var(--other))", escape(name))
}

impl Quantity {
    fn scale(self) -> f64 {
        match self {
            Self::Rate => 1.0,
            Self::Share => 100.0,
        }
    }

    fn label(self, value: f64) -> String {
        match self {
            Self::Share => format!("{value:.0} %"),
            Self::Rate if value >= 1e9 => format!("{:.1} G", value / 1e9),
            Self::Rate if value >= 1e6 => format!("{:.1} M", value / 1e6),
            Self::Rate if value >= 1e4 => format!("{:.0} k", value / 1e3),
            Self::Rate if value >= 1e3 => format!("{:.1} k", value / 1e3),
            Self::Rate => format!("{value:.0}"),
        }
    }
}

/// Draws the lines of several systems.
///
/// # Errors
///
/// Where the drawing library cannot.
pub fn draw(lines: &[Line<'_>], quantity: Quantity, format: Format) -> Result<String, ChartError> {
    let mut svg = String::new();
    paint(&mut svg, lines, quantity, format).map_err(|error| ChartError::of(&*error))?;
    let names: Vec<&str> = lines.iter().map(|line| line.name).collect();
    Ok(dress(&svg, &names, format, format.size))
}

fn paint(
    svg: &mut String,
    lines: &[Line<'_>],
    quantity: Quantity,
    format: Format,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = lines.iter().flat_map(|line| line.points.iter());
    let end = points.clone().map(|(t, _)| *t).fold(1.0, f64::max);
    let top = match quantity {
        Quantity::Share => 100.0,
        Quantity::Rate => points.map(|(_, value)| *value).fold(1.0, f64::max) * 1.05,
    };
    let area = SVGBackend::with_string(svg, format.size).into_drawing_area();
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
    for (index, line) in lines.iter().enumerate() {
        let stand_in = line_colour(index)?;
        let scaled = line.points.iter().map(|(t, v)| (*t, *v * quantity.scale()));
        let style = stand_in.stroke_width(2);
        chart.draw_series(LineSeries::new(scaled, style))?;
    }
    area.present()?;
    Ok(())
}

/// Puts the page's colours in, and lets the page set the size. The systems are in the order of their stand-ins.
pub(crate) fn dress(svg: &str, names: &[&str], format: Format, size: (u32, u32)) -> String {
    let (width, height) = size;
    let fixed = format!("width=\"{width}\" height=\"{height}\" ");
    let classed = format!("class=\"{}\" ", format.class);
    let mut out = svg.replacen(&fixed, &classed, 1);
    out = out.replace("#010201", "var(--ink-soft)");
    out = out.replace("#010202", "var(--grid)");
    for (index, name) in names.iter().enumerate() {
        out = out.replace(&format!("#0103{index:02X}"), &colour(name));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["none", "a<b", "third"];

    #[test]
    fn every_line_gets_its_colour_and_no_stand_in_is_left() {
        let points = |scale: f64| (1..=30).map(move |t| (f64::from(t), scale * f64::from(t)));
        for (quantity, scale) in [(Quantity::Rate, 1000.0), (Quantity::Share, 0.01)] {
            let line = |name| Line {
                name,
                points: points(scale).collect(),
            };
            let lines = NAMES.map(line);
            for format in FORMATS {
                let svg = draw(&lines, quantity, format).expect("drawn");
                for name in NAMES {
                    assert!(svg.contains(&colour(name)), "{svg}");
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
        let line = Line {
            name: "none",
            points: Vec::new(),
        };
        assert!(draw(&[line], Quantity::Rate, FORMATS[0]).is_ok());
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(Quantity::Rate.label(125_000.0), "125 k");
        assert_eq!(Quantity::Rate.label(2_500.0), "2.5 k");
        assert_eq!(Quantity::Share.label(40.0), "40 %");
    }
}
