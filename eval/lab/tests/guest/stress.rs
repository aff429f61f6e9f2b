// SPDX-License-Identifier: MIT OR Apache-2.0
//! The stress of the transactions: no word is lost.

use crate::CHAOS;
use crate::machine::guest;
use crate::number;

/// Each for so many seconds, or as many as `TERRACE_STRESS_SECONDS` says; what each counted.
fn stress(runs: &[(u32, &str)]) -> Vec<String> {
    let asked = std::env::var("TERRACE_STRESS_SECONDS");
    let each = |(seconds, options): &(u32, &str)| {
        let seconds = asked.clone().unwrap_or_else(|_| seconds.to_string());
        let run = format!("terrace-stress words --json --seconds {seconds} {options}");
        let out = guest(&run).good();
        println!("{options}: {out}");
        out
    };
    runs.iter().map(each).collect()
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_in_4k_pages() {
    // The second is how `terrace run` commits base pages by default.
    stress(&[(60, "--page-size 4k"), (10, "--page-size 4k --commit copy")]);
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_in_2m_pages() {
    // 48 MiB: the fast node has some 110 MiB, and the agent's frames need room as well.
    let huge = "--page-size 2m --pages 12";
    stress(&[(60, huge), (10, &format!("{huge} {CHAOS}"))]);
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_while_the_program_changes_its_mappings() {
    stress(&[
        (20, &format!("--page-size 4k {CHAOS}")),
        (10, &format!("--page-size 4k --commit copy {CHAOS}")),
    ]);
}

#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_when_the_supervisor_is_killed() {
    stress(&[(10, "--page-size 4k --kill-supervisor")]);
}

/// Two pages of few, asked to change places from both sides at once; among them promotions, demotions and shadows.
#[test]
#[ignore = "boots the emulated machine"]
fn no_word_is_lost_while_pages_are_exchanged_from_both_sides() {
    let chaos = format!("--exchanges {CHAOS}");
    let counted = stress(&[(15, "--exchanges"), (10, &chaos)]);
    let exchanged: Vec<u64> = counted.iter().map(|out| number(out, "exchanged")).collect();
    assert!(
        exchanged.iter().all(|pairs| *pairs > 1_000),
        "{exchanged:?}"
    );
}
