// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rule by rule, as the functions named have them in mm/vmscan.c of Linux 6.12.

use super::*;

/// So many base pages in each generation, from the oldest to the youngest.
fn with_generations(pages: &[u64]) -> Bench {
    let mut bench = Bench::new();
    let mglru = &mut bench.mglru;
    mglru.min_seq = mglru.max_seq + 1 - pages.len() as u64;
    for (seq, pages) in (mglru.min_seq..).zip(pages) {
        mglru.pages[index(seq)] = *pages;
    }
    bench
}

/// `set_initial_priority`: of `inactive >> priority` pages about `nr_to_reclaim` are freed, rounded to a gentler one,
/// from `DEF_PRIORITY / 2` to `DEF_PRIORITY`. The two youngest generations are active (`lru_gen_is_active`).
#[test]
fn the_first_priority_is_where_a_round_is_expected_to_free_enough() {
    for (inactive, wanted, expected) in [
        (1 << 20, 128, 12),
        (1 << 18, 128, 11),
        ((1 << 19) - 1, 128, 11),
        (1 << 18, 129, 10),
        (1 << 16, 1_024, 6),
        (1 << 17, 1_024, 7),
        (1 << 10, 128, 6),
        (0, 128, 6),
        // `MIN_LRU_BATCH`: where little is wanted nothing is expected.
        (1 << 10, 63, 12),
        (1 << 10, 64, 6),
        (1 << 17, 64, 11),
    ] {
        let mut bench = with_generations(&[inactive / 2, inactive.div_ceil(2), 1 << 21, 1 << 22]);
        bench.kswapd.memory.high_bytes = wanted * PAGE;
        let first = bench.mglru.first_priority(&bench.kswapd);
        assert_eq!(first, expected, "{inactive} {wanted}");
        bench.mglru.begin(&mut bench.kswapd);
        assert_eq!(bench.kswapd.priority, expected, "at the default");
        bench.kswapd.priority = 3;
        bench.mglru.begin(&mut bench.kswapd);
        assert_eq!(bench.kswapd.priority, 3, "and at no other");
    }
}

/// `should_run_aging`: with two generations always, with four never, with three if the youngest has more than half of
/// all pages or the oldest less than a quarter.
#[test]
fn aging_comes_when_generations_are_few_or_uneven() {
    for (pages, expected) in [
        (&[50, 50][..], true),
        (&[1, 1, 1, 97], false),
        (&[25, 25, 50], false),
        (&[25, 24, 51], true),
        (&[24, 30, 46], true),
        (&[40, 30, 30], false),
    ] {
        let bench = with_generations(pages);
        assert_eq!(bench.mglru.should_age(), expected, "{pages:?}");
    }
}

/// `get_nr_to_scan`: at the default priority it gets away without aging, and takes nothing from two generations.
#[test]
fn at_the_default_priority_nothing_ages() {
    for (generations, priority, expected) in [
        (&[0, 0, 6_000][..], 12, Phase::Rest),
        (&[0, 0, 6_000], 11, Phase::Walk { table: 0 }),
        (&[3_000, 3_000], 12, Phase::Rest),
        (&[3_000, 3_000], 11, Phase::Walk { table: 0 }),
    ] {
        let mut bench = with_generations(generations);
        bench.kswapd.priority = priority;
        let mut actions = VecDeque::new();
        bench.mglru.evict(0, &mut bench.kswapd, &mut actions);
        assert_eq!(bench.mglru.phase, expected, "{generations:?} {priority}");
        assert!(actions.is_empty());
    }
}

/// `balance_pgdat`: the priority falls where fewer pages than are wanted were looked at or none was freed, and ends
/// at 1. Then it sleeps.
#[test]
fn a_round_that_did_too_little_raises_the_priority_until_it_sleeps() {
    // 128 pages are wanted.
    for (scanned, freed, expected, awake) in [
        (128, 1, 5, true),
        (127, 1, 4, true),
        (128, 0, 4, true),
        (0, 0, 4, true),
    ] {
        let mut bench = Bench::new();
        (bench.kswapd.priority, bench.kswapd.freed) = (5, freed * PAGE);
        bench.mglru.end_round(scanned, &mut bench.kswapd);
        assert_eq!(bench.kswapd.priority, expected, "{scanned} {freed}");
        assert_eq!(bench.kswapd.awake(), awake);
    }
    let mut bench = Bench::new();
    bench.kswapd.priority = 2;
    for awake in [true, false] {
        bench.mglru.end_round(0, &mut bench.kswapd);
        assert_eq!(bench.kswapd.awake(), awake);
    }
    bench.kswapd.wake();
    assert_eq!(bench.kswapd.priority, 12, "it begins anew");
}

/// `kswapd_shrink_node`: what the high watermark has, at least `SWAP_CLUSTER_MAX`, 32 pages.
#[test]
fn a_round_is_to_free_as_much_as_the_high_watermark_has() {
    for (high, expected) in [(1_000, 1_000), (33, 33), (31, 32), (0, 32)] {
        let mut bench = Bench::new();
        bench.kswapd.memory.high_bytes = high * PAGE;
        assert_eq!(bench.kswapd.to_reclaim(), expected);
    }
}

/// All pages are in the oldest queue, so many of them in the youngest generation by now.
fn all_old(stale: u32) -> Bench {
    let mut bench = Bench::new();
    let mglru = &mut bench.mglru;
    let (oldest, youngest) = (index(mglru.min_seq), index(mglru.max_seq));
    mglru.queues.swap(youngest, oldest);
    for unit in stale..PAGES {
        mglru.generation[unit as usize] = number(oldest);
    }
    mglru.pages[youngest] = u64::from(stale);
    mglru.pages[oldest] = u64::from(PAGES - stale);
    bench
}

