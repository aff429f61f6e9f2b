// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nomad's two queues (3.1, figure 4): promotion candidates, and pages that wait for their transaction.
//!
//! A hint fault makes a page a candidate. The fault itself set its accessed bit, so what tells is the bit's being
//! set *again*: in a pass whose clearing was after the fault. Candidates are kept by 2 MiB, as bits are read.
//!
//! Both are bounded in bytes; who comes to a full queue is turned away and counted.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::PageRef;

use crate::kit::pages::Key;

/// A candidate: its page in the 2 MiB, and when it faulted.
type Candidate = (u16, Nanos);

/// Promotion candidate queue.
#[derive(Debug)]
pub(super) struct Pcq {
    chunks: BTreeMap<Key, Vec<Candidate>>,
    len: usize,
    capacity: usize,
    /// Turned away.
    pub(super) dropped: u64,
}

impl Pcq {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            chunks: BTreeMap::new(),
            len: 0,
            capacity: (bytes / size_of::<Candidate>()).max(1),
            dropped: 0,
        }
    }

    /// Adds a page; false where there is no room.
    pub(super) fn push(&mut self, key: Key, page: usize, now: Nanos) -> bool {
        if self.len == self.capacity {
            self.dropped += 1;
            return false;
        }
        self.len += 1;
        let page = u16::try_from(page).expect("one of 512");
        self.chunks.entry(key).or_default().push((page, now));
        true
    }

    /// A reading, of bits that were cleared at a time: takes those that faulted before it and were accessed
    /// since, in the order of their faults; and, at the last reading of a pass, those that were not.
    pub(super) fn read(
        &mut self,
        key: Key,
        cleared: Nanos,
        accessed: &PageBits,
        last: bool,
    ) -> (Vec<usize>, Vec<usize>) {
        let (mut hot, mut cold) = (Vec::new(), Vec::new());
        let Some(candidates) = self.chunks.get_mut(&key) else {
            return (hot, cold);
        };
        candidates.retain(|&(page, faulted)| {
            let page = usize::from(page);
            let judged = faulted < cleared && (last || accessed.get(page));
            if judged && accessed.get(page) {
                hot.push(page);
            } else if judged {
                cold.push(page);
            }
            !judged
        });
        self.len -= hot.len() + cold.len();
        if candidates.is_empty() {
            self.chunks.remove(&key);
        }
        (hot, cold)
    }

    /// Forgets pages of 2 MiB.
    pub(super) fn forget(&mut self, key: Key, pages: &PageBits) {
        if let Some(candidates) = self.chunks.get_mut(&key) {
            let before = candidates.len();
            candidates.retain(|(page, _)| !pages.get(usize::from(*page)));
            self.len -= before - candidates.len();
            if candidates.is_empty() {
                self.chunks.remove(&key);
            }
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }
}

/// A page that waits for its transaction, and how often that was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) page: PageRef,
    pub(super) tries: u8,
}

/// Migration pending queue: first in, first out.
#[derive(Debug)]
pub(super) struct Mpq {
    queue: VecDeque<Waiting>,
    capacity: usize,
    /// Turned away.
    pub(super) dropped: u64,
}

impl Mpq {
    pub(super) fn new(bytes: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity: (bytes / size_of::<Waiting>()).max(1),
            dropped: 0,
        }
    }

    /// Adds a page at the end; false where there is no room.
    pub(super) fn push(&mut self, page: PageRef, tries: u8) -> bool {
        let room = self.queue.len() < self.capacity;
        if room {
            self.queue.push_back(Waiting { page, tries });
        } else {
            self.dropped += 1;
        }
        room
    }

    /// The page that has waited longest.
    pub(super) fn first(&self) -> Option<Waiting> {
        self.queue.front().copied()
    }

    /// Takes it.
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::Addr;
    use terrace_core::PageSize;
    use terrace_core::Pid;

    use super::*;

    const KEY: Key = (Pid(1), 3);

    fn bits(pages: &[usize]) -> PageBits {
        let mut bits = PageBits::NONE;
        pages.iter().for_each(|page| bits.set(*page));
        bits
    }

    #[test]
    fn a_candidate_is_hot_when_its_bit_is_set_again_and_cold_after_a_whole_pass() {
        let mut pcq = Pcq::new(1 << 10);
        for (page, at) in [(9, 10), (4, 11), (7, 30)] {
            assert!(pcq.push(KEY, page, Nanos(at)));
        }
        // The pass under way when they faulted shows what the fault itself did.
        let all = bits(&[4, 7, 9]);
        assert_eq!(pcq.read(KEY, Nanos(10), &all, true), (vec![], vec![]));
        assert_eq!(
            pcq.read(KEY, Nanos(20), &bits(&[]), false),
            (vec![], vec![])
        );
        assert_eq!(
            pcq.read(KEY, Nanos(20), &bits(&[4]), false),
            (vec![4], vec![])
        );
        assert_eq!(
            pcq.read(KEY, Nanos(20), &bits(&[4, 7]), true),
            (vec![], vec![9])
        );
        assert_eq!(
            pcq.read(KEY, Nanos(40), &bits(&[7]), false),
            (vec![7], vec![])
        );
        assert_eq!((pcq.len(), pcq.chunks.len()), (0, 0));
    }

    #[test]
    fn full_queues_turn_away_and_count() {
        let mut pcq = Pcq::new(2 * size_of::<Candidate>());
        let came: Vec<bool> = (0..3).map(|page| pcq.push(KEY, page, Nanos(1))).collect();
        assert_eq!((came, pcq.dropped), (vec![true, true, false], 1));
        pcq.forget(KEY, &bits(&[0, 2]));
        assert_eq!(pcq.len(), 1);
        let page = |n: u64| PageRef {
            pid: Pid(1),
            addr: Addr(n << 12),
            size: PageSize::Base4K,
        };
        let mut mpq = Mpq::new(2 * size_of::<Waiting>());
        let came: Vec<bool> = (0..3).map(|n| mpq.push(page(n), 0)).collect();
        assert_eq!((came, mpq.dropped), (vec![true, true, false], 1));
        assert_eq!(mpq.first().map(|waiting| waiting.page), Some(page(0)));
    }
}
