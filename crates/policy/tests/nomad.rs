// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Nomad policy: as its paper's sentences say, against a slow reference; rule by rule; and whatever comes.

#[path = "common/machine.rs"]
mod machine;
#[path = "nomad/reference.rs"]
mod reference;

use machine::FAST;
use machine::HIGH;
use machine::Machine;
use machine::PAGE;
use machine::SLOW;
use machine::page;
use machine::tiers;
use proptest::prelude::*;
use reference::Reference;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Verdict;
use terrace_policy::presets::nomad::Nomad;
use terrace_policy::presets::nomad::Params;

const MOVED: Verdict = Verdict::Moved { shadow: true };

/// `fast` pages on the fast node, the rest of `pages` on the slow one.
fn machine(params: Params, fast: u64, pages: u64) -> Machine {
    let policy = Nomad::new(params, tiers());
    Machine::new(policy, (params.inflight_pages, true), fast, pages)
}

/// How an order ends, as luck will.
fn verdict(up: bool, shadow: bool, luck: u8) -> Verdict {
    match luck {
        0..=150 if up => Verdict::Moved { shadow },
        0..=150 if shadow => Verdict::MovedOntoShadow,
        0..=150 => Verdict::Moved { shadow: false },
        151..=210 => Verdict::Dirtied,
        211..=235 => Verdict::Busy,
        236..=250 => Verdict::NoMemory,
        _ => Verdict::Lost,
    }
}

