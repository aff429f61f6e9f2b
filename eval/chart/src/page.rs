// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a result page, and what its tables and charts share.

use std::fmt::Write;

use crate::ChartError;
use crate::FORMATS;
use crate::Line;
use crate::Quantity;
use crate::chart::colour;
use crate::draw;

const STYLE: &str = include_str!("page.css");

/// How a system's line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// As most are.
    Plain,
    /// Thicker: what the page is about.
    Wide,
    /// Dashed: the best there could be.
    Dashed,
    /// Dotted: what the others are compared with.
    Dotted,
}

/// What a system's line and its key look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// The system.
    pub name: &'static str,
    /// Its colour on a light page, as CSS writes it.
    pub light: &'static str,
    /// Its colour on a dark page.
    pub dark: &'static str,
    /// Its line.
    pub stroke: Stroke,
}

/// A whole page: `body` is HTML, the title is escaped here. Systems without a look have the same grey.
#[must_use]
pub fn page(title: &str, body: &str, looks: &[Look]) -> String {
    let title = escape(title);
    let style = style(looks);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}{style}</style></head>\n<body>\n<h1>{title}</h1>\n\
         {body}</body></html>\n"
    )
}

/// The looks as CSS.
fn style(looks: &[Look]) -> String {
    let mut out = String::new();
    let colours = |of: fn(&Look) -> &'static str| -> String {
        let each = looks.iter();
        each.map(|look| format!(" --{}: {};", look.name, of(look)))
            .collect()
    };
    let _ = writeln!(out, ":root {{{} }}", colours(|look| look.light));
    let _ = writeln!(
        out,
        "@media (prefers-color-scheme: dark) {{ :root {{{} }} }}",
        colours(|look| look.dark)
    );
    for look in looks {
        let name = look.name;
        let (line, key) = match look.stroke {
            Stroke::Plain => continue,
            Stroke::Wide => ("stroke-width: 3", "border-top-style: solid"),
            Stroke::Dashed => ("stroke-dasharray: 8 4", "border-top-style: dashed"),
            Stroke::Dotted => ("stroke-dasharray: 2 3", "border-top-style: dotted"),
        };
        let stroke = colour(name);
        let _ = writeln!(out, "svg polyline[stroke=\"{stroke}\"] {{ {line}; }}");
        let _ = writeln!(out, ".key.{name} {{ {key}; }}");
    }
    out
}

/// Charts of the same lines beside each other, each in both sizes: heading, what it shows, lines.
///
/// # Errors
///
/// Where a chart cannot be drawn.
pub fn pair(charts: &[(&str, Quantity, Vec<Line<'_>>)]) -> Result<String, ChartError> {
    let mut out = "<div class=\"charts\">\n".to_owned();
    for (heading, quantity, lines) in charts {
        let _ = writeln!(out, "<div><h3>{}</h3>", escape(heading));
        for format in FORMATS {
            out.push_str(&draw(lines, *quantity, format)?);
        }
        out.push_str("</div>\n");
    }
    out.push_str("</div>\n");
    Ok(out)
}

/// A piece of line as it is drawn for a system, for the table's first column.
#[must_use]
pub fn key(name: &str) -> String {
    format!(
        "<span class=\"key {}\" style=\"border-color:{}\"></span>",
        escape(name),
        colour(name)
    )
}

/// Text as HTML.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_stands_alone() {
        let line = Line {
            name: "nomad",
            points: vec![(1.0, 2.0), (2.0, 3.0)],
        };
        let charts = pair(&[("a < b", Quantity::Rate, vec![line])]).expect("drawn");
        let page = page("x & y", &charts, &[]);
        assert!(page.contains("<h3>a &lt; b</h3>") && page.contains("<title>x &amp; y</title>"));
        // Nothing is loaded from anywhere; the one address is a name space.
        for address in page.split("http").skip(1) {
            assert!(
                address.starts_with("://www.w3.org/2000/svg"),
                "{address:.60}"
            );
        }
        assert!(!page.contains("<script") && !page.contains("@import"));
    }

    #[test]
    fn a_look_is_in_the_style_in_light_and_in_dark() {
        let look = Look {
            name: "made-up",
            light: "#111",
            dark: "#eee",
            stroke: Stroke::Dashed,
        };
        let line = Line {
            name: look.name,
            points: vec![(1.0, 2.0), (2.0, 3.0)],
        };
        let charts = pair(&[("a", Quantity::Rate, vec![line])]).expect("drawn");
        let page = page("x", &charts, &[look]);
        assert_eq!(page.matches("--made-up: #").count(), 2, "{page}");
        let rule = format!(
            "polyline[stroke=\"{}\"] {{ stroke-dasharray",
            colour(look.name)
        );
        assert!(page.contains(&rule), "{page}");
        assert!(page.contains(&format!("stroke=\"{}\"", colour(look.name))));
        assert_eq!(STYLE.matches("--other:").count(), 2);
    }
}
