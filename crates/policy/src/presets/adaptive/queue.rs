// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that are to move to one side, in the order in which they were planned: by chunk a set, as a plan takes many pages of
//! each.

use std::collections::VecDeque;

use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;

use super::places::Place;
use crate::kit::pages::Key;
use crate::kit::pages::split;

/// A page that is to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) page: PageRef,
    /// Where it was when that was planned.
    pub(super) from: Place,
}

/// Pages of a chunk that go the same way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) key: Key,
    pub(super) size: PageSize,
    pub(super) from: Place,
    pub(super) pages: PageBits,
}

impl Run {
    fn bytes(&self) -> u64 {
        self.size.bytes() * u64::from(self.pages.count())
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// None is empty.
    runs: VecDeque<Run>,
    bytes: u64,
}

impl Queue {
    /// That page is to move, too.
    pub(super) fn push(&mut self, order: Order) {
        let Order { page, from } = order;
        let ((key, index), size) = (split(page), page.size);
        let same = |run: &&mut Run| (run.key, run.size, run.from) == (key, size, from);
        if let Some(run) = self.runs.back_mut().filter(same) {
            if run.pages.get(index) {
                return;
            }
            run.pages.set(index);
        } else {
            let pages = PageBits::one(index);
            self.runs.push_back(Run {
                key,
                size,
                from,
                pages,
            });
        }
        self.bytes += size.bytes();
    }

    /// The pages that are next.
    pub(super) fn front(&self) -> Option<Run> {
        self.runs.front().copied()
    }

    /// Of those leaves these.
    pub(super) fn leave(&mut self, pages: &PageBits) {
        let Some(run) = self.runs.front_mut() else {
            return;
        };
        self.bytes -= run.bytes();
        run.pages = run.pages.and(pages);
        self.bytes += run.bytes();
        if run.pages.is_empty() {
            self.runs.pop_front();
        }
    }

    /// Bytes of all that is to move.
    pub(super) const fn queued(&self) -> u64 {
        self.bytes
    }

    pub(super) fn has(&self, page: PageRef) -> bool {
        let (key, index) = split(page);
        let same = |run: &Run| (run.key, run.size) == (key, page.size);
        let mut runs = self.runs.iter();
        runs.any(|run| same(run) && run.pages.get(index))
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }

    /// Drops the pages of a process.
    pub(super) fn drop_of(&mut self, pid: Pid) {
        self.runs.retain(|run| run.key.0 != pid);
        self.bytes = self.runs.iter().map(Run::bytes).sum();
    }

    /// Bytes that this takes.
    pub(super) fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::pages::page_of;
    use proptest::prelude::*;

    /// The first page of those that are next.
    fn pop_front(queue: &mut Queue) -> Option<Order> {
        let Run {
            key,
            size,
            from,
            pages,
        } = queue.front()?;
        let first = pages.pages().next().expect("no run is empty");
        queue.leave(&pages.without(&PageBits::one(first)));
        let page = page_of(key, first, size);
        Some(Order { page, from })
    }

    proptest! {
        /// As a list of pages would be.
        #[test]
        fn pages_go_in_the_order_in_which_they_came(
            chunks in prop::collection::vec((0_u32..2, 0_u64..3, any::<bool>(), 0_usize..2, prop::collection::btree_set(0_usize..512, 1..20)), 0..12),
            pops in 0_usize..40,
        ) {
            let (mut queue, mut list) = (Queue::default(), VecDeque::new());
            for (pid, number, huge, from, pages) in chunks {
                let key = (Pid(pid), number);
                let (size, pages) = if huge {
                    (PageSize::Huge2M, vec![0])
                } else {
                    (PageSize::Base4K, pages.into_iter().collect())
                };
                for index in pages {
                    let page = page_of(key, index, size);
                    let one = Order { page, from };
                    queue.push(one);
                    // Behind one of its chunk it is in that one's set.
                    let run = list.iter().rev().take_while(|other: &&Order| {
                        split(other.page).0 == key && (other.page.size, other.from) == (size, from)
                    });
                    let run: Vec<Order> = run.copied().collect();
                    if !run.contains(&one) {
                        let behind = run.iter().filter(|other| other.page.addr > page.addr).count();
                        list.insert(list.len() - behind, one);
                    }
                }
            }
            for _ in 0..pops {
                prop_assert_eq!(pop_front(&mut queue), list.pop_front());
            }
            prop_assert_eq!(queue.queued(), list.iter().map(|order| order.page.size.bytes()).sum::<u64>());
            prop_assert!(list.iter().all(|order| queue.has(order.page)));
            queue.drop_of(Pid(1));
            list.retain(|order| order.page.pid != Pid(1));
            while let Some(order) = pop_front(&mut queue) {
                prop_assert_eq!(Some(order), list.pop_front());
            }
            prop_assert_eq!((queue.queued(), list.len()), (0, 0));
        }
    }
}
