// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Chrono policy: as its paper's sentences say, against a slow reference; rule by rule; and whatever comes.

#[path = "common/machine.rs"]
mod machine;
#[path = "chrono/reference.rs"]
mod reference;
#[path = "chrono/steps.rs"]
mod steps;

use std::collections::BTreeMap;

use machine::FAST;
use machine::FAST_PAGES;
use machine::HIGH;
use machine::Machine;
use machine::PAGE;
use machine::SLOW;
use machine::page;
use machine::tiers;
use proptest::prelude::*;
use reference::Reference;
use steps::MOVED;
use steps::counter;
use steps::verdict;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::presets::chrono::Chrono;
use terrace_policy::presets::chrono::Params;
use terrace_policy::presets::chrono::params::Probe;
use terrace_policy::presets::chrono::params::Source;
use terrace_policy::presets::chrono::params::TuningKind;
use terrace_policy::presets::chrono::queue::ENTRY_BYTES;

const PAGES: u64 = 160;

/// A small machine's: 40 pages a second, periods of a fifth of one.
fn params() -> Params {
    Params {
        scan_period: Nanos::from_millis(200),
        rate_limit: 40 * PAGE,
        tuning: TuningKind::SemiAuto,
        cit_threshold: Nanos::from_millis(100),
        cit: Source::Faults,
        ..Params::default()
    }
}

/// `fast` pages on the fast node, the rest of `pages` on the slow one.
fn machine(params: Params, fast: u64, pages: u64) -> Machine {
    let policy = Chrono::new(params, tiers());
    Machine::new(policy, (params.inflight_pages, false), fast, pages)
}

fn agree(steps: &[(u8, u8, u8)], params: Params, fast: u64) -> Result<(), TestCaseError> {
    let mut machine = machine(params, fast, PAGES);
    let mut reference = Reference::new(params, fast);
    let mut gone = Vec::new();
    for &(what, a, b) in steps {
        let n = u64::from(a) % PAGES;
        machine.wait(u64::from(b % 8));
        match what {
            0..=8 if machine.node[&n] == SLOW => {
                for n in n..(n + 6).min(PAGES) {
                    if machine.node[&n] == SLOW && !gone.contains(&n) {
                        let cit = Nanos::from_millis(u64::from(b) + n % 5);
                        machine.fault_after(n, Some(cit));
                        reference.fault(machine.now, n, cit);
                    }
                }
            }
            0..=10 => (0..24).for_each(|i| machine.touch((n + i) % PAGES)),
            11 | 12 => {
                machine.wait(1);
                let told = machine.read(what == 12);
                told.iter().for_each(|told| reference.read(told));
                gone.clear();
            }
            13 | 14 => {
                let wanted = reference.tick(machine.now, machine.free());
                prop_assert_eq!(machine.tick(), wanted);
                let policy = machine.policy.as_ref();
                prop_assert_eq!(counter(policy, "rate_limit"), reference.limit());
                let threshold = reference.threshold.0 / 1_000;
                prop_assert_eq!(counter(policy, "cit_threshold"), threshold);
                prop_assert_eq!(counter(policy, "queue_dropped"), reference.dropped);
            }
            _ => {
                let flying: Vec<u64> = machine.flying.keys().copied().collect();
                for n in flying.into_iter().filter(|n| (n + u64::from(a)) % 3 > 0) {
                    let luck = (n * 37).to_le_bytes()[0].wrapping_add(b);
                    let mut verdict = verdict(luck);
                    if machine.node[&n] == SLOW && machine.free() == 0 {
                        verdict = Verdict::NoMemory;
                    }
                    // What is lost the next reading finds again.
                    gone.extend((verdict == Verdict::Lost).then_some(n));
                    reference.ended(machine.now, n, verdict);
                    machine.finish(n, verdict);
                    if verdict == Verdict::Lost {
                        machine.node.insert(n, SLOW);
                    }
                }
            }
        }
    }
    Ok(())
}

fn steps() -> impl Strategy<Value = Vec<(u8, u8, u8)>> {
    prop::collection::vec((0_u8..17, any::<u8>(), any::<u8>()), 1..500)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// From an empty fast node on.
    #[test]
    fn as_the_text_says(steps in steps(), rounds in 1_u8..=3) {
        agree(&steps, Params { rounds, ..params() }, 0)?;
    }

    /// From a full one on, with few migrations at a time and a short queue.
    #[test]
    fn as_the_text_says_on_a_full_node(
        steps in steps(),
        inflight_pages in 1_usize..40,
        queue in 1_usize..12,
        rate in 1_u64..400,
    ) {
        let params = Params {
            inflight_pages,
            queue_bytes: queue * ENTRY_BYTES,
            rate_limit: rate * PAGE,
            ..params()
        };
        agree(&steps, params, 98)?;
    }

    /// Anything may come at any time, of pages and processes never heard of and in any size: no panic, no page
    /// ordered twice at once, not more under way than allowed, threshold and limit in range; and the same events give
    /// the same orders.
    #[test]
    fn whatever_comes(
        steps in prop::collection::vec((0_u8..13, any::<u8>(), any::<u8>()), 1..400),
        bits: bool,
        dcsc: bool,
        probe in prop::sample::select(vec![Probe::AccessedBits, Probe::Faults, Probe::ChosenFaults]),
        each in 1_u64..60,
    ) {
        let each = Nanos::from_millis(each);
        let orders = whatever(&steps, (bits, dcsc, probe), each);
        prop_assert_eq!(orders, whatever(&steps, (bits, dcsc, probe), each));
    }
}

