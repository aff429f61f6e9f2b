// SPDX-License-Identifier: MIT OR Apache-2.0
//! Promotion within a pass: as much as there is room for, and only where the tier serves more than the one behind it.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::NodeMemory;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Pid;
use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Migration;
use terrace_policy::Policy;
use terrace_policy::presets::adaptive::Adaptive;
use terrace_policy::presets::adaptive::Params;

use crate::machine::has_moved;
use crate::nodes::FAST;
use crate::nodes::PAGE;
use crate::nodes::SLOW;
use crate::nodes::serving;

const CHUNKS: u64 = 4;
const PAGES: u64 = CHUNKS * 512;
const PID: Pid = Pid(7);
const SOON: Nanos = Nanos::from_millis(1);

/// Every page is on the slow node and was seen at the first reading.
fn read(policy: &mut Adaptive, start: u64) {
    let reading = ChunkReading {
        pid: PID,
        parts: 1,
        start: Addr(start),
        ran: None,
        since: Nanos::ZERO,
        until: SOON,
        last: false,
        huge: false,
        present: PageBits::ALL,
        accessed: PageBits::ALL,
        fresh: PageBits::ALL,
        nodes: &[(SLOW, PageBits::ALL)],
    };
    policy.accessed(SOON, &reading);
}

fn orders(policy: &mut Adaptive) -> Vec<(PageRef, Migration)> {
    let orders = std::iter::from_fn(|| policy.poll_action());
    let moves = orders.filter_map(|action| match action {
        Action::Migrate {
            page, migration, ..
        } => Some((page, migration)),
        _ => None,
    });
    moves.collect()
}

/// Orders within the first pass, by how many come together, where the nodes serve so much and so many pages are free on the fast one.
fn within_a_pass(bandwidths: [Option<u32>; 2], room: u64) -> Vec<usize> {
    let params = Params {
        reserve: Some(0),
        ..Params::default()
    };
    let mut policy = Adaptive::new(params, serving(PAGES, bandwidths));
    for (node, free) in [(FAST, room), (SLOW, 1 << 22)] {
        let memory = NodeMemory {
            free_bytes: free * PAGE,
            low_bytes: 0,
            high_bytes: 0,
            total_bytes: free * PAGE,
        };
        policy.observe(Nanos::ZERO, &Event::Memory { node, memory });
    }
    for chunk in 0..CHUNKS {
        read(&mut policy, (chunk + 1) * CHUNK_BYTES);
    }
    let mut together = Vec::new();
    loop {
        let orders = orders(&mut policy);
        if orders.is_empty() {
            return together;
        }
        together.push(orders.len());
        for (page, migration) in orders {
            assert_eq!(migration.target(), NodeId(0));
            policy.observe(SOON, &has_moved(page, migration));
        }
    }
}

#[test]
fn all_that_was_seen_goes_up_while_there_is_room() {
    let together = within_a_pass([None, None], PAGES);
    assert_eq!(together, [512; 4], "as many as may be under way");
    let together = within_a_pass([Some(2), Some(1)], 700);
    assert_eq!(together, [512, 188], "as many as there is room for");
}

#[test]
fn nothing_goes_to_a_tier_that_serves_no_more() {
    assert!(within_a_pass([Some(1), Some(1)], PAGES).is_empty());
}
