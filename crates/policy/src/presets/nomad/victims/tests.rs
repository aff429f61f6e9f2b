// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for the coldest pages against sorting all of them.

use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

use super::*;

const NODE: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);
const PASS: Pass = Pass {
    hold: Nanos::from_secs(1),
    period: Nanos::from_secs(1),
};
const EVERYTHING: Range = Range {
    start: Addr(0),
    end: Addr(1 << 40),
};

/// Chunk after chunk, `per_chunk` pages of each.
fn page(chunk: u64, n: u64) -> PageRef {
    PageRef {
        pid: Pid(7),
        addr: Addr((chunk << 21) + (n << 12)),
        size: PageSize::Base4K,
    }
}

fn keys(pages: &Pages, on: NodeId, now: Nanos) -> Vec<usize> {
    let mut keys: Vec<usize> = pages
        .iter()
        .filter(|(_, m)| m.state == State::Idle && m.node() == Some(on))
        .map(|(page, m)| key(idle(m, pages.armed_of(page), now, PASS), m.shadow()))
        .collect();
    keys.sort_unstable_by(|a, b| b.cmp(a));
    keys
}

/// Everything the list gives without a new search.
fn drain(victims: &mut Victims, pages: &mut Pages, now: Nanos) -> Vec<usize> {
    let mut keys = Vec::new();
    while let Some((page, _)) = victims.coldest(now, PASS, pages, NODE) {
        let meta = pages.get(page).unwrap();
        assert_eq!((meta.node(), meta.state), (Some(NODE), State::Idle));
        keys.push(key(
            idle(meta, pages.armed_of(page), now, PASS),
            meta.shadow(),
        ));
        victims.take();
    }
    keys
}

proptest! {
    /// The list is what sorting all pages gives, by idle time and shadow, also after pages were
    /// touched, moved and changed since the last search.
    #[test]
    fn is_the_head_of_all_sorted(
        made in prop::collection::vec((0_u64..40, 0_u64..512, 0_u64..30_000, any::<u8>(), 0_u8..16), 1..400),
        later in prop::collection::vec((0_u64..40, 0_u64..512, 0_u64..30_000, any::<u8>(), 0_u8..16), 0..400),
        arms in prop::collection::vec((0_u64..40, 1_u64..40, 0_u64..5_000), 0..8),
    ) {
        let mut pages = Pages::default();
        let mut victims = Victims::default();
        let mut now = Nanos::from_secs(30);
        for round in [made, later] {
            for (chunk, n, time, class, bits) in round {
                pages.update(page(chunk, n), |meta| {
                    meta.set_node(if bits & 3 == 0 { OTHER } else { NODE });
                    meta.set_shadow(bits & 4 == 0);
                    meta.state = if bits == 15 { State::InFlight } else { State::Idle };
                    meta.touch(now.min(Nanos::from_millis(time) + Nanos(now.0 / 2)));
                    meta.idle_class = class;
                });
            }
            let mut arms = arms.clone();
            arms.sort_by_key(|(_, _, ago)| std::cmp::Reverse(*ago));
            for (chunk, count, ago) in arms {
                let range = Range { start: page(chunk, 0).addr, end: page(chunk + count, 0).addr };
                pages.armed(Pid(7), range, Nanos(now.0 - Nanos::from_millis(ago).0));
            }
            let want = keys(&pages, NODE, now);
            let got = drain(&mut victims, &mut pages, now);
            prop_assert_eq!(got, &want[..want.len().min(ENOUGH)]);
            now = now + Nanos::from_secs(10);
        }
    }
}

/// More chunks than one search may look into, each with hot pages and a stale bound, and the cold
/// ones in the last: nothing but the coldest is given, though it takes several searches.
#[test]
fn bounded_work_gives_no_wrong_page() {
    let chunks = 3 * LOOKS as u64;
    let mut pages = Pages::default();
    for chunk in 0..chunks {
        for n in 0..4 {
            // Cold at first: the bounds say so from now on.
            pages.update(page(chunk, n), |meta| {
                meta.set_node(NODE);
                meta.touch(Nanos::from_secs(1));
                meta.idle_class = 0;
            });
        }
        let touched = if chunk == chunks - 1 { 2 } else { 4 };
        for n in 0..touched {
            pages.update(page(chunk, n), |meta| meta.touch(Nanos::from_secs(100)));
        }
    }
    let mut now = Nanos::from_secs(101);
    pages.armed(Pid(7), EVERYTHING, Nanos::from_secs(50));
    let mut victims = Victims::default();
    let mut searches = 0;
    let first = loop {
        searches += 1;
        if let Some((page, _)) = victims.coldest(now, PASS, &mut pages, NODE) {
            break page;
        }
        assert!(searches < 10, "nothing found");
        now = now + Nanos::from_millis(50);
    };
    assert_eq!(searches, 3);
    assert_eq!(first, page(chunks - 1, 2));
    // Then, in order, the rest of them.
    let keys = drain(&mut victims, &mut pages, now);
    assert!(keys.is_sorted_by(|a, b| a >= b));
}

#[test]
fn two_fast_nodes_have_a_list_each() {
    let mut pages = Pages::default();
    for (chunk, node) in [(0, NODE), (1, OTHER)] {
        for n in 0..8 {
            pages.update(page(chunk, n), |meta| {
                meta.set_node(node);
                meta.touch(Nanos::from_secs(1));
            });
        }
    }
    let now = Nanos::from_secs(60);
    pages.armed(Pid(7), EVERYTHING, Nanos::from_secs(50));
    let mut victims = Victims::default();
    for n in 0..8 {
        for (chunk, node) in [(0, NODE), (1, OTHER)] {
            let found = victims.coldest(now, PASS, &mut pages, node);
            assert_eq!(found.map(|(page, _)| page), Some(page(chunk, n)));
            victims.take();
        }
    }
    assert_eq!(victims.coldest(now, PASS, &mut pages, NODE), None);
}

#[test]
fn pages_of_all_sizes_are_found() {
    let mut pages = Pages::default();
    let sizes = [PageSize::Giant1G, PageSize::Huge2M, PageSize::Base4K];
    for (at, size) in (1_u64..).zip(sizes) {
        let page = PageRef {
            pid: Pid(7),
            addr: Addr(at << 30),
            size,
        };
        pages.update(page, |meta| {
            meta.set_node(NODE);
            meta.touch(Nanos::from_secs(at));
            meta.idle_class = 0;
        });
    }
    let now = Nanos::from_secs(60);
    pages.armed(Pid(7), EVERYTHING, Nanos::from_secs(50));
    let mut victims = Victims::default();
    let found: Vec<PageSize> = std::iter::from_fn(|| {
        let (page, _) = victims.coldest(now, PASS, &mut pages, NODE)?;
        victims.take();
        Some(page.size)
    })
    .collect();
    assert_eq!(found, sizes);
}
