// SPDX-License-Identifier: MIT OR Apache-2.0
//! The validation that is kept in the repository: what the document says of it, and that the judge could have said no.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use terrace_experiment::hash_of;
use terrace_lab::validate::judge;
use terrace_lab::validate::judge::Verdict;
use terrace_lab::validate::results::Results;
use terrace_lab::validate::table;
use terrace_machine_spec::Machine;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn kept() -> (String, Results) {
    let text = fs::read_to_string(root().join("docs/results/validation.json")).expect("it is kept");
    let results = serde_json::from_str(&text).expect("results");
    (text, results)
}

#[test]
fn the_document_has_what_the_kept_results_give() {
    let (_, results) = kept();
    let machine = Machine::load(&root().join("machines/cxl-2tier.toml")).expect("a machine");
    assert_eq!(results.settings.machine_hash, hash_of(&machine));
    let fast = machine.ranking(0)[0];
    let document = fs::read_to_string(root().join("docs/validation.md")).expect("it is there");
    let made = table::into_document(&document, &table::markdown(&results, fast));
    assert!(
        made.expect("a marker") == document,
        "docs/validation.md is not what docs/results/validation.json gives; run \
         terrace-lab validate --lab-from docs/results/validation.json --as-kept \
         --json docs/results/validation.json --document docs/validation.md"
    );
}

#[test]
fn what_is_kept_is_compact_and_says_what_it_was_made_with() {
    let (text, results) = kept();
    assert!(text.len() < 200_000, "{} bytes", text.len());
    let run = &results.run;
    assert!(run.emulator.is_some() && run.kernel.is_some() && run.costs.is_some());
    assert!(results.cases.iter().any(|case| case.set_aside));
    assert!(results.cases.iter().any(|case| !case.set_aside));
    assert!(!text.contains(": \"/"), "a path of somebody's");
    assert!(results.settings.threads > 1, "no processor is left over");
}

#[test]
fn a_simulator_with_two_systems_exchanged_is_refused() {
    let (_, results) = kept();
    assert!(results.nulls_are_caught());
    let mut exchanged = 0;
    for case in &results.cases {
        for null in judge::nulls(case) {
            let mut case = case.clone();
            let at = |system| case.systems.iter().position(|of| of.system == system);
            let (a, b) = (at(null.systems.0), at(null.systems.1));
            let (a, b) = (a.expect("one of them"), b.expect("one of them"));
            let first = case.systems[a].simulated;
            case.systems[a].simulated = case.systems[b].simulated;
            case.systems[b].simulated = first;
            assert!(!Verdict::of(&case).agrees(), "{:?}", null.systems);
            exchanged += 1;
        }
    }
    assert!(exchanged > 0);
}
