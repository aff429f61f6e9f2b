// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one tracker says of each page of a range, put together from what it saw; pure.
//!
//! Whatever the source, it comes to accesses seen and the time for which the page was looked at until
//! then: a hint fault and its idle time, an accessed bit and the time since it was cleared, a sample and the time
//! between samples. Their quotient is the rate at which the page is accessed, and the same for all trackers.

use terrace_core::Addr;
use terrace_core::Range;

use super::score::Said;

const PAGE: u64 = 4096;
/// What is known beforehand: half an access, in the time in which the mean page has one. So one fault a
/// microsecond after its page was armed does not make it the hottest of all, and a page that nobody
/// looked at is an average one.
const PRIOR: f64 = 0.5;

/// See the module.
#[derive(Debug, Clone)]
pub struct Heat {
    range: Range,
    /// By page: accesses seen, and seconds for which it was looked at.
    pages: Vec<(f32, f32)>,
}

impl Heat {
    /// Of a range of whole pages, of which nothing is known.
    #[must_use]
    pub fn new(range: Range) -> Self {
        let pages = range.bytes() / PAGE;
        Self {
            range,
            pages: vec![(0.0, 0.0); usize::try_from(pages).unwrap_or(0)],
        }
    }

    /// How many pages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> Range {
        self.range
    }

    /// Which page an address is in.
    #[must_use]
    pub fn page(&self, addr: Addr) -> Option<usize> {
        let page = usize::try_from(addr.0.checked_sub(self.range.start.0)? / PAGE).ok()?;
        (page < self.pages.len()).then_some(page)
    }

    /// The pages of a part of the range.
    #[must_use]
    pub fn pages(&self, part: Range) -> std::ops::Range<usize> {
        let at = |addr: Addr| {
            let addr = addr.0.clamp(self.range.start.0, self.range.end.0);
            usize::try_from((addr - self.range.start.0) / PAGE).unwrap_or(usize::MAX)
        };
        at(part.start)..at(part.end)
    }

    /// So many accesses were seen of that page in so many seconds of looking at it.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "seconds and counts of a run"
    )]
    pub fn add(&mut self, page: usize, accesses: f64, seconds: f64) {
        if let Some(of) = self.pages.get_mut(page) {
            of.0 += accesses as f32;
            of.1 += seconds as f32;
        }
    }

    /// All pages were looked at for so long.
    pub fn looked(&mut self, seconds: f64) {
        (0..self.pages.len()).for_each(|page| self.add(page, 0.0, seconds));
    }

    /// Nothing is known any more.
    pub fn forget(&mut self) {
        self.pages.fill((0.0, 0.0));
    }

    /// What is said of each page.
    #[must_use]
    pub fn said(&self) -> Vec<Said> {
        let sum = |of: fn(&(f32, f32)) -> f32| self.pages.iter().map(|p| f64::from(of(p))).sum();
        let (accesses, seconds): (f64, f64) = (sum(|page| page.0), sum(|page| page.1));
        let prior = if accesses > 0.0 {
            PRIOR * seconds / accesses
        } else {
            1.0
        };
        let each = self.pages.iter().map(|&(accesses, seconds)| Said {
            rate: (f64::from(accesses) + PRIOR) / (f64::from(seconds) + prior),
            seen: accesses > 0.0,
            looked: seconds > 0.0,
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sooner_is_hotter_longer_idle_is_colder_and_unknown_lies_between() {
        let range = Range {
            start: Addr(0x10_0000),
            end: Addr(0x10_5000),
        };
        let mut heat = Heat::new(range);
        assert_eq!(heat.len(), 5);
        assert_eq!(heat.page(Addr(0x10_1fff)), Some(1));
        assert_eq!(heat.page(Addr(0x10_5000)), None);
        assert_eq!(heat.page(Addr(0)), None);
        let all = Range {
            start: Addr(0x10_3000),
            end: Addr(u64::MAX),
        };
        assert_eq!(heat.pages(all), 3..5);
        heat.add(0, 1.0, 0.01);
        heat.add(1, 1.0, 1.0);
        heat.add(2, 0.0, 1.0);
        heat.add(3, 0.0, 9.0);
        heat.add(9, 1.0, 1.0);
        let said = heat.said();
        let rates: Vec<f64> = said.iter().map(|one| one.rate).collect();
        assert!(rates[0] > rates[1] && rates[1] > rates[4], "{rates:?}");
        assert!(rates[4] > rates[2] && rates[2] > rates[3], "{rates:?}");
        let seen: Vec<bool> = said.iter().map(|one| one.seen).collect();
        assert_eq!(seen, [true, true, false, false, false]);
        assert!(said[3].looked && !said[4].looked);
        heat.forget();
        assert!(heat.said().iter().all(|one| !one.seen && !one.looked));
    }
}
