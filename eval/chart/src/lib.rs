// SPDX-License-Identifier: MIT OR Apache-2.0
//! Result pages, of the lab's comparisons and of the simulator's: one HTML file that opens without a
//! network, on a phone and on a desktop, in light and in dark.
//!
//! * [`page`]: the frame of a page, its style, escaping, the key of a line.
//! * [`draw`]: a line chart as SVG; [`pair`]: two of them side by side; [`bars`]: bars with a dot for each run.
//! * [`thousands`]: numbers as people read them.
//!
//! Pure: gives text. What is in a table is the caller's business.
#![forbid(unsafe_code)]

mod bars;
mod chart;
mod page;

pub use bars::Bar;
pub use bars::bars;
pub use chart::ChartError;
pub use chart::FORMATS;
pub use chart::Format;
pub use chart::Line;
pub use chart::Quantity;
pub use chart::draw;
pub use page::Look;
pub use page::Stroke;
pub use page::escape;
pub use page::key;
pub use page::page;
pub use page::pair;

/// A whole number with its thousands apart.
#[must_use]
pub fn thousands(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_apart() {
        assert_eq!(thousands(0.0), "0");
        assert_eq!(thousands(999.0), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }
}
