// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Nomad policy against a small model machine: whatever happens, some things hold.
//!
//! The machine has one fast and one slow node, carries out migrations with the verdicts it is
//! told, and complains about orders that make no sense.

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeInfo;
use terrace_core::NodeMemory;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;
use terrace_policy::presets::nomad::Nomad;
use terrace_policy::presets::nomad::Params;

const FAST: NodeId = NodeId(0);
const SLOW: NodeId = NodeId(1);
const PAGE: u64 = 4096;

fn tiers(fast_pages: u64) -> Tiers {
    let node = |id, tier, pages: u64| NodeInfo {
        id,
        tier: TierId(tier),
        capacity_bytes: pages * PAGE,
        cpus: Vec::new(),
        read_latency_ns: None,
        write_latency_ns: None,
        read_bandwidth_mbps: None,
    };
    Tiers::new(vec![node(FAST, 0, fast_pages), node(SLOW, 1, 1 << 20)])
}

fn page(n: u64) -> PageRef {
    PageRef {
        pid: Pid(1),
        addr: Addr(n * PAGE),
        size: PageSize::Base4K,
    }
}

#[derive(Debug, Default)]
struct Machine {
    node: BTreeMap<PageRef, NodeId>,
    faults: BTreeMap<PageRef, u32>,
    inflight: BTreeSet<PageRef>,
    ordered: Vec<(PageRef, Migration)>,
    fast_pages: u64,
    strict: bool,
    /// The scanner leaves fast pages out, whatever it is asked for.
    blind: bool,
    scope: Option<ScanScope>,
    /// How long a pass was last asked to take.
    pass: Nanos,
    promotions: u64,
    demotions: u64,
}

impl Machine {
    fn new(fast_pages: u64, pages: u64) -> Self {
        let node = (0..pages).map(|n| (page(n), SLOW)).collect();
        Self {
            node,
            fast_pages,
            ..Self::default()
        }
    }

    fn used(&self) -> u64 {
        self.node.values().filter(|n| **n == FAST).count() as u64
    }

    fn memory(&self) -> NodeMemory {
        NodeMemory {
            free_bytes: (self.fast_pages - self.used()) * PAGE,
            low_bytes: 0,
            high_bytes: 4 * PAGE,
            total_bytes: self.fast_pages * PAGE,
        }
    }

    /// Takes the policy's orders; panics on one that makes no sense.
    fn take_orders(&mut self, policy: &mut Nomad, limit: usize) {
        while let Some(action) = policy.poll_action() {
            if let Action::Scan { scope, period } = action {
                self.scope = Some(scope);
                self.pass = period;
            }
            let Action::Migrate {
                page, migration, ..
            } = action
            else {
                continue;
            };
            assert!(self.inflight.insert(page), "{page:?} ordered twice");
            assert!(self.inflight.len() <= limit, "over the in-flight limit");
            let at = self.node[&page];
            match migration {
                Migration::Promote { to, .. } => {
                    assert_eq!((at, to), (SLOW, FAST));
                    assert!(
                        !self.strict || self.faults[&page] >= 2,
                        "promoted after one reference"
                    );
                }
                Migration::Demote { to } => assert_eq!((at, to), (FAST, SLOW)),
            }
            self.ordered.push((page, migration));
        }
    }

    fn finish(&mut self, policy: &mut Nomad, now: Nanos, verdicts: &mut impl Iterator<Item = u8>) {
        for (page, migration) in std::mem::take(&mut self.ordered) {
            self.inflight.remove(&page);
            let verdict = match (verdicts.next().unwrap_or(0), migration) {
                (0..=200, Migration::Promote { keep_shadow, .. }) => {
                    if self.used() + 1 >= self.fast_pages {
                        Verdict::NoMemory
                    } else {
                        Verdict::Moved {
                            shadow: keep_shadow,
                        }
                    }
                }
                (0..=200, Migration::Demote { .. }) => Verdict::MovedOntoShadow,
                (201..=220, _) => Verdict::Dirtied,
                (221..=240, _) => Verdict::Busy,
                (241..=250, _) => Verdict::NoMemory,
                _ => Verdict::Lost,
            };
            if matches!(verdict, Verdict::Moved { .. } | Verdict::MovedOntoShadow) {
                let fast = matches!(migration, Migration::Promote { .. });
                self.node.insert(page, migration.target());
                if fast {
                    self.promotions += 1
                } else {
                    self.demotions += 1
                }
            }
            policy.observe(
                now,
                &Event::Ended {
                    page,
                    migration,
                    verdict,
                },
            );
        }
    }

