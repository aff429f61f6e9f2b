// SPDX-License-Identifier: MIT OR Apache-2.0
//! The lists against lists that are written down plainly, and rule by rule.

use proptest::prelude::*;

use super::*;

const BASE: PageSize = PageSize::Base4K;

/// Two vectors, the tail first; of each page whether it is referenced, and what readings told of it.
#[derive(Debug, Default)]
struct Plain {
    inactive: Vec<(u32, bool, Option<bool>)>,
    active: Vec<u32>,
}

impl Plain {
    fn remove(&mut self, unit: u32) {
        self.inactive.retain(|page| page.0 != unit);
        self.active.retain(|page| *page != unit);
    }

    fn coldest(&mut self) -> Option<u32> {
        loop {
            // Below a GiB there are to be as many inactive as active pages.
            while self.inactive.len() < self.active.len() {
                let unit = self.active.remove(0);
                self.inactive.push((unit, false, None));
            }
            let (unit, referenced, told) = *self.inactive.first()?;
            match told {
                None => return None,
                Some(false) => return Some(unit),
                Some(true) => {}
            }
            self.inactive.remove(0);
            if referenced {
                self.active.push(unit);
            } else {
                self.inactive.push((unit, true, None));
            }
        }
    }
}

proptest! {
    #[test]
    fn they_are_lists(steps in prop::collection::vec((0_u8..8, 500_u32..524, any::<bool>()), 0..400)) {
        let (mut lists, mut plain) = (TwoLists::default(), Plain::default());
        // What is told of an active page is forgotten when it becomes inactive.
        for (what, unit, yes) in steps {
            match what {
                0 | 1 if !lists.contains(unit) => {
                    let list = if yes { List::Active } else { List::Inactive };
                    lists.add(unit, BASE, list);
                    match list {
                        List::Active => plain.active.push(unit),
                        List::Inactive => plain.inactive.push((unit, false, None)),
                    }
                }
                2 => { lists.remove(unit); plain.remove(unit); }
                3..=5 => {
                    lists.read(unit, yes);
                    for page in plain.inactive.iter_mut().filter(|page| page.0 == unit) {
                        page.2 = Some(page.2.unwrap_or_default() || yes);
                    }
                }
                _ => {
                    let coldest = lists.coldest();
                    prop_assert_eq!(coldest, plain.coldest());
                    if let Some(unit) = coldest.filter(|_| yes) {
                        lists.remove(unit);
                        plain.remove(unit);
                    }
                }
            }
            prop_assert_eq!(lists.pages(List::Active), plain.active.len() as u64);
            prop_assert_eq!(lists.pages(List::Inactive), plain.inactive.len() as u64);
        }
    }
}

impl TwoLists {
    /// Of one page.
    fn read(&mut self, unit: u32, accessed: bool) {
        let one = PageBits::one(unit as usize % CHUNK_PAGES);
        let accessed = if accessed { one } else { PageBits::NONE };
        self.read_all(unit / 512 * 512, &one, &accessed);
    }
}

/// Pages 0 and on, each the newest when it came.
fn with(pages: u32, list: List) -> TwoLists {
    let mut lists = TwoLists::default();
    (0..pages).for_each(|unit| lists.add(unit, BASE, list));
    lists
}

#[test]
fn first_come_first_gone_once_a_reading_has_told() {
    let mut lists = with(3, List::Inactive);
    assert_eq!(lists.coldest(), None, "nothing is known of them");
    (0..3).for_each(|unit| lists.read(unit, false));
    for unit in 0..3 {
        assert_eq!(lists.coldest(), Some(unit));
        lists.remove(unit);
    }
    assert_eq!(lists.coldest(), None);
}

#[test]
fn an_accessed_page_has_a_second_chance_and_is_active_the_second_time() {
    let mut lists = with(2, List::Inactive);
    lists.read(0, true);
    lists.read(1, false);
    assert_eq!(lists.coldest(), Some(1), "0 was kept");
    assert_eq!(lists.pages(List::Active), 0);
    lists.remove(1);
    lists.add(1, BASE, List::Inactive);
    lists.read(0, true);
    assert_eq!(lists.coldest(), None);
    assert_eq!(lists.pages(List::Active), 1);
    // What was kept and is not accessed again goes.
    let mut lists = with(1, List::Inactive);
    lists.read(0, true);
    assert_eq!(lists.coldest(), None);
    lists.read(0, false);
    assert_eq!(lists.coldest(), Some(0));
}

#[test]
fn active_pages_become_inactive_where_those_are_few_the_oldest_first() {
    let mut lists = with(10, List::Active);
    (0..10).for_each(|unit| lists.read(unit, true));
    assert_eq!(lists.coldest(), None, "they are looked at anew");
    assert_eq!(
        (lists.pages(List::Active), lists.pages(List::Inactive)),
        (5, 5)
    );
    (0..10).for_each(|unit| lists.read(unit, false));
    assert_eq!(lists.coldest(), Some(0));
}

#[test]
fn much_memory_keeps_more_active() {
    let mut lists = TwoLists::default();
    let pages = 16 * 512;
    (0..pages).for_each(|unit| lists.add(unit, PageSize::Huge2M, List::Active));
    let _ = lists.coldest();
    let (active, inactive) = (lists.pages(List::Active), lists.pages(List::Inactive));
    assert_eq!(active + inactive, 16 << 18);
    // 16 GiB: 12 to 1.
    assert_eq!(active / inactive, 11);
    assert_eq!((active + 512) / (inactive - 512), 12);
}
