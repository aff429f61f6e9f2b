// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output whose reader may go away: `terrace sim … | head` is no mistake.
//!
//! What nobody reads is dropped and the command goes on: it may be putting settings back. Any other
//! error is said once on standard error, and makes the command fail. What cannot be written to standard error
//! is lost, and changes nothing: a program is run for its own sake.

use std::fmt;
use std::io::ErrorKind;
use std::io::IsTerminal;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

static FAILED: AtomicBool = AtomicBool::new(false);

/// Prints, as `println!` does.
macro_rules! say {
    ($($argument:tt)*) => {
        $crate::out::line(format_args!($($argument)*))
    };
}
pub(crate) use say;

/// Prints to standard error, as `eprintln!` does.
macro_rules! note {
    ($($argument:tt)*) => {
        $crate::out::note_line(format_args!($($argument)*))
    };
}
pub(crate) use note;

/// Prints a line to standard error.
pub(crate) fn note_line(text: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints a line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    checked(writeln!(out, "{text}").and_then(|()| out.flush()));
}

/// Prints a label and the text behind it; in a terminal the text is wrapped and stays behind the label.
pub(crate) fn paragraph(label: &str, text: &str) {
    let whole = format!("{label}{text}");
    if !std::io::stdout().is_terminal() {
        return line(format_args!("{whole}"));
    }
    for part in wrapped(label, &whole, textwrap::termwidth()) {
        line(format_args!("{part}"));
    }
}

fn wrapped(label: &str, whole: &str, width: usize) -> Vec<String> {
    let indent = " ".repeat(label.chars().count());
    let options = textwrap::Options::new(width)
        .subsequent_indent(&indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    textwrap::wrap(whole, options)
        .into_iter()
        .map(std::borrow::Cow::into_owned)
        .collect()
}

fn checked(result: std::io::Result<()>) {
    let Err(error) = result else { return };
    if error.kind() != ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        note!("terrace: Cannot write to standard output: {error}");
    }
}

/// Whether something could not be printed.
pub(crate) fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_whole_and_behind_the_label() {
        let lines = wrapped("  do: ", "  do: put it beside a-very-long-name", 18);
        assert_eq!(
            lines,
            ["  do: put it", "      beside", "      a-very-long-name"].map(str::to_owned)
        );
    }
}
