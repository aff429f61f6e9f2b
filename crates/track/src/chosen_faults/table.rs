// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that are armed, or about to be: since when, and what has come of it. Pure.

use std::collections::BTreeMap;

use terrace_bpf::ChosenFault;
use terrace_core::Addr;
use terrace_core::Nanos;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

/// A page that was ordered.
#[derive(Debug)]
struct Entry {
    /// Its place in the order of orders.
    age: u64,
    ordered: Nanos,
    /// Armed since then, once that was told.
    since: Option<Nanos>,
    /// Ordered again since.
    again: bool,
    /// Its access, if that came before it was told since when.
    early: Option<ChosenFault>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Table {
    most: usize,
    pages: BTreeMap<PageRef, Entry>,
    by_age: BTreeMap<u64, PageRef>,
    orders: u64,
    /// Accesses, and since when their pages were armed.
    ready: Vec<(ChosenFault, Nanos)>,
}

impl Table {
    /// For so many pages.
    pub(super) const fn new(most: usize) -> Self {
        Self {
            most,
            pages: BTreeMap::new(),
            by_age: BTreeMap::new(),
            orders: 0,
            ready: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.pages.len()
    }

    /// A page is to be armed. Gives the oldest one if it had to make room.
    pub(super) fn order(&mut self, page: PageRef, now: Nanos) -> Option<PageRef> {
        if let Some(entry) = self.pages.get_mut(&page) {
            entry.again = true;
            return None;
        }
        let oldest = self.by_age.first_key_value().map(|(_, page)| *page);
        let oldest = oldest.filter(|_| self.pages.len() >= self.most);
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
        let age = self.orders;
        self.orders += 1;
        self.by_age.insert(age, page);
        let entry = Entry {
            age,
            ordered: now,
            since: None,
            again: false,
            early: None,
        };
        self.pages.insert(page, entry);
        oldest
    }

    /// It is armed since then: who arms is not trusted, so not since before the order. The first word counts.
    pub(super) fn armed(&mut self, page: PageRef, since: Nanos) {
        let Some(entry) = self.pages.get_mut(&page) else {
            return;
        };
        let since = *entry.since.get_or_insert(since.max(entry.ordered));
        if let Some(fault) = entry.early.take() {
            let since = begun(entry.ordered, since, fault.time);
            self.remove(page);
            self.ready.push((fault, since));
        }
    }

    /// A page was accessed. Gives it if it was ordered again meanwhile, and so may be looked for still.
    pub(super) fn accessed(&mut self, fault: ChosenFault) -> Option<PageRef> {
        let page = fault.page;
        let entry = self.pages.get_mut(&page)?;
        let again = entry.again.then_some(page);
        if let Some(since) = entry.since {
            let since = begun(entry.ordered, since, fault.time);
            self.remove(page);
            self.ready.push((fault, since));
        } else {
            entry.early.get_or_insert(fault);
        }
        again
    }

    pub(super) fn remove(&mut self, page: PageRef) {
        if let Some(entry) = self.pages.remove(&page) {
            self.by_age.remove(&entry.age);
        }
    }

    /// Those of a process that begin in a range.
    pub(super) fn within(&self, pid: Pid, range: Range) -> Vec<PageRef> {
        let at = |addr: Addr| PageRef {
            pid,
            addr,
            size: PageSize::Base4K,
        };
        if range.start >= range.end {
            return Vec::new();
        }
        let found = self.pages.range(at(range.start)..at(range.end));
        found.map(|(page, _)| *page).collect()
    }

    /// What is to be reported since the last call.
    pub(super) fn take_ready(&mut self) -> Vec<(ChosenFault, Nanos)> {
        std::mem::take(&mut self.ready)
    }
}

/// When the wait began that an access ended: where it came before the page was armed, as that of a page that was
/// not there, with the order.
fn begun(ordered: Nanos, since: Nanos, access: Nanos) -> Nanos {
    if since <= access { since } else { ordered }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(n: u64) -> PageRef {
        PageRef {
            pid: Pid(u32::try_from(n % 2).expect("0 or 1")),
            addr: Addr(n << 12),
            size: PageSize::Base4K,
        }
    }

    fn fault(n: u64, time: u64) -> ChosenFault {
        ChosenFault {
            page: page(n),
            tid: 1,
            cpu: 0,
            cpu_node: None,
            write: false,
            time: Nanos(time),
        }
    }

    fn taken(table: &mut Table) -> Vec<(PageRef, u64)> {
        let ready = table.take_ready().into_iter();
        let idle = |(fault, since): (ChosenFault, Nanos)| (fault.page, fault.time.since(since).0);
        ready.map(idle).collect()
    }

    #[test]
    fn idle_times_run_from_the_arming_whichever_is_told_first() {
        let mut table = Table::new(9);
        for n in [1, 2, 3] {
            assert_eq!(table.order(page(n), Nanos(10)), None);
        }
        table.armed(page(1), Nanos(15));
        assert_eq!(table.accessed(fault(1, 20)), None);
        table.accessed(fault(2, 30));
        assert_eq!(taken(&mut table), [(page(1), 5)]);
        table.armed(page(2), Nanos(12));
        // It was not there when it was to be armed, or so who arms says.
        table.accessed(fault(3, 14));
        table.armed(page(3), Nanos(16));
        table.accessed(fault(4, 50));
        assert_eq!(taken(&mut table), [(page(2), 18), (page(3), 4)]);
        assert_eq!((table.len(), table.by_age.len()), (0, 0));
    }

    #[test]
    fn one_that_is_ordered_again_keeps_its_time_and_is_told_once() {
        let mut table = Table::new(9);
        table.order(page(1), Nanos(10));
        table.armed(page(1), Nanos(5));
        table.order(page(1), Nanos(20));
        table.armed(page(1), Nanos(21));
        assert_eq!(table.accessed(fault(1, 30)), Some(page(1)));
        assert_eq!(table.accessed(fault(1, 40)), None);
        assert_eq!(taken(&mut table), [(page(1), 20)], "not before its order");
    }

    #[test]
    fn the_oldest_makes_room_and_a_process_takes_its_own_along() {
        let mut table = Table::new(3);
        for n in 0..3 {
            assert_eq!(table.order(page(n), Nanos(n)), None);
        }
        assert_eq!(table.order(page(1), Nanos(9)), None, "it is there");
        assert_eq!(table.order(page(7), Nanos(9)), Some(page(0)));
        let range = Range {
            start: Addr(2 << 12),
            end: Addr(9 << 12),
        };
        assert_eq!(table.within(Pid(1), range), [page(7)]);
        assert_eq!(table.within(Pid(0), range), [page(2)]);
        let none = Range {
            start: range.end,
            end: range.start,
        };
        assert_eq!(table.within(Pid(0), none), []);
    }

    proptest! {
        /// Whatever comes in whatever order: never more than there is room for, nobody told twice of one order, and no idle time
        /// from before the order.
        #[test]
        fn orders_and_ends_are_kept_apart(steps in prop::collection::vec((0_u8..4, 0_u64..12), 0..200)) {
            let mut table = Table::new(5);
            let (mut ordered, mut told) = (0, 0);
            for (now, (what, n)) in (1_u64..).zip(steps) {
                match what {
                    0 => {
                        let new = !table.pages.contains_key(&page(n));
                        ordered += u64::from(new);
                        table.order(page(n), Nanos(now));
                    }
                    1 => table.armed(page(n), Nanos(now)),
                    2 => { table.accessed(fault(n, now)); }
                    _ => table.remove(page(n)),
                }
                for (fault, since) in table.take_ready() {
                    told += 1;
                    prop_assert!(since <= fault.time && since.0 > 0);
                    prop_assert!(!table.pages.contains_key(&fault.page));
                }
                prop_assert!(table.pages.len() <= 5);
                prop_assert_eq!(table.pages.len(), table.by_age.len());
            }
            prop_assert!(told <= ordered);
        }
    }
}