    /// The scanner passes over all memory.
    fn arm(&self, policy: &mut Nomad, now: Nanos) {
        let pages = self.node.len() as u64;
        let range = Range {
            start: page(0).addr,
            end: page(pages).addr,
        };
        if let (Some(scope), false) = (self.scope, self.blind) {
            let pid = Pid(1);
            policy.observe(now, &Event::Armed { pid, range, scope });
        }
    }

    fn fault(&mut self, policy: &mut Nomad, now: Nanos, n: u64, write: bool, idle_ms: u64) {
        let page = page(n);
        *self.faults.entry(page).or_default() += 1;
        let idle = Some(Nanos::from_millis(idle_ms));
        policy.observe(
            now,
            &Event::HintFault {
                page,
                node: self.node[&page],
                write,
                idle,
            },
        );
    }
}

fn drive(script: &[(u16, bool, u8, u8)], verdicts: &[u8]) -> (Vec<Action>, u64) {
    let params = Params {
        inflight_pages: 32,
        eager_idle: Nanos::ZERO,
        single_doubt: 0,
        ..Params::default()
    };
    let mut policy = Nomad::new(params, tiers(256));
    let mut machine = Machine {
        strict: true,
        ..Machine::new(256, 1024)
    };
    let mut verdicts = verdicts.iter().copied();
    let mut now = Nanos::from_secs(1);
    let mut log = Vec::new();
    for (step, &(n, write, idle, wait)) in script.iter().enumerate() {
        now = now + Nanos::from_millis(u64::from(wait));
        machine.fault(
            &mut policy,
            now,
            u64::from(n) % 1024,
            write,
            u64::from(idle) * 8,
        );
        if step % 8 == 0 {
            policy.observe(
                now,
                &Event::Memory {
                    node: FAST,
                    memory: machine.memory(),
                },
            );
            policy.tick(now);
            machine.take_orders(&mut policy, 32);
            log.extend(
                machine
                    .ordered
                    .iter()
                    .map(|&(page, migration)| Action::Migrate {
                        page,
                        migration,
                        reason: terrace_policy::Reason::Retry,
                    }),
            );
            machine.finish(&mut policy, now, &mut verdicts);
        }
        if step % 61 == 60 {
            machine.arm(&mut policy, now);
        }
        if step % 97 == 96 {
            let range = Range {
                start: Addr(u64::from(n) * PAGE),
                end: Addr((u64::from(n) + 9) * PAGE),
            };
            policy.observe(now, &Event::Unmapped { pid: Pid(1), range });
        }
    }
    (log, machine.promotions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// No page is ordered twice at once, none is promoted after a single reference, none is sent
    /// where it is, the limit holds; and the same events give the same orders.
    #[test]
    fn orders_make_sense_and_repeat(
        script in prop::collection::vec((0_u16..1024, any::<bool>(), any::<u8>(), 0_u8..20), 0..3000),
        verdicts in prop::collection::vec(any::<u8>(), 0..600),
    ) {
        let first = drive(&script, &verdicts);
        prop_assert_eq!(drive(&script, &verdicts), first);
    }
}

/// Plays rounds of a workload: each round every page of `hot` faults with a short idle time and
/// every page of `cold` with a long one.
fn play(
    machine: &mut Machine,
    policy: &mut Nomad,
    rounds: u64,
    hot: std::ops::Range<u64>,
    cold: std::ops::Range<u64>,
) {
    let base = policy.next_deadline();
    for round in 0..rounds {
        let begin = base + Nanos::from_millis(1_000 * round);
        for n in hot.clone() {
            machine.fault(policy, begin, n, false, 20);
        }
        for n in cold.clone() {
            machine.fault(policy, begin, n, false, 900);
        }
        machine.arm(policy, begin);
        for tick in 0..50 {
            let now = begin + Nanos::from_millis(20 * tick);
            policy.observe(
                now,
                &Event::Memory {
                    node: FAST,
                    memory: machine.memory(),
                },
            );
            policy.tick(now);
            machine.take_orders(policy, 512);
            machine.finish(policy, now, &mut std::iter::empty());
        }
    }
}

#[test]
fn a_short_idle_time_counts_as_a_second_reference_where_there_is_room_or_much_memory() {
    let promoted = |free: u64, idle_ms: u64, params: Params| {
        let mut policy = Nomad::new(params, tiers(4096));
        let mut machine = Machine::new(4096, 12_000);
        let now = Nanos::from_secs(1);
        let memory = NodeMemory {
            free_bytes: free * PAGE,
            ..machine.memory()
        };
        policy.observe(now, &Event::Memory { node: FAST, memory });
        machine.fault(&mut policy, now, 9, false, 30_000);
        policy.tick(now);
        machine.fault(&mut policy, now, 7, false, idle_ms);
        policy.tick(now + Nanos::from_millis(50));
        std::iter::from_fn(|| policy.poll_action()).any(|a| matches!(a, Action::Migrate { .. }))
    };
    let usual = Params::default;
    assert!(promoted(4096, 10, usual()));
    assert!(!promoted(4096, 5_000, usual()));
    assert!(!promoted(80, 10, usual()));
    // A pass takes much longer than a second.
    let slow = || Params {
        scan_rate_max: 1 << 16,
        ..usual()
    };
    assert!(promoted(80, 10, slow()));
    assert!(!promoted(80, 30_000, slow()));
    let twice = Params {
        single_doubt: 0,
        ..slow()
    };
    assert!(!promoted(80, 10, twice));
}

#[test]
fn the_hot_set_ends_up_fast_and_stays() {
    let mut policy = Nomad::new(Params::default(), tiers(4096));
    let mut machine = Machine::new(4096, 12_000);
    play(&mut machine, &mut policy, 6, 0..2000, 2000..2000);
    let fast = (0..2000)
        .filter(|n| machine.node[&page(*n)] == FAST)
        .count();
    assert_eq!(fast, 2000);
    assert_eq!(machine.demotions, 0);
}

/// A promotion a pass is worth something, thousands of hint faults for it are not.
#[test]
fn hint_faults_that_find_little_make_passes_rare() {
    let pass_after = |touched: u64| {
        let mut policy = Nomad::new(Params::default(), tiers(4096));
        let mut machine = Machine::new(4096, 30_000);
        for round in 0..5 {
            let now = Nanos::from_secs(round + 1);
            let memory = machine.memory();
            policy.observe(now, &Event::Memory { node: FAST, memory });
            machine.fault(&mut policy, now, round, false, 20);
            for n in 0..touched {
                machine.fault(&mut policy, now, 100 + round * touched + n, false, 30_000);
            }
            policy.tick(now + Nanos::from_millis(20));
            machine.take_orders(&mut policy, 512);
            machine.finish(&mut policy, now, &mut std::iter::empty());
        }
        assert!(machine.promotions >= 4, "{}", machine.promotions);
        machine.pass
    };
    assert_eq!(pass_after(10), Nanos::from_secs(1));
    assert_eq!(pass_after(5000), Nanos::from_secs(60));
}

#[test]
fn a_moved_hot_set_displaces_the_old_one_when_the_tier_is_full() {
    let mut policy = Nomad::new(Params::default(), tiers(4096));
    let mut machine = Machine::new(4096, 12_000);
    play(&mut machine, &mut policy, 6, 0..4090, 0..0);
    assert!(machine.used() > 3900, "{}", machine.used());
    // The old hot set is not touched any more, another is.
    play(&mut machine, &mut policy, 60, 6000..7000, 0..0);
    let fast = (6000..7000)
        .filter(|n| machine.node[&page(*n)] == FAST)
        .count();
    assert!(fast > 950, "only {fast} of 1000 hot pages on the fast node");
}

/// The kernel's scanner leaves out what the thread that runs it does not use, and comes late. Fast
/// pages that were never armed do not fault; that is no sign of their being cold.
#[test]
fn pages_that_were_not_armed_are_not_taken_for_cold() {
    let mut policy = Nomad::new(Params::default(), tiers(4096));
    let mut machine = Machine::new(4096, 12_000);
    play(&mut machine, &mut policy, 6, 0..4090, 0..0);
    machine.blind = true;
    play(&mut machine, &mut policy, 60, 6000..7000, 0..0);
    assert_eq!(machine.demotions, 0);
}

#[test]
fn a_working_set_over_the_fast_tier_does_not_thrash() {
    let mut policy = Nomad::new(Params::default(), tiers(2048));
    let mut machine = Machine::new(2048, 12_000);
    play(&mut machine, &mut policy, 10, 0..8000, 0..0);
    let filled = machine.promotions;
    play(&mut machine, &mut policy, 60, 0..8000, 0..0);
    let per_round = (machine.promotions - filled) / 60;
    // All pages are equally hot: nothing is gained by swapping them.
    assert!(
        per_round < 2048 / 20,
        "{per_round} promotions a round in vain"
    );
}

#[test]
fn the_watermark_is_restored_and_shadows_go_first_on_the_slow_node() {
    let mut policy = Nomad::new(Params::default(), tiers(4096));
    let mut machine = Machine::new(4096, 12_000);
    play(&mut machine, &mut policy, 6, 0..3000, 0..0);
    // Somebody else takes the rest of the fast node.
    let now = policy.next_deadline();
    let memory = NodeMemory {
        free_bytes: 2 * PAGE,
        ..machine.memory()
    };
    policy.observe(now, &Event::Memory { node: FAST, memory });
    policy.tick(now);
    machine.take_orders(&mut policy, 512);
    assert!(
        machine
            .ordered
            .iter()
            .any(|(_, m)| matches!(m, Migration::Demote { .. }))
    );

    let low = NodeMemory {
        free_bytes: 10 * PAGE,
        low_bytes: 20 * PAGE,
        high_bytes: 40 * PAGE,
        total_bytes: 1 << 32,
    };
    policy.observe(
        now,
        &Event::Memory {
            node: SLOW,
            memory: low,
        },
    );
    let reclaim = std::iter::from_fn(|| policy.poll_action()).find_map(|a| {
        if let Action::ReclaimShadows { bytes, .. } = a {
            Some(bytes)
        } else {
            None
        }
    });
    assert_eq!(reclaim, Some(30 * PAGE));
}

#[test]
fn ten_times_the_request_is_reclaimed_when_an_allocation_fails() {
    let mut policy = Nomad::new(Params::default(), tiers(4096));
    let mut machine = Machine::new(4096, 12_000);
    play(&mut machine, &mut policy, 4, 0..100, 0..0);
    let now = policy.next_deadline();
    let migration = Migration::Demote { to: SLOW };
    policy.observe(
        now,
        &Event::Ended {
            page: page(5),
            migration,
            verdict: Verdict::NoMemory,
        },
    );
    let reclaim = std::iter::from_fn(|| policy.poll_action()).find_map(|a| {
        if let Action::ReclaimShadows { bytes, .. } = a {
            Some(bytes)
        } else {
            None
        }
    });
    assert_eq!(reclaim, Some(10 * PAGE));
}