/// Some page of some process, in some size, on some node.
fn any_page(a: u8, b: u8) -> (PageRef, NodeId) {
    let size = if b & 2 > 0 {
        PageSize::Huge2M
    } else {
        PageSize::Base4K
    };
    let page = PageRef {
        pid: Pid(u32::from(b % 2)),
        addr: Addr(u64::from(a % 40) * (96 << 12)).align_down(size),
        size,
    };
    (page, if b & 4 > 0 { FAST } else { SLOW })
}

/// Some reading of the 2 MiB around it.
fn any_reading(policy: &mut Chrono, now: Nanos, (a, b): (u8, u8), last: bool) {
    let (page, node) = any_page(a, b);
    let huge = page.size == PageSize::Huge2M;
    let mut bits = PageBits([0x0101_0101_0101_0101 << (b % 8); 8]);
    if huge {
        bits = PageBits::NONE;
        bits.set(0);
    }
    let reading = terrace_core::ChunkReading {
        pid: page.pid,
        parts: 1,
        start: page.addr.align_down(PageSize::Huge2M),
        since: Nanos::ZERO,
        until: Nanos::from_millis(u64::from(a % 16)),
        ran: None,
        last,
        huge,
        present: bits,
        accessed: bits,
        fresh: bits,
        nodes: &[(node, bits)],
    };
    policy.accessed(now, &reading);
}

/// Some event that is no end of an order; none for a tick.
fn any_event(now: Nanos, what: u8, a: u8, b: u8) -> Option<Event> {
    let (page, node) = any_page(a, b);
    let pid = page.pid;
    let range = Range {
        start: page.addr,
        end: Addr(page.addr.0 + u64::from(b) * PAGE * 9),
    };
    let bytes = |pages: u8| u64::from(pages) * PAGE * 9;
    Some(match what {
        0..=2 => Event::HintFault {
            page,
            node: if what == 2 { NodeId(9) } else { node },
            write: b & 8 > 0,
            idle: (b & 16 > 0).then_some(Nanos(u64::from(a) << (b % 40))),
            cpu_node: None,
        },
        6 => Event::Unmapped { pid, range },
        7 if a < 16 => Event::Gone { pid },
        7 => Event::Watched {
            pid,
            parts: 1,
            pages: 1,
            busy: now,
            lost: now,
        },
        8 => Event::Armed {
            pid,
            range,
            scope: ScanScope::All,
        },
        9 => Event::Memory {
            node,
            memory: NodeMemory {
                free_bytes: bytes(a),
                low_bytes: 16 * PAGE,
                high_bytes: 32 * PAGE,
                total_bytes: bytes(255),
            },
        },
        _ => return None,
    })
}

/// The threshold is a level's. The limit is what was set or, after a look at the heat maps, the misplaced part of what
/// is known, 16 times 2 MiB at most and a page at least, in a scan period; thrashing may have halved it once a period.
fn in_range(policy: &Chrono, params: &Params, periods: u64) {
    let counter = |name| counter(policy, name);
    let threshold = counter("cit_threshold");
    assert!((1_000..=1_000 << 27).contains(&threshold), "{threshold} us");
    let percent = counter("misplacement_percent");
    assert!(percent <= 100, "{percent} %");
    let (mut least, mut most) = (params.rate_limit, params.rate_limit);
    if counter("heat_maps") > 0 {
        let rate = |percent: u64, bytes| percent * bytes * 10_000_000 / params.scan_period.0;
        // Percents are rounded.
        least = rate(percent.saturating_sub(1), PAGE);
        most = rate(percent + 1, 32 << 20);
    }
    least = least
        .checked_shr(periods.try_into().unwrap_or(u32::MAX))
        .unwrap_or(0);
    let limit = counter("rate_limit");
    assert!(
        (least..=most).contains(&limit),
        "{limit} of {least} to {most}, {percent} %"
    );
}

