// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a reading of the page tables says of 512 neighbouring base pages: 2 MiB of addresses, one
//! last-level table, or one huge page.
//!
//! Accessed bits are read in *passes*. A pass clears the bits of a process once and then reads them
//! after a row of waits, each twice the one before: the rungs of a ladder. Bits only appear, so the
//! first rung at which a page's bit is seen is its idle time, to a factor of two. Times count from
//! the clearing.

use crate::Addr;
use crate::Nanos;
use crate::NodeId;
use crate::Pid;

/// How many base pages a chunk has.
pub const CHUNK_PAGES: usize = 512;

/// Bytes of addresses that a chunk covers.
pub const CHUNK_BYTES: u64 = 2 << 20;

/// The readings of a pass, from its clearing: the shortest wait, twice that and so on, at last the whole
/// pass. Waits under a microsecond count as one.
#[must_use]
pub fn ladder(shortest: Nanos, pass: Nanos) -> Vec<Nanos> {
    let (shortest, pass) = (shortest.0.max(1_000), pass.0.max(1_000));
    let waits = std::iter::successors(Some(shortest), |wait| wait.checked_mul(2));
    // What would come just before the last reading says nothing more than that.
    let waits = waits.take_while(|wait| *wait <= pass / 4 * 3);
    waits.chain([pass]).map(Nanos).collect()
}

/// Cuts a ladder of which so many readings are done short: no reading comes later than that.
pub fn shorten(rungs: &mut Vec<Nanos>, done: usize, end: Nanos) {
    if done >= rungs.len() || rungs.last().is_none_or(|last| *last <= end) {
        return;
    }
    let keep = rungs.iter().take_while(|rung| **rung < end).count();
    rungs.truncate(keep.max(done));
    rungs.push(end);
}

/// Draws a ladder out, of which the last reading is not done: it goes on as it has risen and ends with that.
pub fn lengthen(rungs: &mut Vec<Nanos>, end: Nanos) {
    let Some(last) = rungs.pop_if(|last| *last < end) else {
        return;
    };
    let next = rungs
        .last()
        .map_or(last, |rung| Nanos(rung.0.saturating_mul(2)));
    rungs.extend(ladder(next, end));
}

/// One bit for each base page of a chunk, the first page's in the lowest bit of the first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageBits(pub [u64; CHUNK_PAGES / 64]);

impl PageBits {
    /// No page.
    pub const NONE: Self = Self([0; CHUNK_PAGES / 64]);
    /// Every page.
    pub const ALL: Self = Self([u64::MAX; CHUNK_PAGES / 64]);

    /// That page alone; none behind the last.
    #[must_use]
    #[inline]
    pub const fn one(page: usize) -> Self {
        let mut one = Self::NONE;
        one.set(page);
        one
    }

    /// Whether the page's bit is set; false behind the last page.
    #[must_use]
    #[inline]
    pub const fn get(&self, page: usize) -> bool {
        page < CHUNK_PAGES && self.0[page / 64] >> (page % 64) & 1 == 1
    }

    /// Sets the page's bit; nothing behind the last page.
    #[inline]
    pub const fn set(&mut self, page: usize) {
        if page < CHUNK_PAGES {
            self.0[page / 64] |= 1 << (page % 64);
        }
    }

    /// Clears the page's bit; nothing behind the last page.
    #[inline]
    pub const fn clear(&mut self, page: usize) {
        if page < CHUNK_PAGES {
            self.0[page / 64] &= !(1 << (page % 64));
        }
    }

