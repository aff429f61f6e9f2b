// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Chrono keeps of pages beside where they are: 4 bytes a page where one of the 2 MiB is, or was, a candidate, and
//! four bits; and when those were demoted that were in the last scan period ([`Demoted`]).

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::CHUNK_PAGES;
use terrace_core::Nanos;
use terrace_core::PageBits;

use crate::kit::pages::Key;
use crate::kit::pages::Own;

/// Bits of a candidate's word for its idle time, us; the two above are its rounds.
const IDLE_BITS: u32 = 30;
const IDLE_MAX: u64 = (1 << IDLE_BITS) - 1;

/// Of 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// A candidate's rounds and the longest of their idle times, us.
    words: Option<Box<[u32]>>,
    /// With one round below the threshold or more (the paper's XArray).
    pub(super) candidate: PageBits,
    /// Demoted, and no idle time was measured since.
    pub(super) demoted: PageBits,
    /// In the promotion queue.
    pub(super) queued: PageBits,
    /// Seen accessed in this pass soon enough for its list.
    pub(super) early: PageBits,
    /// The lists have been told in this pass.
    pub(super) told: bool,
    /// When the Ticking-scan began to take it last, by accessed bits.
    pub(super) ticked: Option<Nanos>,
}

impl Own for Marks {
    fn forget(&mut self, pages: &PageBits) {
        for bits in [&mut self.candidate, &mut self.queued, &mut self.early] {
            *bits = bits.without(pages);
        }
    }

    fn bytes(&self) -> u64 {
        self.words.as_ref().map_or(0, |words| {
            (words.len() * size_of::<u32>()).try_into().unwrap_or(0)
        })
    }
}

impl Marks {
    /// The first round below the threshold of pages that are no candidates.
    pub(super) fn first_round(&mut self, pages: &PageBits, idle: Nanos) {
        if pages.is_empty() {
            return;
        }
        self.candidate = self.candidate.or(pages);
        let word = word(1, idle);
        let words = self.words();
        for page in pages.pages() {
            words[page] = word;
        }
    }

    /// Another round below the threshold: how many there are now, and the longest of them.
    pub(super) fn round(&mut self, page: usize, idle: Nanos) -> (u8, Nanos) {
        let (rounds, longest) = if self.candidate.get(page) {
            let word = self.words.as_ref().map_or(0, |words| words[page]);
            let longest = u64::from(word) & IDLE_MAX;
            ((word >> IDLE_BITS) + 1, Nanos(longest * 1_000).max(idle))
        } else {
            (1, idle)
        };
        self.candidate.set(page);
        self.words()[page] = word(rounds, longest);
        (u8::try_from(rounds).unwrap_or(u8::MAX), longest)
    }

    fn words(&mut self) -> &mut [u32] {
        self.words
            .get_or_insert_with(|| vec![0; CHUNK_PAGES].into())
    }
}

fn word(rounds: u32, longest: Nanos) -> u32 {
    let micros = u32::try_from((longest.0 / 1_000).min(IDLE_MAX)).unwrap_or(0);
    rounds << IDLE_BITS | micros
}

/// Pages that were demoted not longer ago than a scan period (3.3.2), or whose first idle time since was not.
#[derive(Debug, Default)]
pub(super) struct Demoted {
    at: BTreeMap<(Key, usize), Nanos>,
    order: VecDeque<(Nanos, (Key, usize))>,
}

impl Demoted {
    /// The page's time begins.
    pub(super) fn add(&mut self, now: Nanos, key: Key, page: usize) {
        self.at.insert((key, page), now);
        self.order.push_back((now, (key, page)));
    }

    /// Takes the page out; whether it was in, at a time when those before are no longer.
    pub(super) fn take(&mut self, before: Nanos, key: Key, page: usize) -> bool {
        while let Some((at, page)) = self.order.front().copied().filter(|(at, _)| *at < before) {
            self.order.pop_front();
            if self.at.get(&page) == Some(&at) {
                self.at.remove(&page);
            }
        }
        self.at.remove(&(key, page)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_the_longest() {
        let mut marks = Marks::default();
        assert_eq!(marks.bytes(), 0);
        assert_eq!(marks.round(5, Nanos(7_000)), (1, Nanos(7_000)));
        assert_eq!(marks.round(5, Nanos(3_000)), (2, Nanos(7_000)));
        assert_eq!(marks.round(5, Nanos(9_000)), (3, Nanos(9_000)));
        assert_eq!(marks.bytes(), 4 * 512);
        // Longer than can be kept.
        let day = Nanos::from_secs(86_400);
        assert_eq!(marks.round(6, day), (1, day));
        assert_eq!(marks.round(6, Nanos(1)).1, Nanos(IDLE_MAX * 1_000));
        marks.forget(&PageBits::ALL);
        assert_eq!(marks.round(5, Nanos(1)).0, 1);
    }

    #[test]
    fn demoted_pages_are_known_for_a_period() {
        let key = (terrace_core::Pid(1), 4);
        let mut demoted = Demoted::default();
        demoted.add(Nanos(10), key, 5);
        demoted.add(Nanos(20), key, 6);
        demoted.add(Nanos(30), key, 5);
        assert!(!demoted.take(Nanos(20), key, 7));
        assert!(demoted.take(Nanos(20), key, 6));
        assert!(!demoted.take(Nanos(20), key, 6), "once");
        assert!(demoted.take(Nanos(30), key, 5), "the last time counts");
        demoted.add(Nanos(40), key, 5);
        assert!(!demoted.take(Nanos(41), key, 5));
        assert!(demoted.at.is_empty() && demoted.order.is_empty());
    }
}