fn agree(steps: &[(u8, u8, u8)], params: Params, fast: u64) -> Result<(), TestCaseError> {
    let pages = 160;
    let mut machine = machine(params, fast, pages);
    let mut reference = Reference::new(params, fast);
    for &(what, a, b) in steps {
        let n = u64::from(a) % pages;
        machine.wait(u64::from(b % 4));
        match what {
            0..=5 if machine.node[&n] == SLOW => {
                machine.fault(n);
                reference.fault(machine.now, n);
            }
            0..=8 => (0..24).for_each(|i| machine.touch((n + i) % pages)),
            9..=11 => {
                machine.wait(1);
                machine
                    .read(what == 11)
                    .iter()
                    .for_each(|told| reference.read(told));
            }
            12 => {
                let page = page(n);
                machine
                    .policy
                    .observe(machine.now, &Event::ShadowLost { page });
                reference.written(n);
            }
            13 | 14 => {
                let wanted = reference.tick(machine.free());
                prop_assert_eq!(machine.tick(), wanted);
            }
            _ => {
                let flying: Vec<u64> = machine.flying.keys().copied().collect();
                for n in flying.into_iter().filter(|n| (n + u64::from(a)) % 3 > 0) {
                    let up = machine.node[&n] == SLOW;
                    let luck = (n * 37).to_le_bytes()[0].wrapping_add(b);
                    let mut verdict = verdict(up, b % 2 == 0, luck);
                    if up && machine.free() == 0 {
                        verdict = Verdict::NoMemory;
                    }
                    machine.finish(n, verdict);
                    reference.ended(n, verdict);
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
    fn as_the_text_says(steps in steps()) {
        agree(&steps, Params::default(), 0)?;
    }

    /// From a full one on, and with few migrations at a time.
    #[test]
    fn as_the_text_says_on_a_full_node(steps in steps(), inflight_pages in 1_usize..40) {
        agree(&steps, Params { inflight_pages, ..Params::default() }, 98)?;
    }

    /// Anything may come at any time, of pages and processes never heard of and in any size: no panic, no page
    /// ordered twice at once, not more under way than allowed; and the same events give the same orders.
    #[test]
    fn whatever_comes(steps in prop::collection::vec((0_u8..13, any::<u8>(), any::<u8>()), 1..400)) {
        prop_assert_eq!(whatever(&steps), whatever(&steps));
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
fn any_reading(policy: &mut Nomad, now: Nanos, (a, b): (u8, u8), last: bool) {
    let (page, node) = any_page(a, b);
    let huge = page.size == PageSize::Huge2M;
    let mut bits = terrace_core::PageBits([0x0101_0101_0101_0101 << (b % 8); 8]);
    if huge {
        bits = terrace_core::PageBits::NONE;
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
            cpu_node: None,
            page,
            node,
            write: b & 8 > 0,
            idle: None,
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
        8 => Event::ShadowLost { page },
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

fn whatever(steps: &[(u8, u8, u8)]) -> Vec<Action> {
    let params = Params {
        inflight_pages: 16,
        ..Params::default()
    };
    let mut policy = Nomad::new(params, tiers());
    let mut flying: Vec<(PageRef, Migration)> = Vec::new();
    let mut log = Vec::new();
    let mut now = Nanos::from_secs(1);
    for &(what, a, b) in steps {
        now = now + Nanos::from_millis(3);
        if let 3..=5 = what {
            any_reading(&mut policy, now, (a, b), what == 5);
        } else if let Some(event) = any_event(now, what, a, b) {
            policy.observe(now, &event);
        } else if what < 12 && !flying.is_empty() {
            let (page, migration) = flying.swap_remove(usize::from(a) % flying.len());
            let up = matches!(migration, Migration::Promote { .. });
            let event = Event::Ended {
                from: None,
                page,
                migration,
                verdict: verdict(up, b & 1 > 0, b),
                mechanism: Mechanism::MovePages,
                took: Nanos::ZERO,
                inaccessible: Nanos::ZERO,
            };
            policy.observe(now, &event);
        } else {
            policy.tick(now);
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

#[test]
fn one_hint_fault_is_enough_where_the_bit_is_set_again() {
    let mut machine = machine(Params::default(), 0, 64);
    machine.fault(7);
    machine.fault(9);
    machine.fault(20);
    machine.wait(1);
    machine.read(true);
    assert_eq!(machine.tick(), [], "that bit is the fault's");
    machine.wait(1);
    machine.touch(9);
    machine.read(false);
    assert_eq!(machine.tick(), [(9, true)]);
    // Not accessed in a whole pass: it must fault again.
    machine.wait(1);
    machine.read(true);
    machine.wait(1);
    machine.touch(7);
    machine.read(true);
    assert_eq!(machine.tick(), []);
}

#[test]
fn who_came_first_goes_first() {
    let mut machine = machine(Params::default(), 0, 64);
    let order = [40, 3, 33, 9, 60];
    machine.make_pending(&order);
    let wanted: Vec<(u64, bool)> = order.iter().map(|n| (*n, true)).collect();
    assert_eq!(machine.tick(), wanted);
}

#[test]
fn an_aborted_transaction_is_tried_ten_times_more() {
    let mut machine = machine(Params::default(), 0, 64);
    machine.make_pending(&[5]);
    for _ in 0..11 {
        assert_eq!(machine.tick(), [(5, true)]);
        machine.finish(5, Verdict::Dirtied);
    }
    assert_eq!(machine.tick(), []);
    machine.make_pending(&[5]);
    assert_eq!(machine.tick(), [(5, true)], "it proved itself anew");
}

#[test]
fn huge_pages_keep_no_shadow() {
    let mut policy = Nomad::new(Params::default(), tiers());
    let huge = PageRef {
        size: PageSize::Huge2M,
        ..page(0)
    };
    let mut bits = terrace_core::PageBits::NONE;
    bits.set(0);
    let mut now = Nanos::from_secs(1);
    let memory = NodeMemory {
        free_bytes: 1 << 30,
        low_bytes: 0,
        high_bytes: 0,
        total_bytes: 1 << 30,
    };
    policy.observe(now, &Event::Memory { node: FAST, memory });
    policy.observe(
        now,
        &Event::HintFault {
            cpu_node: None,
            page: huge,
            node: SLOW,
            write: false,
            idle: None,
        },
    );
    now = now + Nanos::from_secs(1);
    let reading = terrace_core::ChunkReading {
        pid: Pid(1),
        parts: 1,
        start: Addr(0),
        since: Nanos::ZERO,
        until: Nanos::from_millis(1),
        ran: None,
        last: false,
        huge: true,
        present: bits,
        accessed: bits,
        fresh: bits,
        nodes: &[(SLOW, bits)],
    };
    policy.accessed(now, &reading);
    policy.tick(now);
    let migrations: Vec<Migration> = std::iter::from_fn(|| policy.poll_action())
        .filter_map(|action| match action {
            Action::Migrate { migration, .. } => Some(migration),
            _ => None,
        })
        .collect();
    assert_eq!(
        migrations,
        [Migration::Promote {
            to: FAST,
            keep_shadow: false
        }]
    );
}

/// A full fast node of which the first pages are not accessed.
fn full(cold: u64) -> Machine {
    let mut machine = machine(Params::default(), 98, 160);
    machine.read(true);
    for _ in 0..3 {
        machine.wait(1);
        (cold..98).for_each(|n| machine.touch(n));
        machine.read(true);
    }
    machine
}

#[test]
fn the_inactive_tail_is_demoted_up_to_the_mark() {
    let orders = full(98).tick();
    // High watermark and 10 % of 100 pages, 2 of which are free.
    let wanted: Vec<(u64, bool)> = (0..HIGH + 10 - 2).map(|n| (n, false)).collect();
    assert_eq!(orders, wanted);
}

#[test]
fn accessed_pages_have_a_second_chance() {
    let mut machine = full(3);
    assert_eq!(machine.tick(), [(0, false), (1, false), (2, false)]);
    // They were kept; who is not accessed after that goes, though others came to the list before it.
    machine.wait(1);
    (3..90).for_each(|n| machine.touch(n));
    machine.read(true);
    let orders = machine.tick();
    assert_eq!(orders, (90..98).map(|n| (n, false)).collect::<Vec<_>>());
}

#[test]
fn of_the_coldest_those_with_a_shadow_go_first() {
    let mut machine = machine(Params::default(), 0, 160);
    let hot: Vec<u64> = (100..110).collect();
    machine.make_pending(&hot);
    for (n, _) in machine.tick() {
        machine.finish(n, Verdict::Moved { shadow: n % 2 == 0 });
    }
    machine.read(true);
    // Others fill the node: half of the active pages, the oldest, become inactive, and are not accessed then.
    (1000..1086).for_each(|n| {
        machine.node.insert(n, FAST);
    });
    assert_eq!(machine.tick(), []);
    machine.wait(1);
    machine.read(true);
    let orders: Vec<u64> = machine.tick().iter().map(|(n, _)| *n).collect();
    assert_eq!(
        orders,
        [100, 102, 104, 101, 103, 1000, 1001, 1002, 1003, 1004]
    );
}

#[test]
fn shadows_go_at_the_slow_nodes_low_mark_and_ten_times_the_request_where_there_is_no_memory() {
    let mut machine = full(98);
    let memory = NodeMemory {
        free_bytes: 10 * PAGE,
        low_bytes: 20 * PAGE,
        high_bytes: 40 * PAGE,
        total_bytes: 1 << 32,
    };
    machine
        .policy
        .observe(machine.now, &Event::Memory { node: SLOW, memory });
    machine.orders();
    assert_eq!(machine.reclaims, [30]);
    let orders = machine.tick();
    machine.finish(orders[0].0, Verdict::NoMemory);
    machine.orders();
    assert_eq!(machine.reclaims, [30, 10]);
}

#[test]
fn the_scanner_keeps_its_pace() {
    let mut machine = full(98);
    for round in 0..100 {
        machine.wait(1_000);
        (100..160)
            .filter(|n| n % 7 == round % 7)
            .for_each(|n| machine.fault(n));
        machine.read(true);
        for (n, up) in machine.tick() {
            machine.finish(n, if up { MOVED } else { Verdict::MovedOntoShadow });
        }
    }
    assert_eq!(machine.scans, [Nanos::from_secs(1)]);
}
