// SPDX-License-Identifier: MIT OR Apache-2.0
//! Standard output whose reader may go away: `terrace sim … | head` is no mistake.
//!
//! What nobody reads is dropped and the command goes on: it may be putting settings back. Any other
//! error is said once on standard error, and makes the command fail.

use std::fmt;
use std::io::ErrorKind;
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

/// Prints a line.
pub(crate) fn line(text: fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    note(writeln!(out, "{text}").and_then(|()| out.flush()));
}

fn note(result: std::io::Result<()>) {
    let Err(error) = result else { return };
    if error.kind() != ErrorKind::BrokenPipe && !FAILED.swap(true, Ordering::Relaxed) {
        eprintln!("terrace: Cannot write to standard output: {error}");
    }
}

/// Whether something could not be printed.
pub(crate) fn failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}