    /// How many bits are set.
    #[must_use]
    #[inline]
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether no bit is set.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Pages in both.
    #[must_use]
    #[inline]
    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    /// Pages in either.
    #[must_use]
    #[inline]
    pub fn or(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Pages of this that are not in the other.
    #[must_use]
    #[inline]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// The pages whose bits are set, from the first.
    #[inline]
    pub fn pages(self) -> impl Iterator<Item = usize> {
        self.0.into_iter().enumerate().flat_map(|(i, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then_some(word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

/// One reading of one chunk.
///
/// A reader reports a chunk at a rung where a page's bit is seen for the first time in the pass, and at
/// the last rung of a pass always: what is then not in [`Self::accessed`] was not touched in the
/// whole pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkReading<'a> {
    /// The process.
    pub pid: Pid,
    /// Of how many chunks this pass reads one ([`crate::Turns`]).
    pub parts: u32,
    /// First address of the chunk; a multiple of [`CHUNK_BYTES`].
    pub start: Addr,
    /// From the clearing to the reading of this chunk before this one; zero at the first of a pass.
    pub since: Nanos,
    /// From the clearing to this reading.
    pub until: Nanos,
    /// The process's processor time since the clearing, at the reading before and at this one; all threads'. Absent
    /// where nobody knows.
    pub ran: Option<(Nanos, Nanos)>,
    /// Whether the next reading of this chunk belongs to another pass.
    pub last: bool,
    /// Whether a single huge page maps the chunk: then bit 0 of each set stands for all of it.
    pub huge: bool,
    /// Pages that are in memory.
    pub present: PageBits,
    /// Pages touched since the clearing, up to this reading.
    pub accessed: PageBits,
    /// Of those, the ones that no earlier reading of this pass had.
    pub fresh: PageBits,
    /// The pages that are in memory, by node. Nodes without pages here need not be named.
    pub nodes: &'a [(NodeId, PageBits)],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_sets_of_page_numbers() {
        let mut some = PageBits::NONE;
        for page in [0, 63, 64, 300, 511, 512, 9_999] {
            some.set(page);
        }
        assert_eq!(some.pages().collect::<Vec<_>>(), [0, 63, 64, 300, 511]);
        assert_eq!(some.count(), 5);
        assert!(some.get(300) && !some.get(301) && !some.get(512));
        let mut fewer = some;
        fewer.clear(300);
        fewer.clear(9_999);
        assert_eq!(fewer.pages().collect::<Vec<_>>(), [0, 63, 64, 511]);
        let mut other = PageBits::NONE;
        other.set(64);
        other.set(65);
        assert_eq!(some.and(&other).pages().collect::<Vec<_>>(), [64]);
        assert_eq!(some.without(&other).count(), 4);
        assert_eq!(some.or(&other).count(), 6);
        assert!(PageBits::ALL.without(&PageBits::ALL).is_empty());
        assert_eq!(PageBits::ALL.count(), 512);
    }

    #[test]
    fn a_ladder_drawn_out_is_that_of_the_longer_pass() {
        let (first, s) = (Nanos::from_millis(1), Nanos::from_secs);
        for (pass, longer) in [(1, 2), (1, 16), (2, 3), (3, 60)] {
            let mut rungs = ladder(first, s(pass));
            lengthen(&mut rungs, s(longer));
            assert_eq!(rungs, ladder(first, s(longer)), "{pass} {longer}");
            lengthen(&mut rungs, s(pass));
            assert_eq!(rungs, ladder(first, s(longer)), "it is not shortened");
        }
        let mut none = Vec::new();
        lengthen(&mut none, s(1));
        assert!(none.is_empty(), "nothing was cleared yet");
    }

    #[test]
    fn a_ladder_doubles_and_ends_with_the_pass() {
        let of = |shortest, pass| ladder(Nanos(shortest), Nanos(pass));
        let eight = [1, 2, 4, 8].map(Nanos::from_millis);
        assert_eq!(of(1_000_000, 8_000_000), eight);
        assert_eq!(of(1_000_000, 9_000_000).last(), Some(&Nanos(9_000_000)));
        assert_eq!(of(5_000_000, 1_000_000), [Nanos(1_000_000)]);
        let long = of(1_000_000, 1_000_000_000);
        assert!(long.windows(2).all(|w| w[0] < w[1]));
    }
}
