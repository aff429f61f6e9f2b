// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem against a slow reference written straight from the paper's text (`reference`), and what holds
//! whatever happens.

#[path = "hemem/machine.rs"]
mod machine;
#[path = "hemem/priority.rs"]
mod priority;
#[path = "hemem/reference.rs"]
mod reference;
#[path = "hemem/scans.rs"]
mod scans;

use machine::FAST;
use machine::Machine;
use machine::PAGE;
use machine::PID;
use machine::SLOW;
use machine::page;
use machine::tiers;
use proptest::prelude::*;
use reference::Reference;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Mechanism;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::Reason;
use terrace_policy::Share;
use terrace_policy::presets::hemem::Hemem;
use terrace_policy::presets::hemem::Params;

const FAST_PAGES: u64 = 64;
const PAGES: u64 = 192;
const RESERVE: u64 = 8;
const TICK: Nanos = Nanos::from_millis(10);

fn params(cooling_pages: usize) -> Params {
    Params {
        page_size: PageSize::Base4K,
        free_reserve: Some(RESERVE * PAGE),
        managed_threshold: Some(16 * PAGE),
        // Asked once.
        inventory_interval: Nanos::from_secs(1 << 20),
        cooling_pages,
        swap_ratio: 0,
        ..Params::default()
    }
}

fn range(first: u64, pages: u64) -> Range {
    Range {
        start: Addr(first * PAGE),
        end: Addr((first + pages) * PAGE),
    }
}

fn mapped(policy: &mut Hemem, pid: Pid, first: u64, pages: u64) {
    let range = range(first, pages);
    policy.observe(Nanos::ZERO, &Event::Mapped { pid, range });
}

/// One step of a script: a page, whether it is stored to, how often, and whether a tick follows.
type Step = (u8, bool, u8, u8);

/// Runs a script on both; every tick's orders must be the same, in the same order.
fn agree(script: &[Step], verdicts: &[u8], params: &Params) -> Result<(), TestCaseError> {
    let mut policy = Hemem::new(params.clone(), &tiers(FAST_PAGES));
    let mut machine = Machine::new(FAST_PAGES, PAGES);
    let mut reference = Reference::new(params, params.cooling_pages > 0);
    mapped(&mut policy, PID, 0, PAGES);
    let mut now = Nanos::from_secs(1);
    // Half the fast tier is taken by pages that are known.
    for n in 0..FAST_PAGES / 2 {
        machine.place(n, FAST);
        let event = Event::Resident {
            page: page(n),
            node: FAST,
        };
        policy.observe(now, &event);
        reference.resident(n);
    }
    let mut verdicts = verdicts.iter().copied();
    for &(n, write, times, wait) in script {
        let n = u64::from(n) % PAGES;
        for _ in 0..times % 24 {
            let node = machine.node(n);
            let page = page(n);
            policy.observe(
                now,
                &Event::Sampled {
                    page,
                    node,
                    write,
                    accesses: 1,
                },
            );
            reference.sampled(n, node == FAST, write);
        }
        if wait % 4 > 0 {
            continue;
        }
        // Now and then long enough for an inventory's answer.
        now = now + Nanos(TICK.0 * if wait == 0 { 60 } else { 1 });
        let memory = machine.memory();
        policy.observe(now, &Event::Memory { node: FAST, memory });
        policy.observe(
            now,
            &Event::Memory {
                node: SLOW,
                memory: machine.slow_memory(),
            },
        );
        policy.tick(now);
        let orders = machine.take_orders(&mut policy);
        let wanted = reference.tick(now, memory);
        prop_assert_eq!(&orders, &wanted, "at {}", now);
        for (n, promote) in orders {
            let verdict = machine.finish(n, promote, verdicts.next().unwrap_or(0));
            policy.observe(now, &Machine::ended(n, promote, verdict));
            reference.ended(n, promote, verdict);
        }
    }
    Ok(())
}

