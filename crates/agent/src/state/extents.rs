// SPDX-License-Identifier: MIT OR Apache-2.0
//! Empty addresses of one area, handed out in runs so that pages move in few calls. Pure.
//!
//! Units are pages of the area's size, counted from its start. New space is taken from the front
//! of what was never used; [`Extents::grown_to`] says how much of the area must be usable.

use std::collections::BTreeMap;

/// How many free runs a search looks at before it takes new space.
const LOOK_AT: usize = 16;

/// The free runs of an area of `limit` pages.
#[derive(Debug)]
pub(crate) struct Extents {
    free: BTreeMap<u64, u64>,
    free_pages: u64,
    next: u64,
    limit: u64,
}

impl Extents {
    pub(crate) const fn new(limit: u64) -> Self {
        Self {
            free: BTreeMap::new(),
            free_pages: 0,
            next: 0,
            limit,
        }
    }

    /// First page that was never handed out.
    pub(crate) const fn grown_to(&self) -> u64 {
        self.next
    }

    /// Takes a run of at most `want` pages: (first, count). `None` where the area is full.
    pub(crate) fn take(&mut self, want: u64) -> Option<(u64, u64)> {
        let fitting = self
            .free
            .iter()
            .take(LOOK_AT)
            .find(|(_, count)| **count >= want);
        if let Some((first, count)) = fitting.map(|(first, count)| (*first, *count)) {
            return Some(self.take_from(first, count, want));
        }
        let used = self.next - self.free_pages;
        let roomy = self.free_pages > used.saturating_mul(2) + 4096;
        let fresh = want.min(self.limit - self.next);
        if fresh > 0 && !roomy {
            let first = self.next;
            self.next += fresh;
            return Some((first, fresh));
        }
        let (first, count) = self.free.iter().next().map(|(f, c)| (*f, *c))?;
        Some(self.take_from(first, count, want))
    }

    fn take_from(&mut self, first: u64, count: u64, want: u64) -> (u64, u64) {
        let taken = want.min(count);
        self.free.remove(&first);
        if taken < count {
            self.free.insert(first + taken, count - taken);
        }
        self.free_pages -= taken;
        (first, taken)
    }

    /// Takes one page back.
    pub(crate) fn give(&mut self, page: u64) {
        let mut first = page;
        let mut count = 1;
        let before = self.free.range(..page).next_back().map(|(f, c)| (*f, *c));
        if let Some((f, c)) = before
            && f + c == page
        {
            self.free.remove(&f);
            first = f;
            count += c;
        }
        if let Some(c) = self.free.remove(&(page + 1)) {
            count += c;
        }
        self.free.insert(first, count);
        self.free_pages += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// No page is handed out twice, none is lost, and an area is full only when it is.
        #[test]
        fn hands_out_each_page_once(steps in prop::collection::vec((any::<bool>(), 1_u64..20, any::<prop::sample::Index>()), 0..200), limit in 1_u64..200) {
            let mut extents = Extents::new(limit);
            let mut out = BTreeSet::new();
            for (take, want, index) in steps {
                if take {
                    match extents.take(want) {
                        Some((first, count)) => {
                            prop_assert!(count >= 1 && count <= want && first + count <= limit);
                            for page in first..first + count { prop_assert!(out.insert(page)); }
                        }
                        None => prop_assert_eq!(out.len() as u64, limit),
                    }
                } else if !out.is_empty() {
                    let page = *index.get(&out.iter().copied().collect::<Vec<_>>());
                    out.remove(&page);
                    extents.give(page);
                }
            }
        }
    }

    #[test]
    fn neighbours_join() {
        let mut extents = Extents::new(8);
        assert_eq!(extents.take(8), Some((0, 8)));
        for page in [2, 4, 3] {
            extents.give(page);
        }
        assert_eq!(extents.take(3), Some((2, 3)));
        assert_eq!(extents.take(1), None);
    }
}
