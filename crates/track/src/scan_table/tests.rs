// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table against a slow model that keeps everything.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn range(start: u64, end: u64) -> Range {
    Range {
        start: Addr(start),
        end: Addr(end),
    }
}

#[derive(Debug, Clone)]
enum Op {
    Scan(Range, Nanos, bool),
    Fault(Addr, PageSize, Nanos, bool),
    Unmap(Range),
}

/// What the table says, written down without regard to size or time.
#[derive(Default)]
struct Model {
    /// For each chunk, all its scans in the order of arrival.
    scans: BTreeMap<u64, Vec<(Range, Nanos, bool)>>,
    /// For each page by number, how many scans its chunk had seen before its last fault.
    faulted: BTreeMap<u64, usize>,
}

impl Model {
    fn scan(&mut self, range: Range, time: Nanos, all: bool) {
        let mut page = range.start.0 >> 12;
        let mut chunks = std::collections::BTreeSet::new();
        while page << 12 < range.end.0 {
            chunks.insert(page >> 9);
            page += 1;
        }
        for chunk in chunks {
            let scans = self.scans.entry(chunk).or_default();
            scans.push((range, time, all));
        }
    }

    fn fault(&mut self, addr: Addr, size: PageSize, time: Nanos, top: bool) -> Scanned {
        let page = addr.0 >> 12;
        let Some(scans) = self.scans.get(&(page >> 9)) else {
            return Scanned::default();
        };
        let oldest = scans.len().saturating_sub(HISTORY as usize);
        let earlier: Vec<usize> = (oldest..scans.len())
            .filter(|i| scans[*i].1 <= time)
            .collect();
        let covering = || {
            earlier.iter().filter(|i| {
                let r = scans[**i].0;
                r.start.0 >> 12 <= page && page << 12 < r.end.0
            })
        };
        let after = self.faulted.get(&page).copied().unwrap_or(0);
        let found = Scanned {
            last: covering().map(|i| scans[*i].1).max(),
            armed: covering()
                .filter(|i| **i >= after && (scans[**i].2 || !top))
                .map(|i| scans[*i].1)
                .min(),
        };
        if let Some(latest) = earlier.last() {
            let pages = match size {
                PageSize::Base4K => page..page + 1,
                _ => page & !511..(page & !511) + 512,
            };
            for page in pages {
                let seen = self.faulted.entry(page).or_default();
                *seen = (*seen).max(latest + 1);
            }
        }
        found
    }

    fn unmap(&mut self, range: Range) {
        let whole = |chunk: &u64| range.start.0 <= chunk << 21 && (chunk + 1) << 21 <= range.end.0;
        self.scans.retain(|chunk, _| !whole(chunk));
        self.faulted.retain(|page, _| !whole(&(page >> 9)));
    }
}

