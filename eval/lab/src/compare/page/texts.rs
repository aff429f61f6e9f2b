// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the page says at any time: what it is about, its words, and what to try next.

use std::fmt::Write;

use terrace_chart::escape;

use super::RunRecord;
use crate::compare::record::AUTONUMA;

pub(super) const ABOUT: &str = "Each run boots an emulated machine with a fast and a slow memory node under \
    an unpatched kernel. The slow node is as slow, against the fast one, as the machine file says; \
    the emulator counts which node serves each access. Rates compare with each other, not with \
    those of a real machine.";

/// What a first-time reader may not know.
const GLOSSARY: [(&str, &str); 10] = [
    ("none", "no tiering: pages stay where they were put first"),
    (
        "kernel",
        "the kernel's own tiering: numa_balancing 2, and demotion",
    ),
    (
        "oracle",
        "the best static placement, known beforehand from the true counts of accesses",
    ),
    (
        "ops/s",
        "operations a second in the last third of a run, the mean, idle seconds included; of several runs, the median",
    ),
    (
        "× none",
        "the rate in times of no tiering's of the same round: the median of the rounds, and the 95 % interval",
    ),
    (
        "fast accesses",
        "the share of accesses to memory that the fast node served, in the last third of a run; of several runs, the median",
    ),
    (
        "promoted, demoted",
        "pages moved to the fast node, away from it",
    ),
    (
        "90 % of oracle after",
        "seconds until the rate was 90 % of the oracle's",
    ),
    (
        "TPM",
        "transactional page migration (Nomad): a page is copied while it stays accessible, and a write aborts that",
    ),
    (
        "shadow hit",
        "a page went down onto the copy that had been kept of it, and nothing was copied",
    ),
];

pub(super) fn glossary(out: &mut String) -> std::fmt::Result {
    out.push_str("<section>\n<details><summary>Words</summary>\n<dl>\n");
    let by_default = "the kernel as distributions set it up: numa_balancing 1, no demotion; promoted is all that it moved";
    for (term, means) in GLOSSARY.into_iter().chain([(AUTONUMA.name, by_default)]) {
        writeln!(out, "<dt>{term}</dt><dd>{means}</dd>")?;
    }
    out.push_str("</dl>\n</details>\n</section>\n");
    Ok(())
}

/// Where make puts the programs, from the repository's root.
const PROGRAMS: &str = "target/release";

/// Commands to try. A program is looked for in the guest as it would be here: in this directory, and by PATH.
pub(super) fn next(out: &mut String, records: &[RunRecord]) -> std::fmt::Result {
    let file = |run: &RunRecord| run.run.as_ref()?.machine_file.clone();
    let file = records.iter().find_map(file);
    let file = file.as_deref().unwrap_or("machines/cxl-2tier.toml");
    let terrace = format!("{PROGRAMS}/terrace");
    writeln!(
        out,
        "<section>\n<h2>Try next</h2>\n<p>From the repository's root, your own program in the same machine: \
         <code>{PROGRAMS}/terrace-lab run --machine {} -- {terrace} run --stats -- CMD</code></p>\n\
         <p>On a machine with two tiers: <code>{terrace} doctor</code>, then <code>{terrace} run -- CMD</code></p>\n\
         </section>",
        escape(file)
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::compare::record::System;

    #[test]
    fn the_next_commands_are_where_make_builds_them() {
        let mut record = RunRecord::failed("gups", System::None, String::new());
        let made_by = ("QEMU 1".to_owned(), "6.12".to_owned());
        let run =
            terrace_experiment::RunInfo::of_machine(("m", &0), Path::new("my/m.toml"), made_by);
        record.run = Some(Box::new(run));
        let mut page = String::new();
        next(&mut page, &[record]).unwrap();
        let wanted = "<code>target/release/terrace-lab run --machine my/m.toml -- \
                      target/release/terrace run --stats -- CMD</code>";
        assert!(page.contains(wanted), "{page}");
        let makefile = include_str!("../../../../../Makefile");
        let built: Vec<&str> = makefile.split_whitespace().collect();
        for code in page.split("<code>").skip(1) {
            let program = code.split([' ', '<']).next().expect("a first word");
            assert!(built.contains(&program), "{program}");
        }
    }
}
