// SPDX-License-Identifier: MIT OR Apache-2.0
//! First-in-first-out lists of units, from which any unit is taken out at once (HeMem 3).
//!
//! A list is a ring of unit numbers; a unit knows its place in it (`Meta::seq`), so that taking it out
//! leaves a gap, and the ring is packed when most of it is gaps. That is 4 bytes for a listed page, 8
//! at the worst, beside the 8 of the table; pages that no list is looked through for (cold ones on
//! slow memory) are in none.

use std::collections::VecDeque;

const GAP: u32 = u32::MAX;

/// A list.
#[derive(Debug, Default)]
pub(super) struct List {
    ring: VecDeque<u32>,
    /// Sequence number of the ring's first entry; wraps.
    first: u32,
    live: usize,
}

impl List {
    pub(super) const fn len(&self) -> usize {
        self.live
    }

    /// The unit that is first.
    pub(super) fn front(&self) -> Option<u32> {
        self.ring.front().copied()
    }

    /// The unit that is last.
    pub(super) fn back(&self) -> Option<u32> {
        self.ring.back().copied()
    }

    #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
    pub(super) fn push_back(&mut self, unit: u32) -> u32 {
        let seq = self.first.wrapping_add(self.ring.len() as u32);
        self.ring.push_back(unit);
        self.live += 1;
        seq
    }

    pub(super) fn push_front(&mut self, unit: u32) -> u32 {
        self.first = self.first.wrapping_sub(1);
        self.ring.push_front(unit);
        self.live += 1;
        self.first
    }

    /// Takes out what is at that place. The ends never are gaps.
    pub(super) fn remove(&mut self, seq: u32) {
        let at = seq.wrapping_sub(self.first) as usize;
        debug_assert!(self.ring[at] != GAP, "taken out twice");
        self.ring[at] = GAP;
        self.live -= 1;
        while self.ring.front() == Some(&GAP) {
            self.ring.pop_front();
            self.first = self.first.wrapping_add(1);
        }
        while self.ring.back() == Some(&GAP) {
            self.ring.pop_back();
        }
    }

    /// Whether most of it is gaps.
    pub(super) fn wants_packing(&self) -> bool {
        self.ring.len() > self.live * 2 + 64
    }

    /// Closes the gaps and tells every unit's new place. A place that somebody has come to stays before
    /// the same unit.
    pub(super) fn pack(&mut self, come_to: &mut u32, mut tell: impl FnMut(u32, u32)) {
        let passed = come_to.wrapping_sub(self.first) as usize;
        let gaps = |unit: &&u32| **unit == GAP;
        let closed = self.ring.iter().take(passed).filter(gaps).count();
        *come_to = come_to.wrapping_sub(u32::try_from(closed).unwrap_or(0));
        self.ring.retain(|unit| *unit != GAP);
        self.ring.shrink_to(self.live * 2);
        let mut seq = self.first;
        for unit in &self.ring {
            tell(*unit, seq);
            seq = seq.wrapping_add(1);
        }
    }

    /// The place of its first.
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// Places in use, gaps included.
    pub(super) fn span(&self) -> usize {
        self.ring.len()
    }

    /// What is at that place, or at the first where that place is not in use; nothing for a gap.
    pub(super) fn at_or_first(&self, seq: u32) -> (u32, Option<u32>) {
        let at = seq.wrapping_sub(self.first) as usize;
        let (seq, at) = if at < self.ring.len() {
            (seq, at)
        } else {
            (self.first, 0)
        };
        (seq, self.ring.get(at).copied().filter(|unit| *unit != GAP))
    }

    /// Bytes it takes.
    pub(super) fn bytes(&self) -> u64 {
        (self.ring.capacity() * size_of::<u32>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a plain vector: whatever is put in at either end and taken out from anywhere.
        #[test]
        fn keeps_its_order(steps in prop::collection::vec((0_u8..4, any::<u16>()), 0..400)) {
            let (mut list, mut model, mut seqs) = (List::default(), VecDeque::new(), BTreeMap::new());
            for (unit, (what, pick)) in (0_u32..).zip(steps) {
                match what {
                    0 => { seqs.insert(unit, list.push_back(unit)); model.push_back(unit); }
                    1 => { seqs.insert(unit, list.push_front(unit)); model.push_front(unit); }
                    _ if !model.is_empty() => {
                        let gone = model.remove(usize::from(pick) % model.len()).expect("inside");
                        list.remove(seqs[&gone]);
                    }
                    _ => {}
                }
                if list.wants_packing() {
                    let mut come_to = list.first.wrapping_add(u32::from(pick) % 600);
                    let (_, before) = list.at_or_first(come_to);
                    let inside = (come_to.wrapping_sub(list.first) as usize) < list.span();
                    list.pack(&mut come_to, |unit, seq| { seqs.insert(unit, seq); });
                    if let (true, Some(before)) = (inside, before) {
                        prop_assert_eq!(list.at_or_first(come_to), (seqs[&before], Some(before)));
                    }
                }
                prop_assert_eq!(list.len(), model.len());
                prop_assert_eq!(list.front(), model.front().copied());
                prop_assert_eq!(list.back(), model.back().copied());
                prop_assert!(list.span() <= model.len() * 2 + 64);
            }
            let mut left = Vec::new();
            let mut seq = list.first.wrapping_sub(1);
            for _ in 0..list.span() {
                let (at, unit) = list.at_or_first(seq);
                left.extend(unit);
                seq = at.wrapping_add(1);
            }
            prop_assert_eq!(left, Vec::from(model));
        }
    }
}
