// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ranges whose pages the kernel is about to drop. Pure.
//!
//! A REMOVE event is read *before* the pages go: the thread that called madvise(2) drops them some
//! time after we have read it, and no event says when. A page that we had moved out at that moment
//! would come back with its old content, which the program was promised never to see again. So the
//! pages of such a range are left alone until it is certain that the drop has passed: it goes in
//! address order, hence it has passed once the last page that was there is there no more. Pages
//! that MADV_FREE merely marks stay, and their range is left alone until it goes away; the
//! supervisor can use move_pages(2) there, which is exact.

/// Ranges kept apart; beyond that the two oldest become one.
const MAX: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    /// Last page that was there when the event was read.
    last: u64,
}

/// The ranges.
#[derive(Debug, Default)]
pub(crate) struct PendingDrops {
    ranges: Vec<Range>,
}

impl PendingDrops {
    /// The pages of a range are about to go, `last` being the last that is there.
    pub(crate) fn add(&mut self, start: u64, end: u64, last: u64) {
        if self.ranges.len() >= MAX {
            self.ranges.retain(|r| r.start != start || r.end != end);
        }
        if self.ranges.len() >= MAX
            && let Some(oldest) = (!self.ranges.is_empty()).then(|| self.ranges.remove(0))
            && let Some(next) = self.ranges.first_mut()
        {
            // The two drops run on their own: only when the later page of both is gone... is not
            // certain either, so the union waits for a page that never was: until it is unmapped.
            *next = Range {
                start: oldest.start.min(next.start),
                end: oldest.end.max(next.end),
                last: u64::MAX,
            };
        }
        self.ranges.push(Range { start, end, last });
    }

    /// Whether a page of the range must be left alone. `is_empty` says whether nothing is behind
    /// an address now; ranges whose drop has passed are forgotten.
    pub(crate) fn covers(
        &mut self,
        start: u64,
        end: u64,
        mut is_empty: impl FnMut(u64) -> bool,
    ) -> bool {
        if self.ranges.is_empty() {
            return false;
        }
        let mut covered = false;
        self.ranges.retain(|range| {
            if range.start >= end || range.end <= start {
                return true;
            }
            let passed = range.last != u64::MAX && is_empty(range.last);
            covered |= !passed;
            !passed
        });
        covered
    }

    /// The range is unmapped: whatever is mapped there later is new.
    pub(crate) fn unmap(&mut self, start: u64, end: u64) {
        let mut cut = Vec::new();
        self.ranges.retain(|range| {
            if range.start >= end || range.end <= start {
                return true;
            }
            // What is left of it cannot tell any more when its last page goes, if that one went
            // with the mapping: then the rest waits until it is unmapped too.
            let last = if (start..end).contains(&range.last) {
                u64::MAX
            } else {
                range.last
            };
            if range.start < start {
                cut.push(Range {
                    start: range.start,
                    end: start,
                    last,
                });
            }
            if range.end > end {
                cut.push(Range {
                    start: end,
                    end: range.end,
                    last,
                });
            }
            false
        });
        self.ranges.extend(cut);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_left_alone_until_its_last_page_went() {
        let mut pending_drops = PendingDrops::default();
        pending_drops.add(0x1000, 0x9000, 0x7000);
        assert!(pending_drops.covers(0x2000, 0x3000, |page| page != 0x7000));
        assert!(!pending_drops.covers(0x9000, 0xa000, |_| false));
        assert!(!pending_drops.covers(0x2000, 0x3000, |page| page == 0x7000));
        assert!(!pending_drops.covers(0x7000, 0x8000, |_| false));
    }

    #[test]
    fn unmapping_frees_exactly_the_part_unmapped() {
        let mut pending_drops = PendingDrops::default();
        pending_drops.add(0x1000, 0x9000, 0x7000);
        pending_drops.unmap(0x3000, 0x4000);
        assert!(!pending_drops.covers(0x3000, 0x4000, |_| false));
        assert!(pending_drops.covers(0x2000, 0x3000, |_| false));
        assert!(pending_drops.covers(0x8000, 0x9000, |_| false));
        pending_drops.unmap(0x7000, 0x8000);
        assert!(pending_drops.covers(0x8000, 0x9000, |_| true));
        pending_drops.unmap(0x4000, 0x9000);
        assert!(!pending_drops.covers(0x4000, 0x9000, |_| false));
    }

    #[test]
    fn too_many_ranges_are_joined_never_lost() {
        let mut pending_drops = PendingDrops::default();
        for n in 0..3000_u64 {
            pending_drops.add(n * 0x2000, n * 0x2000 + 0x1000, n * 0x2000);
        }
        for n in 0..3000_u64 {
            assert!(pending_drops.covers(n * 0x2000, n * 0x2000 + 0x1000, |_| false));
        }
    }
}
