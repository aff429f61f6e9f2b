// SPDX-License-Identifier: MIT OR Apache-2.0
//! The published schema is that of the types, and a status keeps to it.
//!
//! `TERRACE_WRITE_DOCS=1` writes the file anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;
use terrace_api::Answer;
use terrace_api::NodeStatus;
use terrace_api::ProcessStatus;
use terrace_api::SCHEMA_VERSION;
use terrace_api::Status;
use terrace_api::TrackerStatus;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_policy::Engine;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Stats;
use terrace_policy::Verdict;

fn status() -> Status {
    let tiers = terrace_core::Tiers::default();
    let policy = terrace_policy::by_name("none", &tiers).expect("known");
    let mut engine = Engine::new(policy);
    let moved = Event::Ended {
        page: PageRef {
            pid: Pid(8),
            addr: Addr(4096),
            size: PageSize::Base4K,
        },
        migration: Migration::Demote { to: NodeId(1) },
        from: None,
        verdict: Verdict::Moved { shadow: false },
        mechanism: Mechanism::Transaction,
        took: Nanos(9_000),
        inaccessible: Nanos(7_000),
    };
    engine.observe(Nanos::ZERO, &moved);
    engine.stats_mut().migration_written_bytes.insert(1, 4096);
    engine.stats_mut().set_writes(Some(1000));
    Status {
        schema_version: SCHEMA_VERSION,
        supervisor_pid: 7,
        policy: "none".to_owned(),
        paused: false,
        seconds: 0.25,
        processes: vec![ProcessStatus {
            pid: 8,
            agent: true,
            name: "redis".to_owned(),
        }],
        nodes: vec![NodeStatus {
            node: 1,
            tier: 1,
            free_bytes: 1 << 20,
            cache_bytes: 0,
            total_bytes: 1 << 30,
        }],
        stats: engine.stats(),
        policy_counters: BTreeMap::from([("passes".to_owned(), 3)]),
        trackers: vec![TrackerStatus {
            name: "pmu".to_owned(),
            counters: BTreeMap::from([("lost".to_owned(), 0)]),
        }],
        limits: vec!["no shadows".to_owned()],
    }
}

#[test]
fn the_published_schema_is_that_of_the_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/status.schema.json");
    let now = terrace_api::status::schema();
    if std::env::var_os("TERRACE_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{now:#}\n")).expect("written");
    }
    let published = fs::read_to_string(&path).expect("it is published");
    let published: Value = serde_json::from_str(&published).expect("JSON");
    assert!(
        published == now,
        "docs/status.schema.json is out of date: run `make figures`"
    );
}

#[test]
fn a_status_keeps_to_the_schema() {
    let schema = terrace_api::status::schema();
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let whole = serde_json::to_value(status()).expect("JSON");
    let wrong: Vec<String> = validator
        .iter_errors(&whole)
        .map(|e| e.to_string())
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    // What is not in order is refused.
    for (name, with) in [
        ("/schema_version", Value::from(SCHEMA_VERSION + 1)),
        ("/stats/hint_faults", Value::from(-1)),
        ("/stats/inaccessible_ns", Value::from(7)),
        ("/nodes/0/free_bytes", Value::from("much")),
    ] {
        let mut other = whole.clone();
        *other.pointer_mut(name).expect("it is there") = with;
        assert!(!validator.is_valid(&other), "{name}");
    }
    let figures = schema.pointer("/$defs/Stats/properties").expect("figures");
    let figures = figures.as_object().expect("by name");
    assert_eq!(figures.len(), Stats::FIGURES.len());
    for figure in Stats::FIGURES {
        assert_eq!(figures[figure.name]["unit"], figure.unit.name());
    }
}

#[test]
fn what_is_written_is_read_back_and_another_version_refused() {
    let answer = Answer::Status(Box::new(status()));
    let line = answer.line();
    assert_eq!(Answer::read(&line).expect("its own words"), answer);
    // An older one lacks figures that came since.
    let older = line.replace("\"unanswered\":0,", "");
    assert_ne!(older, line);
    assert_eq!(Answer::read(&older).expect("they are 0"), answer);
    let mine = format!("\"schema_version\":{SCHEMA_VERSION}");
    let other = line.replace(&mine, "\"schema_version\":77");
    let error = Answer::read(&other)
        .expect_err("another version")
        .to_string();
    assert!(error.contains("version 77"), "{error}");
}
