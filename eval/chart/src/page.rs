// SPDX-License-Identifier: MIT OR Apache-2.0
//! The frame of a result page, and what its tables and charts share.

use std::fmt::Write;

use crate::ChartError;
use crate::FORMATS;
use crate::Line;
use crate::Quantity;
use crate::chart::variable;
use crate::draw;

const STYLE: &str = include_str!("page.css");

/// A whole page: `body` is HTML, the title is escaped here.
#[must_use]
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n\
         {body}</body></html>\n"
    )
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
        "<span class=\"key {}\" style=\"border-color:var({})\"></span>",
        escape(name),
        variable(name)
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
        let page = page("x & y", &charts);
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
    fn every_variable_of_a_chart_is_in_the_style() {
        for name in crate::chart::NAMES {
            let defined = format!("{}:", variable(name));
            assert_eq!(STYLE.matches(&defined).count(), 2, "light and dark: {name}");
        }
        assert_eq!(variable("no such system"), "--other");
    }
}
