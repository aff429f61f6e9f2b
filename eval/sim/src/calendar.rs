// SPDX-License-Identifier: MIT OR Apache-2.0
//! A queue of what is due at some work of a program: a calendar of buckets, of which only the present
//! one is in order. What lies beyond the calendar waits unordered for the next one. So an entry costs
//! two moves and its part of sorting a bucket, however many there are. What comes for the bucket that
//! is being used up goes into a heap beside it: a few, unless the buckets are far too wide.

use std::cmp::Ordering;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that a visit will run into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due {
    /// At that work of the program.
    pub(crate) work: f64,
    pub(crate) unit: u32,
    /// The write that drops the shadow, else the hint fault.
    pub(crate) write: bool,
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl Due {
    /// Its place in the order: work is not negative, so its bits are in the order of its values.
    const fn key(&self) -> (u64, u32, bool) {
        (self.work.to_bits(), self.unit, self.write)
    }
}

const BUCKETS: usize = 1024;

/// The queue. While it is not empty, the first entry is in `present` or in `late`.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// Where the first bucket begins, and how wide each is.
    base: f64,
    width: f64,
    /// The bucket that `present` was made from.
    at: usize,
    /// In order, the first one last.
    present: Vec<Due>,
    /// What came for it since, if anything.
    late: BinaryHeap<Reverse<Due>>,
    buckets: Vec<Vec<Due>>,
    later: Vec<Due>,
    /// Entries in `buckets`.
    filed: usize,
}

impl Calendar {
    pub(crate) fn new() -> Self {
        Self {
            base: 0.0,
            width: 1.0,
            at: 0,
            present: Vec::new(),
            late: BinaryHeap::new(),
            buckets: (0..BUCKETS).map(|_| Vec::new()).collect(),
            later: Vec::new(),
            filed: 0,
        }
    }

    /// The first entry's work.
    pub(crate) fn first(&self) -> Option<f64> {
        let late = self.late.peek().map(|due| due.0.work);
        match (self.present.last().map(|due| due.work), late) {
            (Some(present), Some(late)) => Some(present.min(late)),
            (present, late) => present.or(late),
        }
    }

    /// Takes the first entry; `width` is how wide buckets shall be if new ones are made.
    pub(crate) fn pop(&mut self, width: f64) -> Option<Due> {
        let first = match (self.present.last(), self.late.peek()) {
            (Some(present), Some(Reverse(late))) if late < present => self.late.pop()?.0,
            (None, _) => self.late.pop()?.0,
            _ => self.present.pop()?,
        };
        self.fill(width);
        Some(first)
    }

    pub(crate) fn push(&mut self, due: Due, width: f64) {
        self.file(due);
        self.fill(width);
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Bytes it takes.
    pub(crate) fn bytes(&self) -> u64 {
        let filed: usize = self.buckets.iter().map(Vec::capacity).sum();
        let present = self.present.capacity() + self.late.capacity();
        ((present + filed + self.later.capacity()) * size_of::<Due>()) as u64
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and is compared with the number of buckets"
    )]
    fn file(&mut self, due: Due) {
        let bucket = ((due.work - self.base) / self.width).max(0.0) as usize;
        if bucket <= self.at {
            self.late.push(Reverse(due));
        } else if bucket < BUCKETS {
            self.buckets[bucket].push(due);
            self.filed += 1;
        } else {
            self.later.push(due);
        }
    }

    /// Goes on to the next bucket that holds something, if the present one is used up.
    fn fill(&mut self, width: f64) {
        while self.present.is_empty() && self.late.is_empty() {
            if self.filed > 0 {
                self.at += 1;
                let bucket = &mut self.buckets[self.at];
                self.filed -= bucket.len();
                std::mem::swap(&mut self.present, bucket);
                self.present.sort_unstable_by_key(|due| Reverse(due.key()));
            } else if self.later.is_empty() {
                return;
            } else {
                let first = self
                    .later
                    .iter()
                    .map(|due| due.work)
                    .fold(f64::INFINITY, f64::min);
                (self.base, self.width, self.at) = (first, width.max(1e-6), 0);
                let later = std::mem::take(&mut self.later);
                for due in later {
                    self.file(due);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever goes in when, what comes out is the least there is.
        #[test]
        fn comes_out_in_order(steps in prop::collection::vec((0.0_f64..1e5, any::<bool>()), 1..400), width in 0.1_f64..500.0) {
            let mut calendar = Calendar::new();
            let mut model = BinaryHeap::new();
            let mut now = 0.0;
            for (unit, (ahead, take)) in (0_u32..).zip(steps) {
                let due = Due { work: now + ahead, unit, write: false };
                calendar.push(due, width);
                model.push(Reverse(due));
                if take {
                    prop_assert_eq!(calendar.first(), model.peek().map(|due| due.0.work));
                    let (got, want) = (calendar.pop(width), model.pop().map(|due| due.0));
                    prop_assert_eq!(got, want);
                    now = got.map_or(now, |due| due.work);
                }
            }
            while let Some(want) = model.pop() {
                prop_assert_eq!(calendar.pop(width), Some(want.0));
            }
            prop_assert_eq!(calendar.pop(width), None);
        }
    }
}