/// Few addresses and times, so that they meet.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let page = 0u64..3 * 512;
    let op = prop_oneof![
        4 => (page.clone(), 1u64..900, 0u64..30, any::<bool>())
            .prop_map(|(p, n, back, all)| (0, p, p + n, back, all)),
        8 => (page.clone(), any::<bool>(), 0u64..30, any::<bool>())
            .prop_map(|(p, huge, back, top)| (if huge { 2 } else { 1 }, p, 0, back, top)),
        1 => (page, 1u64..2000).prop_map(|(p, n)| (3, p, p + n, 0, false)),
    ];
    prop::collection::vec(op, 0..600).prop_map(|ops| {
        let mut now = 100;
        ops.into_iter()
            .map(|(kind, from, to, back, flag)| {
                now += 7;
                // Records of different processors arrive a little out of order.
                let time = Nanos(now - back);
                let r = range(from << 12, to << 12);
                match kind {
                    0 => Op::Scan(r, time, flag),
                    1 => Op::Fault(Addr(from << 12), PageSize::Base4K, time, flag),
                    2 => Op::Fault(Addr(from << 12), PageSize::Huge2M, time, flag),
                    _ => Op::Unmap(r),
                }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn table_says_what_the_model_says(ops in ops()) {
        let (mut table, mut model) = (ScanTable::new(100), Model::default());
        for op in ops {
            match op {
                Op::Scan(r, t, all) => { table.scan(r, t, all); model.scan(r, t, all); }
                Op::Fault(a, s, t, top) => {
                    prop_assert_eq!(table.fault(a, s, t, top), model.fault(a, s, t, top), "{:?}", op);
                }
                Op::Unmap(r) => { table.unmap(r); model.unmap(r); }
            }
        }
        prop_assert_eq!(table.forgotten(), 0);
    }

    #[test]
    fn size_is_bounded_and_what_is_not_kept_is_counted(
        scans in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
    ) {
        let mut table = ScanTable::new(16);
        for (a, b) in scans {
            table.scan(range(a.min(b), a.max(b)), Nanos(1), false);
            prop_assert!(table.chunks() <= 16);
        }
    }
}

#[test]
fn idle_time_counts_from_the_first_scan_after_the_last_fault() {
    let mut table = ScanTable::new(10);
    let all = range(0, 2 * MIB);
    let page = Addr(5 << 12);
    table.scan(all, Nanos(10), false);
    table.scan(all, Nanos(20), false);
    // Never touched: marked at 10, left as it was at 20.
    let first = table.fault(page, PageSize::Base4K, Nanos(25), false);
    assert_eq!(
        first,
        Scanned {
            last: Some(Nanos(20)),
            armed: Some(Nanos(10))
        }
    );
    table.scan(all, Nanos(30), false);
    table.scan(all, Nanos(40), false);
    let second = table.fault(page, PageSize::Base4K, Nanos(41), false);
    assert_eq!(
        second,
        Scanned {
            last: Some(Nanos(40)),
            armed: Some(Nanos(30))
        }
    );
    // Nothing marked it since.
    let third = table.fault(page, PageSize::Base4K, Nanos(42), false);
    assert_eq!(
        third,
        Scanned {
            last: Some(Nanos(40)),
            armed: None
        }
    );
}

#[test]
fn scans_that_leave_out_the_top_tier_mark_nothing_there() {
    let mut table = ScanTable::new(10);
    let all = range(0, 2 * MIB);
    table.scan(all, Nanos(10), false);
    table.scan(all, Nanos(20), true);
    let mut armed = |page: u64, top| {
        let found = table.fault(Addr(page << 12), PageSize::Base4K, Nanos(25), top);
        found.armed
    };
    assert_eq!(armed(5, true), Some(Nanos(20)));
    assert_eq!(armed(6, false), Some(Nanos(10)));
}

#[test]
fn ages_do_not_go_round() {
    let mut table = ScanTable::new(10);
    let all = range(0, 2 * MIB);
    let page = Addr(0);
    table.scan(all, Nanos(1), false);
    table.fault(page, PageSize::Base4K, Nanos(1), false);
    for extra in 0..1000 {
        table.scan(all, Nanos(2 + extra), false);
    }
    // 1,000 scans later, and 256 would look like none: the oldest remembered one marked it.
    let found = table.fault(page, PageSize::Base4K, Nanos(2000), false);
    assert_eq!(found.last, Some(Nanos(1001)));
    assert_eq!(found.armed, Some(Nanos(1002 - u64::from(HISTORY))));
}

#[test]
fn scan_covers_exactly_its_range() {
    let mut table = ScanTable::new(10);
    table.scan(range(2 * MIB - 4096, 2 * MIB + 4096), Nanos(5), false);
    let last = |table: &mut ScanTable, addr| {
        let found = table.fault(Addr(addr), PageSize::Base4K, Nanos(6), false);
        found.last
    };
    assert_eq!(last(&mut table, 2 * MIB - 8192), None);
    assert_eq!(last(&mut table, 2 * MIB - 4096), Some(Nanos(5)));
    assert_eq!(last(&mut table, 2 * MIB), Some(Nanos(5)));
    assert_eq!(last(&mut table, 2 * MIB + 4096), None);
}

#[test]
fn full_table_counts_what_it_does_not_remember() {
    let mut table = ScanTable::new(2);
    table.scan(range(0, 6 * MIB), Nanos(1), false);
    assert_eq!((table.chunks(), table.forgotten()), (2, 1));
    table.scan(range(0, u64::MAX), Nanos(2), false);
    assert_eq!(table.chunks(), 2);
    assert!(table.forgotten() > 1 << 40);
}
