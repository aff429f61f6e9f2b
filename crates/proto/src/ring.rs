// SPDX-License-Identifier: MIT OR Apache-2.0
//! A ring of records in shared memory: one producer, one consumer, no lock, no allocation.
//!
//! The memory is a slice of `AtomicU64` that both sides map; who maps it answers for its lifetime
//! (`terrace-sys::shm`). Header: word 0 the consumer's position, word 8 the producer's (a cache
//! line apart), word 16 the count of records that found the ring full. Positions only grow; slot =
//! position modulo capacity.
//!
//! Neither side trusts the other: a position that makes no sense reads as an empty (or full) ring,
//! never as an index out of bounds.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;

use crate::record::RECORD_WORDS;
use crate::record::Words;

const HEAD: usize = 0;
const TAIL: usize = 8;
const DROPPED: usize = 16;
const HEADER_WORDS: usize = 24;

/// Bytes that a ring for `records` records takes.
#[must_use]
pub const fn bytes_for(records: usize) -> usize {
    (HEADER_WORDS + records * RECORD_WORDS) * 8
}

/// One end of a ring. The same type serves both; each side uses its half of the methods.
#[derive(Debug, Clone, Copy)]
pub struct Ring<'a> {
    words: &'a [AtomicU64],
    capacity: u64,
}

impl<'a> Ring<'a> {
    /// Takes shared memory; its length sets the capacity. `None` where not even one record fits.
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Option<Self> {
        let records = words.len().checked_sub(HEADER_WORDS)? / RECORD_WORDS;
        let capacity = u64::try_from(records).ok()?;
        (capacity > 0).then_some(Self { words, capacity })
    }

    /// How many records fit.
    #[must_use]
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many records wait.
    #[must_use]
    pub fn len(&self) -> u64 {
        let head = self.words[HEAD].load(Ordering::Acquire);
        let tail = self.words[TAIL].load(Ordering::Acquire);
        tail.wrapping_sub(head).min(self.capacity)
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many records were refused because the ring was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.words[DROPPED].load(Ordering::Relaxed)
    }

    /// Producer: appends a record. `false`, and counted, where the ring is full.
    #[must_use]
    pub fn push(&self, record: &Words) -> bool {
        let mut tail = self.words[TAIL].load(Ordering::Relaxed);
        self.push_at(&mut tail, record)
    }

    /// As [`Self::push`], by a position that the producer keeps: the shared one is told and not believed.
    #[must_use]
    pub fn push_at(&self, tail: &mut u64, record: &Words) -> bool {
        let head = self.words[HEAD].load(Ordering::Acquire);
        if tail.wrapping_sub(head) >= self.capacity {
            self.words[DROPPED].fetch_add(1, Ordering::Relaxed);
            return false;
        }
        for (slot, word) in self.slot(*tail).iter().zip(record) {
            slot.store(*word, Ordering::Relaxed);
        }
        *tail = tail.wrapping_add(1);
        self.words[TAIL].store(*tail, Ordering::Release);
        true
    }

    /// Consumer: takes the oldest record.
    #[must_use]
    pub fn pop(&self) -> Option<Words> {
        let mut head = self.words[HEAD].load(Ordering::Relaxed);
        self.pop_at(&mut head)
    }

    /// As [`Self::pop`], by a position that the consumer keeps: the shared one is told and not believed.
    #[must_use]
    pub fn pop_at(&self, head: &mut u64) -> Option<Words> {
        let tail = self.words[TAIL].load(Ordering::Acquire);
        let waiting = tail.wrapping_sub(*head);
        if waiting == 0 || waiting > self.capacity {
            return None;
        }
        let mut record = [0; RECORD_WORDS];
        for (word, slot) in record.iter_mut().zip(self.slot(*head)) {
            *word = slot.load(Ordering::Relaxed);
        }
        *head = head.wrapping_add(1);
        self.words[HEAD].store(*head, Ordering::Release);
        Some(record)
    }

    fn slot(&self, position: u64) -> &'a [AtomicU64] {
        // Below the capacity, which was a usize.
        let index = usize::try_from(position % self.capacity).unwrap_or(0);
        let start = HEADER_WORDS + index * RECORD_WORDS;
        &self.words[start..start + RECORD_WORDS]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn memory(records: usize) -> Vec<AtomicU64> {
        (0..bytes_for(records) / 8)
            .map(|_| AtomicU64::new(0))
            .collect()
    }