fn script() -> impl Strategy<Value = Vec<Step>> {
    // Few pages are sampled often, so that lists fill and pages cool.
    let n = prop_oneof![3 => 0_u8..24, 2 => 96_u8..140, 1 => any::<u8>()];
    prop::collection::vec((n, any::<bool>(), any::<u8>(), any::<u8>()), 1..250)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    /// 3.1: a page is cooled when it is next sampled, and only then.
    #[test]
    fn as_the_text_says(script in script(), verdicts in prop::collection::vec(any::<u8>(), 0..200)) {
        agree(&script, &verdicts, &params(0))?;
    }

    /// 5.1: a cooling thread besides.
    #[test]
    fn as_the_text_says_with_a_cooling_thread(script in script(), verdicts in prop::collection::vec(any::<u8>(), 0..200)) {
        agree(&script, &verdicts, &params(1 << 20))?;
    }

    /// Ours besides: only what is much colder is swapped.
    #[test]
    fn as_the_text_says_but_for_the_swap_ratio(script in script(), verdicts in prop::collection::vec(any::<u8>(), 0..200), swap_ratio in 1_u8..6) {
        agree(&script, &verdicts, &Params { swap_ratio, ..params(1 << 20) })?;
    }

    /// Anything may come at any time, also of pages and processes never heard of: no panic, no page
    /// ordered twice at once, no order for what is not managed, not more under way than allowed.
    #[test]
    fn whatever_comes(steps in prop::collection::vec((0_u8..12, any::<u8>(), any::<u8>()), 1..400)) {
        let params = Params { inflight_pages: 16, ..params(4) };
        let mut policy = Hemem::new(params, &tiers(FAST_PAGES));
        let mut flying: Vec<(terrace_core::PageRef, Migration)> = Vec::new();
        let mut now = Nanos::from_secs(1);
        for (what, a, b) in steps {
            let pid = Pid(u32::from(b % 3));
            let page = terrace_core::PageRef { pid, ..page(u64::from(a)) };
            let node = if b & 4 > 0 { FAST } else { SLOW };
            let range = range(u64::from(a), u64::from(b % 64) + 1);
            let event = match what {
                0..=4 => Event::Sampled { page, node, write: b & 8 > 0, accesses: 1 },
                5 => Event::Resident { page, node },
                6 => Event::Mapped { pid, range },
                7 => Event::Unmapped { pid, range },
                8 if a < 16 => Event::Gone { pid },
                8 => Event::Share { pid, share: Share { priority: u32::from(a & 1), ..Share::default() } },
                9 => Event::Memory { node, memory: Machine::some_memory(u64::from(a) * PAGE) },
                10 if !flying.is_empty() => {
                    let (page, migration) = flying.swap_remove(usize::from(a) % flying.len());
                    Event::Ended { from: None, page, migration, verdict: Machine::any_verdict(b), mechanism: Mechanism::MovePages, took: Nanos::ZERO, inaccessible: Nanos::ZERO }
                }
                _ => { now = now + TICK; policy.tick(now); continue; }
            };
            policy.observe(now, &event);
            while let Some(action) = policy.poll_action() {
                if let Action::Migrate { page, migration, .. } = action {
                    prop_assert!(flying.iter().all(|(other, _)| *other != page), "{page:?} twice");
                    flying.push((page, migration));
                }
            }
            prop_assert!(flying.len() <= 17, "{} under way", flying.len());
            let counters = policy.counters();
            prop_assert!(!counters.is_empty());
        }
    }

    /// 3.2: no span of time sees more migrated than the rate and two ticks' worth.
    #[test]
    fn the_migration_rate_is_kept(rate in 1_u64..64, ticks in 1_u64..60) {
        let params = Params { max_migration_rate: rate * PAGE * 100, ..params(0) };
        let mut policy = Hemem::new(params, &tiers(4096));
        let mut machine = Machine::new(4096, 8192);
        mapped(&mut policy, PID, 0, 8192);
        for n in 0..4096 {
            heat(&mut policy, n, SLOW, 8, false);
        }
        let mut ordered = 0;
        for tick in 1..=ticks {
            let now = Nanos(TICK.0 * tick);
            ordered += step(&mut policy, &mut machine, now).len() as u64;
        }
        prop_assert!(ordered <= rate * ticks + rate * 2 + 2, "{ordered}");
        prop_assert!(ordered + 2 >= (rate * ticks).min(4000), "{ordered}");
    }
}

fn heat(policy: &mut Hemem, n: u64, node: terrace_core::NodeId, times: u32, write: bool) {
    for _ in 0..times {
        let page = page(n);
        policy.observe(
            Nanos::ZERO,
            &Event::Sampled {
                page,
                node,
                write,
                accesses: 1,
            },
        );
    }
}

/// Samples memory, ticks, carries all out.
fn step(policy: &mut Hemem, machine: &mut Machine, now: Nanos) -> Vec<(u64, bool)> {
    let memory = machine.memory();
    policy.observe(now, &Event::Memory { node: FAST, memory });
    let memory = machine.slow_memory();
    policy.observe(now, &Event::Memory { node: SLOW, memory });
    policy.tick(now);
    let orders = machine.take_orders(policy);
    for &(n, promote) in &orders {
        let verdict = machine.finish(n, promote, 0);
        policy.observe(now, &Machine::ended(n, promote, verdict));
    }
    orders
}

fn told(fast: std::ops::Range<u64>, params: Params) -> (Hemem, Machine) {
    let mut policy = Hemem::new(params, &tiers(FAST_PAGES));
    let mut machine = Machine::new(FAST_PAGES, PAGES);
    mapped(&mut policy, PID, 0, PAGES);
    for n in fast {
        machine.place(n, FAST);
        let event = Event::Resident {
            page: page(n),
            node: FAST,
        };
        policy.observe(Nanos::ZERO, &event);
    }
    (policy, machine)
}

/// 3.3: "write-heavy pages in NVM are migrated to DRAM before read-heavy pages".
#[test]
fn written_pages_come_first() {
    let (mut policy, mut machine) = told(0..48, params(0));
    heat(&mut policy, 100, SLOW, 8, false);
    heat(&mut policy, 101, SLOW, 8, false);
    heat(&mut policy, 102, SLOW, 4, true);
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(1));
    let promoted: Vec<u64> = orders.iter().filter(|o| o.1).map(|o| o.0).collect();
    assert_eq!(promoted, [102, 100, 101]);
}

