// SPDX-License-Identifier: MIT OR Apache-2.0
//! Terrace in the emulated two-tier machine, end to end: the stress of the transactions, real programs, crashes,
//! missing permissions. All are ignored unless asked for (`scripts/test` does) and need the release binaries beside
//! `terrace-lab`; they run one at a time, most of them in one machine ([`machine`]).
//!
//! `TERRACE_STRESS_SECONDS` sets how long each stress runs.

mod both;
mod chosen;
mod groups;
mod huge;
mod kernel;
mod lacking;
mod losing;
mod machine;
mod presets;
mod programs;
mod quality;
mod runs;
mod samples;
mod sockets;
mod stress;

/// A small program whose memory starts on the slow node, and which visits it until it is told to [`END`], or for
/// longer than any host needs.
const SMALL: &str = "terrace-bench nomad-small-read --fast-free 60M --place slow --seconds 5m";

/// Ends [`SMALL`], which says what it reached and checks its memory.
const END: &str = "pkill -TERM -x terrace-bench";

/// Waits until the program of a run in the background, `$sup`, has its pages where they start and says so in `/tmp/out`. Who
/// lets a paused run act before that moves some while others are placed.
const READY: &str = "until grep -qs ready /tmp/out; do sleep 0.1; kill -0 $sup || exit 9; done";

/// Whether the scanner is off, or idles: it is mode 2 without promotions once the kernel has armed anything since the boot, as it has
/// in a machine that tests share.
const OFF: &str = "{ mode=$(cat /proc/sys/kernel/numa_balancing)
  limit=$(cat /proc/sys/kernel/numa_balancing_promote_rate_limit_MBps)
  [ $mode = 0 ] || [ $mode$limit = 20 ]; }";

/// What a program did to its mappings, `terrace-stress words`: all but what is for huge pages.
const CHAOS: &str = "--chaos fork,munmap,mremap,dontneed,mprotect,rw";

/// The digits of a figure of the supervisor of this process id, or none.
fn figure(supervisor: &str, name: &str) -> String {
    format!("$(terrace status --json {supervisor} | sed -n '/\"{name}\":/{{s/[^0-9]//g;p;q}}')")
}

/// Waits until the supervisor of this process id has more than so much of a figure: hosts differ too much for a time.
fn until_more(supervisor: &str, name: &str, than: impl std::fmt::Display) -> String {
    let now = figure(supervisor, name);
    format!(
        "until [ 0{now} -gt {than} ]; do
           sleep 0.2; kill -0 {supervisor} || exit 8
         done"
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