fn whatever(
    steps: &[(u8, u8, u8)],
    (bits, dcsc, probe): (bool, bool, Probe),
    each: Nanos,
) -> Vec<Action> {
    let params = Params {
        inflight_pages: 16,
        queue_bytes: 9 * ENTRY_BYTES,
        statistic_period: Nanos::from_millis(20),
        cit: if bits {
            Source::AccessedBits
        } else {
            Source::Faults
        },
        probe,
        tuning: if dcsc {
            TuningKind::Dcsc
        } else {
            TuningKind::SemiAuto
        },
        ..params()
    };
    let mut policy = Chrono::new(params, tiers());
    let mut flying: Vec<(PageRef, Migration)> = Vec::new();
    let mut log = Vec::new();
    let begin = Nanos::from_secs(1);
    let mut now = begin;
    for &(what, a, b) in steps {
        now = now + each;
        if let 3..=5 = what {
            any_reading(&mut policy, now, (a, b), what == 5);
        } else if let Some(event) = any_event(now, what, a, b) {
            policy.observe(now, &event);
        } else if what < 12 && !flying.is_empty() {
            let (page, migration) = flying.swap_remove(usize::from(a) % flying.len());
            let verdict = verdict(b);
            let event = Event::Ended {
                page,
                migration,
                from: None,
                verdict,
                mechanism: Mechanism::MovePages,
                took: Nanos::ZERO,
                inaccessible: Nanos::ZERO,
            };
            policy.observe(now, &event);
        } else {
            policy.tick(now);
            in_range(&policy, &params, now.since(begin).0 / params.scan_period.0);
            while let Some(action) = policy.poll_action() {
                log.push(action);
                if let Action::Migrate {
                    page, migration, ..
                } = action
                {
                    assert!(flying.iter().all(|(other, _)| *other != page), "twice");
                    flying.push((page, migration));
                    assert!(flying.len() <= 16);
                }
            }
        }
    }
    log
}

/// Faults of that page after each of these times, ms.
fn faults(machine: &mut Machine, n: u64, idle: &[u64]) {
    for ms in idle {
        machine.wait(*ms);
        machine.fault_after(n, Some(Nanos::from_millis(*ms)));
    }
}

#[test]
fn a_page_below_the_threshold_in_two_rounds_in_a_row_is_promoted() {
    let mut machine = machine(params(), 0, 64);
    faults(&mut machine, 5, &[3]);
    faults(&mut machine, 6, &[3, 150, 3]);
    faults(&mut machine, 7, &[99, 98]);
    faults(&mut machine, 8, &[100, 100, 100]);
    machine.fault_after(9, None);
    machine.fault_after(9, None);
    assert_eq!(machine.tick(), [(7, true)]);
    machine.finish(7, MOVED);
    faults(&mut machine, 6, &[3]);
    assert_eq!(machine.tick(), [(6, true)]);
    assert_eq!(counter(machine.policy.as_ref(), "candidates_lost"), 1);
}

#[test]
fn rounds_are_one_two_or_three_by_option() {
    for rounds in 1..=3_u8 {
        let mut machine = machine(Params { rounds, ..params() }, 0, 64);
        for n in 1..=3 {
            faults(&mut machine, 5, &[10]);
            let wanted: &[(u64, bool)] = if n == rounds { &[(5, true)] } else { &[] };
            assert_eq!(machine.tick(), wanted, "{n} of {rounds}");
        }
    }
}

#[test]
fn promotions_keep_to_the_limit_and_what_overflows_is_the_longest_idle() {
    let queue = 8;
    let params = Params {
        queue_bytes: queue * ENTRY_BYTES,
        rate_limit: 4 * PAGE,
        scan_period: Nanos::from_secs(60),
        ..params()
    };
    let mut machine = machine(params, 0, 64);
    for n in 0..20 {
        // 13 is coprime to 20: no order.
        let ms = 1 + n * 13 % 20;
        machine.fault_after(n, Some(Nanos::from_millis(ms)));
        machine.fault_after(n, Some(Nanos::from_millis(1)));
    }
    let policy = machine.policy.as_ref();
    assert_eq!(counter(policy, "queue_dropped"), 12);
    assert_eq!(counter(policy, "enqueued"), 20);
    // Four pages a second, the first that came first.
    let short: Vec<u64> = (0..20).filter(|n| n * 13 % 20 < 8).collect();
    let ordered = machine.tick();
    let first: Vec<u64> = ordered.iter().map(|(n, _)| *n).collect();
    assert_eq!(first, short[..4]);
    machine.wait(250);
    assert_eq!(machine.tick(), [(short[4], true)]);
    machine.wait(5_000);
    let rest: Vec<u64> = machine.tick().iter().map(|(n, _)| *n).collect();
    assert_eq!(rest, short[5..]);
}

