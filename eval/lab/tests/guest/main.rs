// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terrace in the emulated two-tier machine, end to end: the stress of the transactions, real programs, crashes,
//! missing permissions. All are ignored unless asked for (`scripts/test` does) and need the release binaries beside
//! `terrace-lab`; they run one at a time, most of them in one machine ([`machine`]).
//!
//! `TERRACE_STRESS_SECONDS` sets how long each stress runs.

mod both;
mod kernel;
mod lacking;
mod machine;
mod presets;
mod programs;
mod runs;
mod samples;
mod stress;

/// A small program whose memory starts on the slow node.
const SMALL: &str = "terrace-bench nomad-small-read --fast-free 60M --place slow";

/// Waits until the program of a run in the background, `$sup`, has its pages where they start and says so in `/tmp/out`. Who
/// lets a paused run act before that moves some while others are placed.
const READY: &str = "until grep -qs ready /tmp/out; do sleep 0.1; kill -0 $sup || exit 9; done";

/// A command that succeeds where this figure of a run's statistics, in `/tmp/s`, is more than so much.
fn is_more(figure: &str, than: u64) -> String {
    format!(
        "python3 -c 'import json; exit(json.load(open(\"/tmp/s\"))[\"stats\"][\"{figure}\"] <= {than})'"
    )
}

/// The number behind `"name":` in JSON that is known to hold it once.
fn number(json: &str, name: &str) -> u64 {
    let at = json
        .find(&format!("\"{name}\":"))
        .unwrap_or_else(|| panic!("no {name} in {json}"));
    let digits: String = json[at..]
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().expect("digits")
}

/// The number behind a word, at the start of a line or after others.
fn behind(text: &str, word: &str) -> u64 {
    let mut words = text
        .split_whitespace()
        .skip_while(|w| w.trim_end_matches(':') != word);
    let number = words.nth(1).and_then(|n| n.parse().ok());
    number.unwrap_or_else(|| panic!("no {word} in {text}"))
}
