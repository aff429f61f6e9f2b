// SPDX-License-Identifier: MIT OR Apache-2.0
//! `terrace-bench primitives --json`: every name is there, what is missing says why, and what must
//! be dearer is dearer. No limit on any figure.

use assert_cmd::Command;
use serde_json::Value;

fn report() -> Value {
    let mut command = Command::cargo_bin("terrace-bench").expect("it is built with the test");
    let output = command
        .args(["primitives", "--json", "--rounds", "3", "--read-mib", "64"])
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn figure<'a>(report: &'a Value, what: &str) -> &'a Value {
    let figures = report["figures"].as_array().expect("a list");
    let found = figures.iter().find(|f| f["what"] == what);
    found.unwrap_or_else(|| panic!("no figure {what}"))
}

#[test]
fn names_reasons_and_order() {
    let report = report();
    assert_eq!(report["run"]["options"][0], "primitives");
    assert!(report["run"]["revision"].is_string() && report["run"]["kernel"].is_string());
    for name in [
        "hint_fault_ns",
        "pte_scan_ns",
        "pmu_sample_ns",
        "probe_ns",
        "shootdown_base_ns",
        "shootdown_per_cpu_ns",
        "page_fault_ns",
        "page_copy_ns",
        "migrate_fixed_ns",
        "transaction_fixed_ns",
        "commit_ns",
        "shadow_demote_ns",
        "write_protect_fault_ns",
    ] {
        let cost = &report["costs"][name];
        let present = report["costs"].as_object().unwrap().contains_key(name);
        assert!(present, "{name} is missing");
        assert!(
            cost.is_null() || cost.as_f64().unwrap() >= 0.0,
            "{name}: {cost}"
        );
    }
    for figure in report["figures"].as_array().unwrap() {
        // A figure or the reason, never both, never neither.
        assert_ne!(figure["ns"].is_null(), figure["why"].is_null(), "{figure}");
        if let Some(ns) = figure["ns"].as_f64() {
            let spread: Vec<f64> = serde_json::from_value(figure["spread"].clone()).unwrap();
            assert!(ns >= 0.0 && spread[0] <= ns && ns <= spread[1], "{figure}");
        }
    }
    let ns = |what: &str| figure(&report, what)["ns"].as_f64();
    // What a Linux without userfaultfd or a second node cannot measure is not compared.
    for (cheaper, dearer) in [
        ("page_copy", "huge_copy"),
        ("uffd_protect_batched", "uffd_protect"),
        ("uffd_move_batched", "uffd_move"),
        ("pte_marking", "page_fault"),
        ("alu", "syscall"),
        ("uffd_protect_batched", "uffd_fault"),
    ] {
        if let (Some(a), Some(b)) = (ns(cheaper), ns(dearer)) {
            assert!(a < b, "{cheaper} {a} ns, {dearer} {b} ns");
        }
    }
    for always in [
        "alu",
        "syscall",
        "page_fault",
        "page_copy",
        "huge_copy",
        "read_node_0",
    ] {
        assert!(ns(always).is_some(), "{always} was not measured");
    }
}