/// `should_abort_scan` and `get_nr_to_scan`: a round of `total >> priority` pages ends before where enough are freed.
#[test]
fn a_round_ends_with_its_share_of_pages_or_enough_freed_ones() {
    // 128 pages are wanted, and 6,000 >> 4 a round's.
    for (scanned, freed, goes_on) in [
        (200, 127, true),
        (200, 128, false),
        (374, 0, true),
        (375, 0, false),
    ] {
        let mut bench = all_old(0);
        (bench.kswapd.priority, bench.kswapd.freed) = (4, freed * PAGE);
        let mut actions = VecDeque::new();
        let mglru = &mut bench.mglru;
        mglru.evict(scanned, &mut bench.kswapd, &mut actions);
        assert_eq!(!actions.is_empty(), goes_on, "{scanned} {freed}");
    }
}

/// `scan_folios` takes `MIN_LRU_BATCH` pages at a time, 64, and goes past `MAX_LRU_BATCH`, 4,096, that aging has put
/// elsewhere (`sort_folio`). From the two youngest generations it takes none.
#[test]
fn a_batch_is_of_so_many_pages() {
    for (stale, expected) in [(0, 64), (100, 164), (4_050, 4_096), (6_000, 4_096)] {
        let mut bench = all_old(stale);
        let mglru = &mut bench.mglru;
        let mut actions = VecDeque::new();
        assert_eq!(mglru.isolate(&mut actions), expected, "{stale}");
        assert_eq!(actions.len() as u64, expected - u64::from(stale.min(4_096)));
        mglru.max_seq = mglru.min_seq + 1;
        assert_eq!(mglru.isolate(&mut actions), 0, "they are young");
    }
}

/// `folio_update_gen`: a page that was accessed becomes young, in a walk and at its eviction, where its neighbours are
/// looked at, too (`lru_gen_look_around`). One that was not goes at its eviction and not before.
#[test]
fn an_accessed_page_becomes_young() {
    let mut bench = all_old(0);
    let mglru = &mut bench.mglru;
    let youngest = number(index(mglru.max_seq));
    let mut actions = VecDeque::new();
    // The first 64 are isolated.
    let _ = mglru.isolate(&mut actions);
    actions.clear();
    for (unit, accessed, goes, young, looks) in [
        (0, true, false, true, 1),
        (1, false, true, false, 0),
        (100, true, false, true, 0),
        (101, false, false, false, 0),
    ] {
        assert_eq!(mglru.probed(unit, accessed, &mut actions), goes, "{unit}");
        let generation = mglru.generation[unit as usize];
        assert_eq!(generation == youngest, young, "{unit}");
        assert_eq!(actions.drain(..).count(), looks, "{unit}");
    }
}

/// `suitable_to_scan`: a table is walked again where one entry in eight was accessed, of a cache line one.
#[test]
fn a_table_is_worth_a_walk_with_an_accessed_entry_a_cache_line() {
    let table = Asked::Table { table: 3 };
    let around = Asked::Around {
        table: 3,
        entries: 40,
    };
    for (asked, young, expected) in [
        (table, 63, false),
        (table, 64, true),
        (around, 4, false),
        (around, 5, true),
    ] {
        let mut bench = Bench::new();
        let mglru = &mut bench.mglru;
        mglru.filter = Some(vec![false; mglru.here.len()]);
        let ask = Ask {
            asked,
            last: 0,
            young,
        };
        mglru.answered(&ask);
        let filter = mglru.filter.as_ref().expect("it is there");
        let worth = if matches!(asked, Asked::Table { .. }) {
            &mglru.found
        } else {
            filter
        };
        let chosen: Vec<usize> = (0..worth.len()).filter(|&n| worth[n]).collect();
        let wanted = if expected { vec![3] } else { Vec::new() };
        assert_eq!(chosen, wanted, "{asked:?} {young}");
    }
}

/// `lru_gen_look_around`: 64 entries, half of them before the page, of its table and its mapping.
#[test]
fn its_neighbours_are_64_of_the_same_table() {
    for (unit, first) in [
        (0, 0),
        (31, 0),
        (33, 1),
        (100, 68),
        (500, 448),
        (512, 512),
        (PAGES - 1, PAGES - 64),
    ] {
        let mut bench = Bench::new();
        let mut actions = VecDeque::new();
        bench.mglru.look_around(unit, &mut actions);
        let expected = Action::ProbeRange {
            node: Some(NodeId(0)),
            page: bench.space.page(first),
            pages: 64,
        };
        assert_eq!(actions, [expected], "{unit}");
    }
}

/// It is one thread: a look and an entry take it their time, and what it took too long over is missing next time.
#[test]
fn it_looks_at_no_more_than_its_time_is_enough_for() {
    for (page, entry, expected) in [(10_000.0, 0.0, 100), (0.0, 1_000.0, 1_000)] {
        let mut bench = Bench::new();
        bench.mglru.prices = Prices { page, entry };
        let mut actions = VecDeque::new();
        bench.mglru.tick(1e6);
        let asked = if page > 0.0 { 1 } else { 2 };
        for unit in 0..expected / asked {
            assert!(bench.mglru.budget > 0.0, "{unit}");
            let mglru = &mut bench.mglru;
            mglru.ask(Asked::Page, 0, asked, 0, &mut actions);
        }
        bench.mglru.asks.clear();
        assert!(bench.mglru.budget <= 0.0);
        bench.mglru.go(&mut bench.kswapd, &mut actions);
        assert!(bench.mglru.done, "until the next tick");
        bench.mglru.budget = -2e6;
        bench.mglru.tick(1e6);
        bench.mglru.go(&mut bench.kswapd, &mut actions);
        assert!(bench.mglru.done, "nor then");
    }
}