#[test]
fn demotion_goes_up_to_the_pro_watermark_by_lru_order() {
    let mut machine = machine(params(), 98, 120);
    (0..98).for_each(|n| machine.touch(n));
    machine.read(true);
    assert_eq!(machine.tick(), [], "all were accessed");
    machine.wait(10);
    (20..98).for_each(|n| machine.touch(n));
    machine.wait(990);
    machine.read(true);
    // 2 are free, high is 4; twice 0.2 s of 40 pages a second are 16, a tenth of the node is 10.
    let down: Vec<(u64, bool)> = machine.tick();
    let wanted: Vec<(u64, bool)> = (0..12).map(|n| (n, false)).collect();
    assert_eq!(down, wanted);
    for (n, _) in down {
        machine.finish(n, MOVED);
    }
    assert_eq!(machine.tick(), []);
    assert_eq!(machine.free(), HIGH + FAST_PAGES / 10);
    let pro = counter(machine.policy.as_ref(), "pro_watermark");
    assert_eq!(pro, (HIGH + FAST_PAGES / 10) * PAGE);
}

#[test]
fn pages_that_come_back_at_once_halve_the_limit() {
    let mut machine = machine(params(), 98, 120);
    machine.read(true);
    machine.wait(1_000);
    machine.read(true);
    for (n, _) in machine.tick() {
        machine.finish(n, MOVED);
    }
    // Four of those demoted are to be promoted again, and nothing was promoted.
    for n in 0..4 {
        faults(&mut machine, n, &[10, 10]);
    }
    machine.wait(200);
    machine.tick();
    let policy = machine.policy.as_ref();
    assert_eq!(counter(policy, "thrashed"), 4);
    assert_eq!(counter(policy, "rate_limit"), 20 * PAGE);
    // Later than a scan period after its demotion it counts as any other.
    faults(&mut machine, 5, &[10, 10]);
    assert_eq!(counter(machine.policy.as_ref(), "thrashed"), 4);
    machine.wait(200);
    machine.tick();
    assert_eq!(counter(machine.policy.as_ref(), "rate_limit"), 40 * PAGE);
}

#[test]
fn a_huge_page_has_a_512th_of_the_threshold() {
    let mut policy = Chrono::new(params(), tiers());
    let memory = NodeMemory {
        free_bytes: 1 << 30,
        total_bytes: 1 << 30,
        ..NodeMemory::default()
    };
    let mut now = Nanos::from_secs(1);
    policy.observe(now, &Event::Memory { node: FAST, memory });
    policy.tick(now);
    let mut up = BTreeMap::new();
    // 100 ms / 512 = 195,312 ns.
    for (chunk, idle) in [(0, 195_000), (1, 196_000)] {
        let addr = Addr(chunk * PageSize::Huge2M.bytes());
        let huge = PageRef {
            size: PageSize::Huge2M,
            addr,
            ..page(0)
        };
        up.insert(huge, chunk == 0);
        for _ in 0..2 {
            now = now + Nanos::from_millis(500);
            let event = Event::HintFault {
                page: huge,
                node: SLOW,
                write: false,
                idle: Some(Nanos(idle)),
                cpu_node: None,
            };
            policy.observe(now, &event);
        }
    }
    policy.tick(now);
    let orders: Vec<PageRef> = std::iter::from_fn(|| policy.poll_action())
        .filter_map(|action| match action {
            Action::Migrate { page, .. } => Some(page),
            _ => None,
        })
        .collect();
    let wanted: Vec<PageRef> = up.iter().filter(|(_, up)| **up).map(|(p, _)| *p).collect();
    assert_eq!(orders, wanted);
}

#[test]
fn it_scans_what_its_options_need() {
    let scans = |cit, probe| {
        let params = Params {
            cit,
            probe,
            ..Params::default()
        };
        let mut policy = Chrono::new(params, tiers());
        let actions: Vec<Action> = std::iter::from_fn(|| policy.poll_action()).collect();
        let reads = |one: &Action| matches!(one, Action::ReadAccessed { .. });
        assert_eq!(actions.iter().filter(|one| reads(one)).count(), 1);
        let scan = actions.into_iter().find(|one| !reads(one));
        scan.map(|scan| match scan {
            Action::Scan { scope, period } => (scope, period),
            other => panic!("{other:?}"),
        })
    };
    let minute = Nanos::from_secs(60);
    let (faults, bits) = (Source::Faults, Source::AccessedBits);
    for probe in [Probe::AccessedBits, Probe::ChosenFaults] {
        assert_eq!(scans(faults, probe), Some((ScanScope::Slow, minute)));
        assert_eq!(scans(bits, probe), None);
    }
    for cit in [faults, bits] {
        assert_eq!(scans(cit, Probe::Faults), Some((ScanScope::All, minute)));
    }
}
