// SPDX-License-Identifier: MIT OR Apache-2.0
//! Horizontal bars as SVG: a system's figure, with a dot for each of its runs.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use plotters::style::text_anchor::Pos;
use plotters::style::text_anchor::VPos;

use crate::ChartError;
use crate::FORMATS;
use crate::Format;
use crate::chart::INK;
use crate::chart::dress;
use crate::chart::line_colour;

/// A system's figure.
#[derive(Debug, Clone)]
pub struct Bar<'a> {
    /// The system; decides the colour.
    pub name: &'a str,
    /// Its length.
    pub value: f64,
    /// What each run had.
    pub runs: Vec<f64>,
}

/// Height of a bar's row, of a group's heading, in CSS pixels.
const ROW: u32 = 26;
/// Room for the names on the left, and for figures on the right.
const LEFT: u32 = 130;
const RIGHT: u32 = 64;

/// Groups of bars over each other on one scale, in both sizes: heading and bars.
///
/// # Errors
///
/// Where the drawing library cannot.
pub fn bars(groups: &[(&str, Vec<Bar<'_>>)], unit: &str) -> Result<String, ChartError> {
    let mut out = String::new();
    for format in FORMATS {
        let mut svg = String::new();
        let rows: usize = groups.iter().map(|(_, bars)| bars.len() + 1).sum();
        let size = (format.width(), u32::try_from(rows).unwrap_or(0) * ROW + 8);
        paint(&mut svg, groups, unit, size, format).map_err(|e| ChartError::of(&*e))?;
        let names: Vec<&str> = groups
            .iter()
            .flat_map(|(_, bars)| bars.iter().map(|bar| bar.name))
            .collect();
        out.push_str(&dress(&svg, &names, format, size));
    }
    Ok(out)
}

fn paint(
    svg: &mut String,
    groups: &[(&str, Vec<Bar<'_>>)],
    unit: &str,
    size: (u32, u32),
    format: Format,
) -> Result<(), Box<dyn std::error::Error>> {
    let values = groups.iter().flat_map(|(_, bars)| bars);
    let values = values.flat_map(|bar| bar.runs.iter().copied().chain([bar.value]));
    let most = values.fold(f64::MIN_POSITIVE, f64::max);
    let scale = f64::from(size.0 - LEFT - RIGHT) / most;
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    let at = |x: u32, y: u32| (x.cast_signed(), y.cast_signed());
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "pixels, none below 0"
    )]
    let long = |value: f64| LEFT + (value.max(0.0) * scale).round() as u32;
    let text = |right: bool| {
        let side = if right { HPos::Right } else { HPos::Left };
        let font = ("sans-serif", format.text()).into_font().color(&INK);
        font.pos(Pos::new(side, VPos::Center))
    };
    let (mut y, mut index) = (4, 0);
    for (heading, bars) in groups {
        area.draw(&Text::new(*heading, at(0, y + ROW / 2), text(false)))?;
        y += ROW;
        for bar in bars {
            let (middle, end) = (y + ROW / 2, long(bar.value));
            let colour = line_colour(index)?;
            area.draw(&Text::new(bar.name, at(LEFT - 8, middle), text(true)))?;
            let corners = [at(LEFT, y + 5), at(end.max(LEFT + 1), y + ROW - 5)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
            for run in &bar.runs {
                area.draw(&Circle::new(at(long(*run), middle), 3, INK.filled()))?;
            }
            let furthest = bar.runs.iter().map(|run| long(*run)).fold(end, u32::max);
            let figure = format!("{:.2}{unit}", bar.value);
            area.draw(&Text::new(figure, at(furthest + 8, middle), text(false)))?;
            y += ROW;
            index += 1;
        }
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &'static str, value: f64, runs: &[f64]) -> Bar<'static> {
        Bar {
            name,
            value,
            runs: runs.to_vec(),
        }
    }

    #[test]
    fn every_bar_has_its_colour_its_figure_and_a_dot_for_each_run() {
        let groups = [
            (
                "gups",
                vec![bar("none", 1.0, &[0.9, 1.1]), bar("a<b", 2.5, &[2.4, 2.6])],
            ),
            ("redis", vec![bar("none", 1.0, &[])]),
        ];
        let out = bars(&groups, " x").expect("drawn");
        for text in ["gups", "redis", "2.50 x", "var(--none", "var(--a&lt;b"] {
            assert_eq!(
                out.matches(text).count() % 2,
                0,
                "in both sizes: {text} {out}"
            );
            assert!(out.contains(text), "{text} {out}");
        }
        assert_eq!(out.matches("<circle").count(), 2 * 4, "{out}");
        assert!(!out.contains("#01"), "{out}");
        // The longest run ends where the room for its figure begins.
        let width = f64::from(FORMATS[0].width() - LEFT - RIGHT);
        let end = format!("width=\"{:.0}\"", width * 2.5 / 2.6);
        assert!(out.contains(&end), "{end} {out}");
    }

    #[test]
    fn nothing_is_an_empty_drawing() {
        assert!(bars(&[], "").is_ok());
        assert!(bars(&[("gups", vec![bar("none", 0.0, &[])])], "").is_ok());
    }
}