    #[test]
    fn too_small_is_no_ring() {
        assert!(Ring::new(&memory(1)[..HEADER_WORDS]).is_none());
        assert!(Ring::new(&[]).is_none());
    }

    #[test]
    fn a_corrupt_position_reads_as_empty() {
        let memory = memory(4);
        let ring = Ring::new(&memory).expect("four records fit");
        memory[TAIL].store(1 << 50, Ordering::Relaxed);
        assert_eq!(ring.pop(), None);
        assert!(!ring.push(&[1; RECORD_WORDS]));
    }

    #[test]
    fn who_keeps_its_position_does_not_believe_the_shared_one() {
        let memory = memory(4);
        let ring = Ring::new(&memory).expect("four records fit");
        let (mut head, mut tail) = (0, 0);
        assert!(ring.push_at(&mut tail, &[1; RECORD_WORDS]));
        assert_eq!(ring.pop_at(&mut head), Some([1; RECORD_WORDS]));
        memory[HEAD].store(0, Ordering::Relaxed);
        assert_eq!(ring.pop_at(&mut head), None, "it was taken");
        memory[TAIL].store(3, Ordering::Relaxed);
        assert!(ring.push_at(&mut tail, &[2; RECORD_WORDS]));
        assert_eq!(ring.pop_at(&mut head), Some([2; RECORD_WORDS]));
        assert_eq!((head, tail), (2, 2));
    }

    #[test]
    fn two_threads_keep_order_and_content() {
        let memory = memory(64);
        let count = 200_000_u64;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let ring = Ring::new(&memory).expect("64 records fit");
                let mut next = 0;
                while next < count {
                    if ring.push(&[next, !next, next << 1, 7]) {
                        next += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
            });
            let ring = Ring::new(&memory).expect("64 records fit");
            let mut next = 0;
            while next < count {
                match ring.pop() {
                    Some(record) => {
                        assert_eq!(record, [next, !next, next << 1, 7]);
                        next += 1;
                    }
                    None => std::thread::yield_now(),
                }
            }
        });
    }

    proptest! {
        /// Behaves as a bounded queue, whatever the order of pushes and pops.
        #[test]
        fn is_a_bounded_queue(steps in prop::collection::vec(any::<bool>(), 0..400), capacity in 1_usize..9) {
            let memory = memory(capacity);
            let ring = Ring::new(&memory).expect("at least one record fits");
            let mut model = VecDeque::new();
            for (n, push) in (0_u64..).zip(steps) {
                if push {
                    let fits = model.len() < capacity;
                    prop_assert_eq!(ring.push(&[n; RECORD_WORDS]), fits);
                    if fits { model.push_back([n; RECORD_WORDS]); }
                } else {
                    prop_assert_eq!(ring.pop(), model.pop_front());
                }
                prop_assert_eq!(ring.len(), model.len() as u64);
            }
        }

        /// A peer that writes what it likes, positions included: nothing is read or written outside, and who keeps
        /// its position takes no more than fits in a turn and pushes where it is.
        #[test]
        fn fuzz_rings(
            capacity in 1_usize..6,
            steps in prop::collection::vec((0_u8..4, 0_usize..48, prop_oneof![any::<u64>(), 0_u64..9]), 0..12),
        ) {
            let memory = memory(capacity);
            let ring = Ring::new(&memory).expect("at least one record fits");
            let (mut head, mut tail) = (0, 0);
            for (what, at, value) in steps {
                match what {
                    0 => memory[at % memory.len()].store(value, Ordering::Relaxed),
                    1 => {
                        let before = tail;
                        let pushed = ring.push_at(&mut tail, &[value; RECORD_WORDS]);
                        prop_assert_eq!(tail, before + u64::from(pushed));
                    }
                    2 => {
                        let before = head;
                        let mut taken = 0;
                        while taken <= capacity && ring.pop_at(&mut head).is_some() {
                            taken += 1;
                        }
                        prop_assert!(taken <= capacity);
                        prop_assert_eq!(head, before + taken as u64);
                    }
                    _ => {
                        let _ = (ring.push(&[value; RECORD_WORDS]), ring.pop());
                        prop_assert!(ring.len() <= ring.capacity());
                    }
                }
            }
        }
    }
}
