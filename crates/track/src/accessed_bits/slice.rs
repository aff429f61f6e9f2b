// SPDX-License-Identifier: MIT OR Apache-2.0
//! A slice: chunks of a process that are cleared by one call and read together. Pure.
//!
//! A slice is as large as a call may take ([`cut`]); its times count from the middle of that call, and its
//! ladder is its own, so a large process is read evenly over the pass.

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::Nanos;
use terrace_core::PageBits;
use terrace_core::Range;
use terrace_core::lengthen;
use terrace_core::shorten;

/// A reading may come this part of its wait early: readings stay half an octave apart and more.
const EARLY: u64 = 4;
/// The last one, as a pass is to be as long as was asked for.
const EARLY_LAST: u64 = 16;

/// A chunk with memory, as found before it is cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: Addr,
    pub(super) huge: bool,
    pub(super) present: PageBits,
    /// Those of them that others map as well: clearing does not reach them.
    pub(super) shared: PageBits,
}

impl Found {
    /// All but these are others' as well.
    pub(super) fn leave_out_shared(&mut self, own: &PageBits) {
        self.shared = match self.huge {
            // It is one, as long as nobody has split it.
            true if !own.is_empty() => PageBits::NONE,
            true => PageBits::ALL,
            false => self.present.without(own),
        };
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Chunk {
    start: Addr,
    huge: bool,
    /// Pages that the clearing reaches.
    ours: PageBits,
    seen: PageBits,
}

/// What a reading adds of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) present: PageBits,
    pub(super) accessed: PageBits,
    pub(super) fresh: PageBits,
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Slice {
    chunks: Vec<Chunk>,
    /// What is to be cleared, each within one mapping.
    pub(super) ranges: Vec<Range>,
    /// Base pages and huge pages that were there when it was cut, each one.
    pub(super) entries: u64,
    /// Those that others map as well.
    pub(super) shared: u64,
    /// Those that were read at the end of the pass.
    pub(super) pages: u64,
    /// When the bits were cleared; not yet while there are no rungs.
    cleared: Nanos,
    rungs: Vec<Nanos>,
    done: usize,
    /// The reading before.
    before: Nanos,
    /// The process's processor time when its bits were cleared, and at the reading before.
    cleared_ran: Option<Nanos>,
    before_ran: Option<Nanos>,
}

impl Slice {
    /// From its first chunk to its last.
    pub(super) fn hull(&self) -> Range {
        let start = self.chunks.first().map_or(Addr(0), |chunk| chunk.start);
        let end = self
            .chunks
            .last()
            .map_or(0, |chunk| chunk.start.0 + CHUNK_BYTES);
        Range {
            start,
            end: Addr(end),
        }
    }

    /// Where its chunks begin.
    pub(super) fn starts(&self) -> impl Iterator<Item = Addr> {
        self.chunks.iter().map(|chunk| chunk.start)
    }

    /// The bits were cleared at that time, when the process had run for so long, and are to be read after these waits.
    pub(super) fn begin(&mut self, cleared: Nanos, ran: Option<Nanos>, rungs: Vec<Nanos>) {
        self.cleared = cleared;
        (self.cleared_ran, self.before_ran) = (ran, ran);
        self.rungs = rungs;
        self.done = 0;
        self.before = Nanos::ZERO;
    }

    /// Whether it was cleared.
    pub(super) const fn begun(&self) -> bool {
        !self.rungs.is_empty()
    }

    /// When it is to be read next, if it is.
    pub(super) fn due(&self) -> Option<Nanos> {
        let rung = self.rungs.get(self.done)?;
        Some(self.cleared + *rung)
    }

    /// The pass shall not be longer than that any more; what it has taken already it has.
    pub(super) fn shorten(&mut self, pass: Nanos, now: Nanos) {
        let end = pass.max(now.since(self.cleared));
        shorten(&mut self.rungs, self.done, end);
    }

    /// The pass, whose last reading is not done, shall be so long if it is not longer.
    pub(super) fn lengthen(&mut self, pass: Nanos) {
        lengthen(&mut self.rungs, pass);
    }

    /// The reading at that time: since the clearing, the one before and this; whether it is the last.
    pub(super) fn times(&self, now: Nanos) -> (Nanos, Nanos, bool) {
        let until = now.since(self.cleared);
        (self.before, until, self.over(until) >= self.rungs.len())
    }

    /// What the process has run since the clearing, at the reading before and at this.
    pub(super) fn ran(&self, now: Option<Nanos>) -> Option<(Nanos, Nanos)> {
        let cleared = self.cleared_ran?;
        Some((self.before_ran?.since(cleared), now?.since(cleared)))
    }

    /// Readings that are over with one after so long: those that were due, or will be soon ([`EARLY`]). So slices that were
    /// cleared one after the other are read together: each call is a wake-up, and times are told as they were.
    fn over(&self, until: Nanos) -> usize {
        let last = self.rungs.len().saturating_sub(1);
        let over = |(at, rung): &(usize, &Nanos)| {
            let early = if *at == last { EARLY_LAST } else { EARLY };
            rung.0 - rung.0 / early <= until.0
        };
        self.rungs.iter().enumerate().take_while(over).count()
    }

    /// Whether a reading now would be in time for the next that is due.
    pub(super) fn may_be_read(&self, now: Nanos) -> bool {
        self.done < self.rungs.len() && self.over(now.since(self.cleared)) > self.done
    }

    /// That reading is over, and with it all that were due before.
    pub(super) fn read(&mut self, until: Nanos, ran: Option<Nanos>) {
        self.before = until;
        self.before_ran = ran;
        self.done = self.over(until).max(self.done + 1);
    }

    /// These addresses could not be cleared: what is read there says nothing.
    pub(super) fn leave_out(&mut self, range: Range) {
        for chunk in &mut self.chunks {
            chunk.ours = chunk
                .ours
                .without(&pages_of(range, chunk.start, chunk.huge));
        }
    }

    /// Takes in what was found in a chunk. Nothing where it is none of this slice's.
    pub(super) fn take(&mut self, found: &Found, accessed: &PageBits) -> Option<Seen> {
        let at = self
            .chunks
            .binary_search_by_key(&found.start, |chunk| chunk.start);
        let chunk = &mut self.chunks[at.ok()?];
        if chunk.huge != found.huge {
            // Split or collapsed since: what was seen of the whole is not of the parts, and back.
            chunk.huge = found.huge;
            chunk.seen = PageBits::NONE;
            chunk.ours = if found.huge || !chunk.ours.is_empty() {
                PageBits::ALL
            } else {
                PageBits::NONE
            };
        }
        let present = found.present.and(&chunk.ours);
        let accessed = accessed.or(&chunk.seen).and(&present);
        let fresh = accessed.without(&chunk.seen);
        chunk.seen = accessed;
        Some(Seen {
            present,
            accessed,
            fresh,
        })
    }
}

/// The pages of a chunk that a range covers; of a huge page, all or none of it.
fn pages_of(range: Range, start: Addr, huge: bool) -> PageBits {
    let (first, end) = (
        range.start.0.max(start.0),
        range.end.0.min(start.0 + CHUNK_BYTES),
    );
    if first >= end {
        return PageBits::NONE;
    }
    if huge {
        return PageBits::ALL;
    }
    let mut pages = PageBits::NONE;
    for page in (first - start.0) >> 12..(end - start.0).div_ceil(4096) {
        pages.set(usize::try_from(page).unwrap_or(usize::MAX));
    }
    pages
}

/// Entries that clearing and reading look at.
fn entries(found: &Found, ours: &PageBits) -> u64 {
    u64::from(found.present.and(ours).count())
}

/// Cuts what was found into slices of at most so many entries (one chunk at least), as far as it lies in
/// these mappings. Both are in the order of addresses.
pub(super) fn cut(found: &[Found], mappings: &[Range], most: u64) -> Vec<Slice> {
    let mut slices = Vec::new();
    let (mut slice, mut size) = (Slice::default(), 0);
    let mut first = 0;
    for one in found {
        let end = one.start.0 + CHUNK_BYTES;
        first += mappings[first..]
            .iter()
            .take_while(|m| m.end <= one.start)
            .count();
        let here = mappings[first..].iter().take_while(|m| m.start.0 < end);
        let mut ours = PageBits::NONE;
        let mut ranges = Vec::new();
        for mapping in here {
            ours = ours.or(&pages_of(*mapping, one.start, one.huge));
            let range = Range {
                start: mapping.start.max(one.start),
                end: mapping.end.min(Addr(end)),
            };
            ranges.push((range, mapping.start < one.start));
        }
        let own = ours.without(&one.shared);
        let more = entries(one, &own);
        slice.shared += entries(one, &ours) - more;
        if more == 0 {
            continue;
        }
        if size + more > most && size > 0 {
            slices.push(std::mem::take(&mut slice));
            size = 0;
        }
        size += more;
        slice.entries = size;
        slice.add(one, own, &ranges);
    }
    if size > 0 {
        slices.push(slice);
    }
    slices
}

impl Slice {
    /// Each range with whether its mapping began before it.
    fn add(&mut self, one: &Found, ours: PageBits, ranges: &[(Range, bool)]) {
        for (range, goes_on) in ranges {
            match self.ranges.last_mut() {
                // Ranges of two mappings stay two: one may refuse.
                Some(last) if *goes_on && last.end == range.start => last.end = range.end,
                _ => self.ranges.push(*range),
            }
        }
        self.chunks.push(Chunk {
            start: one.start,
            huge: one.huge,
            ours,
            seen: PageBits::NONE,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn found(start: u64, pages: &[usize]) -> Found {
        let mut present = PageBits::NONE;
        pages.iter().for_each(|page| present.set(*page));
        let start = Addr(start);
        Found {
            start,
            huge: false,
            present,
            shared: PageBits::NONE,
        }
    }

    fn range(start: u64, end: u64) -> Range {
        Range {
            start: Addr(start),
            end: Addr(end),
        }
    }

    /// What a child shares keeps its bit, and would be the hottest of all.
    #[test]
    fn what_others_map_as_well_is_not_read() {
        let mut one = found(0, &[1, 2, 3]);
        let mut own = PageBits::one(2);
        own.set(9);
        one.leave_out_shared(&own);
        let mut slices = cut(&[one], &[range(0, 2 * MIB)], 100);
        assert_eq!((slices[0].entries, slices[0].shared), (1, 2));
        let accessed = PageBits::ALL;
        let seen = slices[0].take(&one, &accessed).expect("a chunk of it");
        assert_eq!(seen.present, PageBits::one(2));
        assert_eq!(seen.accessed, PageBits::one(2));

        let mut huge = Found {
            huge: true,
            present: PageBits::one(0),
            ..found(0, &[])
        };
        huge.leave_out_shared(&PageBits::ALL);
        assert_eq!(cut(&[huge], &[range(0, 2 * MIB)], 100).len(), 1);
        huge.leave_out_shared(&PageBits::NONE);
        assert_eq!(cut(&[huge], &[range(0, 2 * MIB)], 100).len(), 0);
    }

    #[test]
    fn slices_hold_what_lies_in_mappings_and_no_more_than_asked_for() {
        let chunks = [
            found(0, &[1, 2, 3]),
            found(2 * MIB, &[0, 511]),
            found(4 * MIB, &[7]),
            found(8 * MIB, &[0, 1]),
        ];
        let mappings = [
            range(0x2000, 4 * MIB),
            range(4 * MIB, 6 * MIB),
            range(7 * MIB, 8 * MIB),
        ];
        let slices = cut(&chunks, &mappings, 4);
        assert_eq!(slices.len(), 2);
        assert_eq!(slices[0].ranges, [range(0x2000, 4 * MIB)], "merged");
        assert_eq!(slices[0].hull(), range(0, 4 * MIB));
        assert_eq!(slices[1].ranges, [range(4 * MIB, 6 * MIB)]);
        let all = cut(&chunks, &mappings, 100);
        assert_eq!(all[0].ranges.len(), 2, "each within a mapping");
        assert!(cut(&chunks, &[], 100).is_empty());
    }

    #[test]
    fn a_page_is_fresh_once_and_seen_from_then_on() {
        let chunk = found(0, &[0, 1, 2]);
        let mut slice = cut(&[chunk], &[range(0, 0x2000)], 9).remove(0);
        let bits = |pages: &[usize]| found(0, pages).present;
        let first = slice.take(&chunk, &bits(&[1, 2])).expect("ours");
        assert_eq!(first.present, bits(&[0, 1]), "page 2 lies in no mapping");
        assert_eq!(first.fresh, bits(&[1]));
        let second = slice.take(&chunk, &bits(&[0])).expect("ours");
        assert_eq!((second.fresh, second.accessed), (bits(&[0]), bits(&[0, 1])));
        assert_eq!(slice.take(&found(2 * MIB, &[0]), &bits(&[0])), None);
        slice.leave_out(range(0, 0x1000));
        let third = slice.take(&chunk, &bits(&[0])).expect("ours");
        assert_eq!((third.present, third.fresh), (bits(&[1]), PageBits::NONE));
    }

    #[test]
    fn a_page_that_is_split_begins_anew() {
        let mut huge = found(0, &[0]);
        huge.huge = true;
        let mut slice = cut(&[huge], &[range(0, 2 * MIB)], 9).remove(0);
        let one = huge.present;
        assert_eq!(slice.take(&huge, &one).expect("ours").fresh, one);
        let parts = Found {
            huge: false,
            present: PageBits::ALL,
            shared: PageBits::NONE,
            ..huge
        };
        let seen = slice.take(&parts, &PageBits::NONE).expect("ours");
        assert_eq!(seen.present, PageBits::ALL);
        assert!(seen.accessed.is_empty());
    }

    #[test]
    fn the_ladder_is_gone_up_and_can_be_cut_short() {
        let ms = Nanos::from_millis;
        let mut slice = Slice::default();
        assert!(!slice.begun() && slice.due().is_none());
        slice.begin(ms(100), Some(ms(40)), vec![ms(1), ms(2), ms(4), ms(60_000)]);
        assert_eq!(slice.due(), Some(ms(101)));
        assert_eq!(slice.times(ms(102)), (Nanos::ZERO, ms(2), false));
        assert_eq!(slice.ran(Some(ms(41))), Some((ms(0), ms(1))));
        slice.read(ms(2), Some(ms(41)));
        assert_eq!(slice.ran(Some(ms(43))), Some((ms(1), ms(3))));
        assert_eq!(slice.ran(None), None);
        assert_eq!(slice.due(), Some(ms(104)), "what was due meanwhile is over");
        slice.shorten(ms(1_000), ms(103));
        slice.read(ms(5), None);
        assert_eq!(slice.due(), Some(ms(1_100)));
        assert_eq!(slice.times(ms(1_101)), (ms(5), ms(1_001), true));
        assert!(!slice.may_be_read(ms(1_030)) && slice.may_be_read(ms(1_040)));
        assert!(slice.times(ms(1_040)).2, "a little early is as good");
        slice.shorten(ms(10), ms(600));
        assert_eq!(slice.due(), Some(ms(600)), "it has been half a second");
        slice.read(ms(500), Some(ms(300)));
        assert_eq!(slice.due(), None);
        slice.shorten(ms(1), ms(700));
        assert_eq!(slice.due(), None, "over is over");
    }
}
