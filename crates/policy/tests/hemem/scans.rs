// SPDX-License-Identifier: MIT OR Apache-2.0
//! HeMem by page-table scans: a page whose bit is set counts as loaded once a scan, else all is the same.

use std::collections::BTreeSet;

use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageSize;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Policy;
use terrace_policy::presets::hemem::Hemem;
use terrace_policy::presets::hemem::Params;

use super::FAST;
use super::FAST_PAGES;
use super::Machine;
use super::PAGES;
use super::PID;
use super::SLOW;
use super::TICK;
use super::mapped;
use super::page;
use super::params;
use super::step;
use super::tiers;

/// A policy that scans, told nothing but a mapping.
fn scanning(params: &Params) -> Hemem {
    let params = Params {
        scan_interval: Some(TICK),
        ..params.clone()
    };
    let mut policy = Hemem::new(params, &tiers(FAST_PAGES));
    mapped(&mut policy, PID, 0, PAGES);
    policy
}

/// The end of a scan over all pages, of which some were accessed.
fn scan(policy: &mut Hemem, now: Nanos, accessed: &BTreeSet<u64>, node: impl Fn(u64) -> NodeId) {
    let (mut bits, mut fast, mut slow) = (PageBits::NONE, PageBits::NONE, PageBits::NONE);
    for n in 0..PAGES {
        let at = usize::try_from(n).expect("one of 512");
        let on = if node(n) == FAST {
            &mut fast
        } else {
            &mut slow
        };
        on.set(at);
        if accessed.contains(&n) {
            bits.set(at);
        }
    }
    let reading = ChunkReading {
        pid: PID,
        parts: 1,
        start: Addr(0),
        since: Nanos::ZERO,
        until: TICK,
        ran: None,
        last: true,
        huge: false,
        present: fast.or(&slow),
        accessed: bits,
        fresh: bits,
        nodes: &[(FAST, fast), (SLOW, slow)],
    };
    policy.accessed(now, &reading);
}

proptest! {
    /// The same orders as of a policy that is told where all pages are and gets a sampled load for each bit.
    #[test]
    fn a_bit_counts_as_a_load(rounds in prop::collection::vec(prop::collection::btree_set(0..PAGES, 0..80), 1..40)) {
        let mut scanned = scanning(&params(0));
        let mut sampled = Hemem::new(params(0), &tiers(FAST_PAGES));
        mapped(&mut sampled, PID, 0, PAGES);
        let mut machines = [Machine::new(FAST_PAGES, PAGES), Machine::new(FAST_PAGES, PAGES)];
        for machine in &mut machines {
            (0..40).for_each(|n| machine.place(n, FAST));
        }
        let mut now = Nanos::ZERO;
        for accessed in rounds {
            now = now + TICK;
            scan(&mut scanned, now, &accessed, |n| machines[0].node(n));
            // As a scan goes over them: by node, from the first page.
            for node in [FAST, SLOW] {
                for n in (0..PAGES).filter(|n| machines[1].node(*n) == node) {
                    let event = if accessed.contains(&n) {
                        Event::Sampled { page: page(n), node, write: false, accesses: 1 }
                    } else {
                        Event::Resident { page: page(n), node }
                    };
                    sampled.observe(now, &event);
                }
            }
            let orders = [
                step(&mut scanned, &mut machines[0], now),
                step(&mut sampled, &mut machines[1], now),
            ];
            prop_assert_eq!(&orders[0], &orders[1]);
        }
    }
}

/// A page of 2 MiB of base pages has one count, however many of them were accessed; and the first thing that is asked
/// for are scans.
#[test]
fn two_mib_count_once_and_scans_are_asked_for() {
    let heat = |pages: u64, scans: u64| {
        let mut policy = scanning(&Params {
            page_size: PageSize::Huge2M,
            ..params(0)
        });
        mapped(&mut policy, PID, 0, 512);
        let first = policy.poll_action();
        let asked = Action::ReadAccessed {
            shortest: TICK,
            pass: TICK,
            parts: 1,
        };
        assert_eq!((first, policy.name()), (Some(asked), "hemem-page-table"));
        for _ in 0..scans {
            scan(&mut policy, TICK, &(0..pages).collect(), |_| SLOW);
        }
        let counters = policy.counters();
        let hot = counters
            .iter()
            .find(|(figure, _)| figure.name == "slow_hot");
        hot.expect("a figure of it").1.to_string()
    };
    assert_eq!(heat(100, 7), "0");
    assert_eq!(heat(1, 8), "1");
    assert_eq!(heat(0, 50), "0");
}