/// 3.3: "there are no cold DRAM pages to swap for hot NVM pages".
#[test]
fn nothing_is_swapped_where_no_fast_page_is_cold() {
    let fast = FAST_PAGES - RESERVE - machine::HIGH_PAGES;
    let (mut policy, mut machine) = told(0..fast, params(0));
    for n in 0..fast {
        heat(&mut policy, n, FAST, 8, false);
    }
    for n in 100..120 {
        heat(&mut policy, n, SLOW, 8, false);
    }
    for second in 1..50 {
        let orders = step(&mut policy, &mut machine, Nanos::from_secs(second));
        assert_eq!(orders, [], "second {second}");
    }
    // One page cools down: one swap.
    let range = range(3, 1);
    policy.observe(Nanos::ZERO, &Event::Unmapped { pid: PID, range });
    policy.observe(Nanos::ZERO, &Event::Mapped { pid: PID, range });
    let event = Event::Resident {
        page: page(3),
        node: FAST,
    };
    policy.observe(Nanos::ZERO, &event);
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(60));
    assert_eq!(orders, [(3, false), (100, true)]);
}

/// What is mapped where a page was unmapped while it was migrated is not ordered before that has ended.
#[test]
fn a_page_unmapped_on_its_way_is_not_ordered_twice() {
    let (mut policy, _) = told(0..0, params(0));
    let memory = Machine::some_memory(FAST_PAGES * PAGE);
    policy.observe(Nanos::ZERO, &Event::Memory { node: FAST, memory });
    let orders = |policy: &mut Hemem, second| {
        heat(policy, 100, SLOW, 8, false);
        policy.tick(Nanos::from_secs(second));
        std::iter::from_fn(|| policy.poll_action())
            .filter(|action| matches!(action, Action::Migrate { .. }))
            .count()
    };
    assert_eq!(orders(&mut policy, 1), 1);
    policy.observe(Nanos::ZERO, &Event::Gone { pid: PID });
    mapped(&mut policy, PID, 0, PAGES);
    assert_eq!(orders(&mut policy, 2), 0);
    let verdict = terrace_policy::Verdict::Lost;
    policy.observe(Nanos::ZERO, &Machine::ended(100, true, verdict));
    assert_eq!(orders(&mut policy, 3), 1);
}

/// A page that is hot by chance does not take the place of one that is nearly as warm; a cold one's it
/// does, wherever that is in the list.
#[test]
fn what_is_nearly_as_warm_is_not_swapped() {
    let fast = FAST_PAGES - RESERVE - machine::HIGH_PAGES;
    let swap_ratio = Params::default().swap_ratio;
    let (mut policy, mut machine) = told(
        0..fast,
        Params {
            swap_ratio,
            ..params(0)
        },
    );
    let cold = fast - 1;
    for n in 0..cold {
        heat(&mut policy, n, FAST, 5, false);
    }
    for n in 100..103 {
        heat(&mut policy, n, SLOW, 8, false);
    }
    let mut orders = Vec::new();
    for tick in 1..20 {
        orders.extend(step(&mut policy, &mut machine, Nanos::from_secs(tick)));
    }
    assert_eq!(orders, [(cold, false), (100, true)]);
    // Stores count before loads.
    heat(&mut policy, 110, SLOW, 4, true);
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(60));
    assert_eq!(orders.len(), 2);
    assert!(orders[0].0 < cold && orders[1] == (110, true), "{orders:?}");
}

/// 3.3: the reserve is restored, "if no data in DRAM is cold" from any.
#[test]
fn the_reserve_is_restored_by_cold_pages_then_by_any() {
    let (mut policy, mut machine) = told(0..FAST_PAGES - 4, params(0));
    for n in 3..FAST_PAGES - 4 {
        heat(&mut policy, n, FAST, 8, false);
    }
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(1));
    // Three cold ones, and it asks what else there is.
    assert_eq!(orders, [(0, false), (1, false), (2, false)]);
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(2));
    let missing = RESERVE + machine::HIGH_PAGES - 4 - 3;
    assert_eq!(orders.len() as u64, missing);
    assert!(orders.iter().all(|order| !order.1));
    let free = machine.memory().free_bytes / PAGE;
    assert_eq!(free, RESERVE + machine::HIGH_PAGES);
}

/// 3.3: small mappings stay with the kernel, growth is followed.
#[test]
fn small_mappings_are_never_touched() {
    let mut policy = Hemem::new(params(0), &tiers(FAST_PAGES));
    let mut machine = Machine::new(FAST_PAGES, PAGES);
    for pages in 1..16 {
        mapped(&mut policy, PID, 100, pages);
    }
    heat(&mut policy, 100, SLOW, 20, true);
    assert_eq!(step(&mut policy, &mut machine, Nanos::from_secs(1)), []);
    mapped(&mut policy, PID, 115, 1);
    heat(&mut policy, 100, SLOW, 4, true);
    let orders = step(&mut policy, &mut machine, Nanos::from_secs(2));
    assert_eq!(orders, [(100, true)]);
}
