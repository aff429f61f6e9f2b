// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs of milliseconds on this machine's memory: contents are checked, and damage is found.

use std::sync::atomic::AtomicU64;

use terrace_workload::NAMES;
use terrace_workload::Sizes;
use terrace_workload::Workload;

use super::*;

fn options(milliseconds: u64) -> Options {
    Options {
        seed: 11,
        place: Place::FirstTouch,
        fast: NodeId(0),
        slow: NodeId(0),
        orders: vec![vec![NodeId(0)]],
        oracle_pages: None,
        bind: false,
        first_thread: 0,
        time: Duration::from_millis(milliseconds),
        huge: false,
    }
}

fn program(name: &str, settings: &[&str]) -> Program {
    let sizes = settings
        .iter()
        .try_fold(Sizes::fast_free(4 << 20), |sizes, text| sizes.with(text))
        .expect("settings");
    Workload::named(name, &sizes)
        .expect(name)
        .programs
        .remove(0)
}

/// A word that was updated, and how often.
fn updated<'a>(run: &'a Run<'_>) -> (u64, &'a AtomicU64, u32) {
    (0..)
        .zip(run.arena.words())
        .find_map(|(index, word)| {
            let updates = content::updates(11, index, word.load(Relaxed))?;
            (updates > 0).then_some((index, word, updates))
        })
        .expect("a run of writes updates something")
}

#[test]
fn every_update_of_every_workload_is_found_again() {
    for name in NAMES {
        let (program, options) = (program(name, &[]), options(5));
        let run = Run::prepare(&program, &options).expect("small");
        let mut lines = Vec::new();
        let check = run
            .visit_and_check(&AtomicBool::new(false), |line| lines.push(line.clone()))
            .expect("ran");
        assert!(check.passed(), "{name}: {check:?}");
        assert_eq!(check.words, u64::from(program.pages) * 512);
        let writes = program.phases[0].parts.iter().any(|p| p.write_percent > 20);
        assert!(!writes || check.updates_made > 0, "{name}: {check:?}");
        assert!(
            matches!(lines[..], [Line::Total(_), Line::Check(_)]),
            "{lines:?}"
        );
    }
}

#[test]
fn ready_says_where_the_pages_are_and_how_many_are_visited() {
    let (gups, options) = (program("gups", &[]), options(0));
    let ready = Run::prepare(&gups, &options)
        .expect("small")
        .ready()
        .expect("placed");
    assert_eq!(ready.pages_by_node, [2764]);
    assert_eq!(ready.active_bytes, ready.bytes);
    let pmbench = program("pmbench", &[]);
    let ready = Run::prepare(&pmbench, &options)
        .expect("small")
        .ready()
        .expect("placed");
    assert_eq!(
        ready.active_bytes,
        ready.bytes.div_ceil(8192) * 4096,
        "every second page"
    );
    assert!((ready.share_by_node[0] - 1.0).abs() < 1e-4);
}

#[test]
fn threads_lose_no_update() {
    let (program, options) = (program("gups", &["threads=3"]), options(60));
    let run = Run::prepare(&program, &options).expect("small");
    let (logs, strange, _) = run
        .visit(&AtomicBool::new(false), &mut |_| {})
        .expect("ran");
    assert_eq!((logs.len(), strange), (3, None));
    assert!(logs.iter().all(|log| log.updates > 0), "{logs:?}");
    assert!(run.check(&logs).passed());
    assert_eq!(run.replay(&logs), [], "the replay agrees word by word");
}

#[test]
fn phases_change_by_the_clock_and_replay_knows() {
    let (program, options) = (program("phases", &["phase_time=5ms"]), options(300));
    let run = Run::prepare(&program, &options).expect("small");
    let (logs, ..) = run
        .visit(&AtomicBool::new(false), &mut |_| {})
        .expect("ran");
    assert!(logs[0].phases.len() >= 3, "{logs:?}");
    assert!(logs[0].phases.windows(2).all(|pair| pair[0].0 < pair[1].0));
    assert!(run.check(&logs).passed());
    assert_eq!(run.replay(&logs), []);
}

#[test]
fn a_lost_update_is_named() {
    for settings in [&["threads=1"][..], &["threads=2"]] {
        let (program, options) = (program("gups", settings), options(5));
        let run = Run::prepare(&program, &options).expect("small");
        let (logs, ..) = run
            .visit(&AtomicBool::new(false), &mut |_| {})
            .expect("ran");
        assert!(run.check(&logs).passed());
        // Take one update back, as a stale shadow would.
        let (index, word, updates) = updated(&run);
        let stale = content::word(11, index, updates - 1);
        word.store(stale, Relaxed);
        let check = run.check(&logs);
        assert!(!check.passed());
        let expected = content::word(11, index, updates);
        let address = run.arena.address(index);
        let wrong = WrongWord {
            address,
            expected,
            found: stale,
        };
        assert_eq!(check.wrong, [wrong]);
    }
}

#[test]
fn a_zero_page_stops_the_run() {
    for settings in [&["threads=1"][..], &["threads=3"]] {
        let (program, options) = (program("gups", settings), options(60_000));
        let run = Run::prepare(&program, &options).expect("small");
        for word in run.arena.words() {
            word.store(0, Relaxed);
        }
        let check = run
            .visit_and_check(&AtomicBool::new(false), |_| {})
            .expect("ran");
        assert!(!check.passed());
        assert_eq!(check.wrong[0].found, 0);
    }
}

#[test]
fn the_oracle_fills_the_fast_node_first() {
    let (program, mut options) = (program("gups", &[]), options(0));
    options.place = Place::Oracle;
    for pages in [None, Some(Rooms::from([(NodeId(0), 10)]))] {
        options.oracle_pages = pages;
        let run = Run::prepare(&program, &options).expect("small");
        let ready = run.ready().expect("placed");
        assert!((ready.share_by_node[0] - 1.0).abs() < 1e-4, "{ready:?}");
    }
}

#[test]
fn a_thread_updates_its_own_partition_and_nothing_else() {
    let program = program("gups-crossed", &["threads=3"]);
    for place in [Place::Workload, Place::FirstTouch, Place::Oracle] {
        let options = Options {
            place,
            ..options(200)
        };
        let run = Run::prepare(&program, &options).expect("small");
        let (logs, strange, _) = run
            .visit(&AtomicBool::new(false), &mut |_| {})
            .expect("ran");
        assert_eq!(strange, None);
        for (log, own) in logs.iter().zip(&program.partitions) {
            let (first, end) = (u64::from(own.start) * 512, u64::from(own.end) * 512);
            let words = (first..end).zip(&run.arena.words()[work::usize_of(first)..]);
            let updates = words.map(|(index, word)| {
                let updates = content::updates(11, index, word.load(Relaxed));
                u64::from(updates.expect("its own words"))
            });
            let found: u64 = updates.sum();
            assert!(log.updates > 0 && found == log.updates, "{found} {log:?}");
        }
        assert_eq!(run.replay(&logs), []);
    }
}
