// SPDX-License-Identifier: MIT OR Apache-2.0
//! What Chrono keeps of pages beside where they are: 4 bytes a page where one of the 2 MiB is, or was, a candidate or
//! demoted, and five bits.

use terrace_core::CHUNK_PAGES;
use terrace_core::Nanos;
use terrace_core::PageBits;

use crate::kit::pages::Own;

/// Bits of a candidate's word for its idle time, us; the two above are its rounds.
const IDLE_BITS: u32 = 30;
const IDLE_MAX: u64 = (1 << IDLE_BITS) - 1;

/// Of 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// A candidate's rounds and the longest of their idle times, us; of one demoted that is no candidate when that
    /// was, ms.
    words: Option<Box<[u32]>>,
    /// With one round below the threshold or more (the paper's XArray).
    pub(super) candidate: PageBits,
    /// Demoted and not accessed since.
    pub(super) demoted: PageBits,
    /// In the promotion queue.
    pub(super) queued: PageBits,
    /// Seen accessed in this pass soon enough for its list.
    pub(super) early: PageBits,
    /// The lists have been told in this pass.
    pub(super) told: bool,
}

impl Own for Marks {
    fn forget(&mut self, pages: &PageBits) {
        for bits in [
            &mut self.candidate,
            &mut self.demoted,
            &mut self.queued,
            &mut self.early,
        ] {
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
    /// Another round below the threshold: how many there are now, and the longest of them.
    pub(super) fn round(&mut self, page: usize, idle: Nanos) -> (u8, Nanos) {
        let (rounds, longest) = if self.candidate.get(page) {
            let word = self.words.as_ref().map_or(0, |words| words[page]);
            let longest = u64::from(word) & IDLE_MAX;
            ((word >> IDLE_BITS) + 1, Nanos(longest * 1_000).max(idle))
        } else {
            (1, idle)
        };
        let micros = u32::try_from((longest.0 / 1_000).min(IDLE_MAX)).unwrap_or(0);
        self.candidate.set(page);
        self.demoted.clear(page);
        *self.word(page) = rounds << IDLE_BITS | micros;
        (u8::try_from(rounds).unwrap_or(u8::MAX), longest)
    }

    /// It was demoted at a time.
    pub(super) fn demote(&mut self, page: usize, now: Nanos) {
        self.candidate.clear(page);
        self.demoted.set(page);
        *self.word(page) = millis(now);
    }

    /// How long ago it was demoted, where it was and no round has come since; exact for 49 days.
    pub(super) fn since_demotion(&self, page: usize, now: Nanos) -> Option<Nanos> {
        let words = self.words.as_ref().filter(|_| self.demoted.get(page))?;
        let ago = millis(now).wrapping_sub(words[page]);
        Some(Nanos::from_millis(u64::from(ago)))
    }

    fn word(&mut self, page: usize) -> &mut u32 {
        let words = self
            .words
            .get_or_insert_with(|| vec![0; CHUNK_PAGES].into());
        &mut words[page]
    }
}

/// Milliseconds, the lower 32 bits of them.
fn millis(at: Nanos) -> u32 {
    u32::try_from((at.0 / 1_000_000) & u64::from(u32::MAX)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_keep_the_longest_and_demotions_their_time() {
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
        let at = Nanos::from_millis((1 << 32) - 5);
        marks.demote(5, at);
        assert!(!marks.candidate.get(5));
        let later = at + Nanos::from_millis(12);
        let ago = marks.since_demotion(5, later);
        assert_eq!(ago, Some(Nanos::from_millis(12)), "across 2^32 ms");
        assert_eq!(marks.since_demotion(6, later), None);
        assert_eq!(marks.round(5, Nanos(1)).0, 1);
        assert_eq!(marks.since_demotion(5, later), None);
        marks.forget(&PageBits::ALL);
        assert_eq!(marks.round(5, Nanos(1)).0, 1);
    }
}
