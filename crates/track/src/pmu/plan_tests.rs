// SPDX-License-Identifier: MIT OR Apache-2.0
//! Choosing events on machines that are made up: their files are in a directory, their PMUs have the
//! number of the kernel's own events (1), which open anywhere, or one that no kernel has.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::plan::Plan;
use super::plan::plan;
use super::*;

const NOBODY: u32 = 60_000;

/// A machine with these PMUs, of these numbers and with these fields.
fn machine(cpuinfo: &str, pmus: &[(&str, u32, &[&str])]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: String, text: &str| {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("proc/cpuinfo".to_owned(), cpuinfo);
    write("sys/devices/system/cpu/online".to_owned(), "0\n");
    for (name, kind, formats) in pmus {
        let device = format!("sys/bus/event_source/devices/{name}");
        write(format!("{device}/type"), &format!("{kind}\n"));
        for format in *formats {
            write(format!("{device}/format/{format}"), "config2:0\n");
        }
    }
    root
}

fn cpuinfo(vendor: &str, family: u32, model: u32) -> String {
    format!("vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nstepping\t: 7\n\n")
}

/// `None`, loudly, where perf events are not permitted.
fn planned(root: &Path, table: &str, found: &mut Survey) -> Option<Result<Plan, PmuError>> {
    let mut config = PmuConfig::default();
    config.table.extend(table).unwrap();
    match plan(root, &config, found) {
        Err(error @ (PmuError::NotPermitted { .. } | PmuError::NoPerf(_))) => {
            eprintln!("SKIPPED: {error}");
            None
        }
        result => Some(result),
    }
}

const NO_ROWS: &str = "cpu = []";

#[test]
fn a_processor_nobody_knows() {
    let root = machine(&cpuinfo("NewMaker", 1, 2), &[]);
    let mut found = Survey::default();
    let Some(result) = planned(root.path(), NO_ROWS, &mut found) else {
        return;
    };
    let text = result.unwrap_err().to_string();
    assert!(text.contains("NewMaker, family 0x1, model 0x2"), "{text}");
    assert!(text.contains("docs/pmu.md"), "{text}");
    assert_eq!(found.row, None);
    // Permission was found all the same.
    assert!(found.per_cpu.is_some());
}

#[test]
fn a_virtual_machine_without_a_pmu() {
    let root = machine(
        &cpuinfo("AuthenticAMD", 0x19, 0x11),
        &[("software", 1, &[]), ("msr", 9, &[])],
    );
    let mut found = Survey::default();
    let Some(result) = planned(root.path(), NO_ROWS, &mut found) else {
        return;
    };
    let text = result.unwrap_err().to_string();
    assert!(text.contains("no PMU 'ibs_op' for AMD Zen (IBS)"), "{text}");
    assert!(text.contains("msr, software"), "{text}");
    assert_eq!(found.events[0].refused.as_deref(), Some("no PMU 'ibs_op'"));
}

#[test]
fn a_pmu_that_refuses() {
    let root = machine(&cpuinfo("GenuineIntel", 6, 0x8f), &[("cpu", NOBODY, &[])]);
    let mut found = Survey::default();
    let Some(result) = planned(root.path(), NO_ROWS, &mut found) else {
        return;
    };
    let text = result.unwrap_err().to_string();
    assert!(
        text.contains("MEM_LOAD_RETIRED.L3_MISS: the PMU does not do it"),
        "{text}"
    );
    assert!(found.events.iter().all(|event| event.refused.is_some()));
    assert_eq!(text.lines().count(), 1);
}

fn row(first: &str) -> String {
    format!(
        r#"
        [[cpu]]
        name = "mine"
        source = "a test"
        event = [
            {{ name = "LOADS", pmu = "{first}", access = "load", config = 2 }},
            {{ name = "STORES", pmu = "software", access = "store", config = 5, period_factor = 3 }},
            {{ name = "MISSES", pmu = "software", access = "load", config = 2, fallback = true }},
        ]
        "#
    )
}

#[test]
fn a_fallback_stands_in_where_nothing_else_sees_loads() {
    let root = machine(
        &cpuinfo("GenuineIntel", 6, 0x8f),
        &[("software", 1, &[]), ("cpu", NOBODY, &[])],
    );
    for (first, expected) in [
        ("software", ["LOADS", "STORES"]),
        ("cpu", ["STORES", "MISSES"]),
        ("absent", ["STORES", "MISSES"]),
    ] {
        let mut found = Survey::default();
        let Some(result) = planned(root.path(), &row(first), &mut found) else {
            return;
        };
        let plan = result.unwrap();
        let names: Vec<_> = plan.events.iter().map(|e| e.name.as_str()).collect();
        assert_eq!(names, expected);
        // Whether it is needed or not, it is said to work.
        assert_eq!(found.events[2].refused, None);
        assert_eq!(plan.cpus, [0]);
        let stores = plan.events.iter().find(|e| e.name == "STORES").unwrap();
        assert_eq!(stores.spec.period, 15_000);
    }
}

#[test]
fn the_kernel_is_left_out_by_the_pmu_or_by_us() {
    let table = r#"
        [[cpu]]
        name = "mine"
        source = "a test"
        [[cpu.event]]
        name = "OPS"
        pmu = "ibs"
        access = "data-source"
        config = 2
        config2 = 4
        user_filter = { format = "swfilt", config2 = 1 }
    "#;
    for (formats, config2, user_only) in [(&["swfilt"][..], 5, true), (&[][..], 4, false)] {
        let root = machine(&cpuinfo("AuthenticAMD", 0x1a, 0), &[("ibs", 1, formats)]);
        let mut found = Survey::default();
        let Some(result) = planned(root.path(), table, &mut found) else {
            return;
        };
        match result {
            Ok(plan) => {
                let spec = plan.events[0].spec;
                assert_eq!((spec.config2, spec.user_only), (config2, user_only));
            }
            // The kernel's own accesses are for privileged users.
            Err(PmuError::NoEvent { why, .. }) if !user_only => {
                assert_eq!(why, "OPS: not permitted");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_opened() {
    let good = PmuConfig::default();
    for bad in [
        PmuConfig {
            period: 0,
            ..good.clone()
        },
        PmuConfig {
            cost_share: 0.0,
            ..good.clone()
        },
        PmuConfig {
            cost_share: f64::NAN,
            ..good.clone()
        },
        PmuConfig {
            ring_bytes: 100_000,
            ..good.clone()
        },
    ] {
        let error = plan(Path::new("/nowhere"), &bad, &mut Survey::default());
        assert!(matches!(error, Err(PmuError::Config(_))), "{error:?}");
    }
}
