// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small cases with a machine of one node: pages answer looks with bits that the test holds.

use terrace_core::Addr;
use terrace_core::NodeMemory;
use terrace_core::Pid;

use super::*;
use crate::event::Migration;

#[path = "mglru_tests/rules.rs"]
mod rules;

const PAGE: u64 = 4096;
/// Some tables, and a part of one.
const PAGES: u32 = 6_000;

struct Bench {
    mglru: Mglru,
    kswapd: Kswapd,
    space: Space,
    accessed: Vec<bool>,
    /// Whether a page is accessed all the time.
    hot: fn(u32) -> bool,
    demoted: Vec<u32>,
    looked: u64,
}

impl Bench {
    /// All pages of a program on the node, none accessed.
    fn new() -> Self {
        let mut space = Space::new(Pid(1), Addr(1 << 40));
        assert!(space.add([(0..PAGES, PageSize::Base4K)]));
        let prices = Prices {
            page: 1.0,
            entry: 1.0,
        };
        let mut mglru = Mglru::new(NodeId(0), &space, prices);
        for unit in 0..space.units() {
            mglru.add(unit);
        }
        let mut kswapd = Kswapd::new(NodeId(0), NodeId(1), 1);
        let memory = NodeMemory {
            free_bytes: 0,
            low_bytes: 64 * PAGE,
            high_bytes: 128 * PAGE,
            total_bytes: u64::from(space.units()) * PAGE,
        };
        kswapd.sample(memory, 192 * PAGE);
        kswapd.wake();
        Self {
            accessed: vec![false; space.units() as usize],
            hot: |_| false,
            demoted: Vec::new(),
            looked: 0,
            mglru,
            kswapd,
            space,
        }
    }

    /// A tick; looks are answered and migrations end at once.
    fn tick(&mut self) {
        let mut actions = VecDeque::new();
        self.mglru.tick(1e9);
        self.mglru.go(&mut self.kswapd, &mut actions);
        while let Some(action) = actions.pop_front() {
            match action {
                Action::ProbeRange { page, pages, .. } => {
                    let first = self.space.find(page).unwrap();
                    for unit in (first..first + pages).filter(|u| !self.demoted.contains(u)) {
                        self.looked += 1;
                        let bit =
                            std::mem::take(&mut self.accessed[unit as usize]) || (self.hot)(unit);
                        if self.mglru.probed(unit, bit, &mut actions) {
                            let page = self.space.page(unit);
                            self.kswapd.demote(page, &mut actions);
                        }
                    }
                }
                Action::Migrate {
                    page,
                    migration: Migration::Demote { .. },
                    ..
                } => {
                    self.demoted.push(self.space.find(page).unwrap());
                    self.kswapd.ended(PAGE, true);
                }
                other => panic!("{other:?}"),
            }
            if actions.is_empty() {
                self.mglru.go(&mut self.kswapd, &mut actions);
            }
        }
        assert!(self.mglru.asks.is_empty(), "every look was answered");
        let queued: usize = self.mglru.queues.iter().map(VecDeque::len).sum();
        assert_eq!(queued + self.demoted.len(), self.accessed.len());
        assert_eq!(self.mglru.total(), queued as u64);
    }
}

#[test]
fn pages_that_nobody_accesses_go_once_they_have_aged() {
    let mut bench = Bench::new();
    bench.tick();
    assert!(bench.mglru.max_seq > 3, "aged");
    // Up to the target, in batches of 64.
    assert!((192..256).contains(&bench.demoted.len()));
    assert!(!bench.kswapd.awake());
}

#[test]
fn accessed_pages_stay() {
    let mut bench = Bench::new();
    bench.hot = |unit| !unit.is_multiple_of(3);
    for round in 1..5 {
        bench.kswapd.memory.free_bytes = 0;
        bench.kswapd.wake();
        bench.tick();
        assert!(bench.demoted.len() >= 192 * round, "enough");
    }
    assert!(bench.demoted.iter().all(|&unit| !(bench.hot)(unit)));
}

#[test]
fn what_is_accessed_after_the_walk_is_seen_at_eviction_with_its_neighbours() {
    let mut bench = Bench::new();
    bench.tick();
    let (first, oldest) = (bench.demoted.len(), index(bench.mglru.min_seq));
    let next: Vec<u32> = bench.mglru.queues[oldest].iter().copied().collect();
    // The next to go, and one of its neighbours far behind in the queue.
    let (page, far) = (next[0], next[40]);
    assert!(page.abs_diff(far) < 60 && page / TABLE == far / TABLE);
    bench.accessed[page as usize] = true;
    bench.accessed[far as usize] = true;
    bench.kswapd.memory.free_bytes = 188 * PAGE;
    bench.kswapd.wake();
    bench.tick();
    assert!(bench.demoted.len() > first);
    assert!(!bench.demoted.contains(&page) && !bench.demoted.contains(&far));
    assert!(!bench.accessed[page as usize], "its bit was cleared");
}

#[test]
fn only_tables_with_enough_accessed_entries_are_walked_again() {
    let mut bench = Bench::new();
    let hot = |unit: u32| unit < TABLE && unit.is_multiple_of(8);
    bench.accessed = (0..bench.space.units()).map(hot).collect();
    bench.tick();
    let filter = bench.mglru.filter.clone().expect("has walked");
    let chosen: Vec<usize> = (0..filter.len()).filter(|&table| filter[table]).collect();
    // Until the second generation had aged, the walks found nothing in it any more.
    assert!(chosen.len() <= 1 && chosen.iter().all(|&table| table == 0));
    let (mut walked, before) = (VecDeque::new(), bench.mglru.max_seq);
    bench.mglru.filter = Some((0..filter.len()).map(|table| table == 0).collect());
    bench.mglru.walk(0, &mut bench.kswapd, &mut walked);
    assert_eq!(walked.len(), 1, "one table of {}", filter.len());
    assert_eq!(bench.mglru.max_seq, before, "not before it has answered");
}

#[test]
fn a_fifth_generation_moves_the_oldest_into_the_next() {
    let mut bench = Bench::new();
    let all = bench.mglru.total();
    for _ in 0..6 {
        bench.mglru.begin_generation();
        assert!(bench.mglru.max_seq - bench.mglru.min_seq < GENS as u64);
        assert_eq!(bench.mglru.total(), all);
    }
    let oldest = index(bench.mglru.min_seq);
    assert_eq!(bench.mglru.queues[oldest].len() as u64, all);
    assert_eq!(bench.mglru.pages[oldest], all);
}
