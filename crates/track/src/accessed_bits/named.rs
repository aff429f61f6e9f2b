// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which ranges clear named pages at the least cost, and how many of them a call takes. Pure.
//!
//! A call that clears has a price for each range (finding it, flushing the TLB of it) and for each page. Both are
//! measured with every call, and neighbours are cleared in one range where the pages between them cost less than
//! another range: few pages by themselves, many with all that is between. A range stays within 2 MiB and one mapping.

use terrace_bpf::Wanted;
use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::Nanos;
use terrace_core::Range;
use terrace_sys::advise::RANGES_MAX;

use super::reader::CLEAR_NS;

pub(super) const PAGE: u64 = 4096;
/// What a range takes before it was measured, ns: a call of one page on hardware.
const RANGE_NS: f64 = 1_000.0;
/// A new measurement's weight.
const NEW: f64 = 0.1;

/// What clearing takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prices {
    range_ns: f64,
    page_ns: f64,
}

impl Default for Prices {
    fn default() -> Self {
        Self {
            range_ns: RANGE_NS,
            page_ns: CLEAR_NS,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of one call, times of less than days"
)]
impl Prices {
    /// A call cleared so many ranges, of so many pages in all, in that time. Each price is as much to blame for what it took more or
    /// less than expected as it was of what was expected.
    pub(super) fn took(&mut self, ranges: usize, pages: u64, took: Nanos) {
        if ranges == 0 || pages == 0 {
            return;
        }
        let (by_range, by_page) = (self.range_ns * ranges as f64, self.page_ns * pages as f64);
        let expected = by_range + by_page;
        let wrong = (took.0 as f64).max(1.0) / expected;
        self.range_ns *= wrong.powf(NEW * by_range / expected);
        self.page_ns *= wrong.powf(NEW * by_page / expected);
    }

    /// Whether so many pages that nobody asked for cost less than a range: here, and the program that sets their bits
    /// again for so many ns.
    fn joins(&self, between: u64, set_ns: f64) -> bool {
        between as f64 * (self.page_ns + set_ns) < self.range_ns
    }

    /// What clearing one more page takes, that far behind the last of its chunk.
    fn next(&self, behind: Option<u64>, set_ns: f64) -> f64 {
        match behind {
            Some(pages) if self.joins(pages, set_ns) => self.page_ns * (pages + 1) as f64,
            _ => self.range_ns + self.page_ns,
        }
    }
}

/// A page that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) addr: u64,
    /// Which of the process's mappings it is in.
    mapping: usize,
}

/// Those of these pages that are in one of the mappings; both are in order of address.
pub(super) fn named(pages: &[u64], mappings: &[Range]) -> Vec<Named> {
    let within = |&addr: &u64| {
        let behind = mappings.partition_point(|range| range.start.0 <= addr);
        let mapping = behind.checked_sub(1)?;
        let there = mappings[mapping].contains(Addr(addr));
        there.then_some(Named { addr, mapping })
    };
    pages.iter().filter_map(within).collect()
}

/// How many of these pages to look at together: whole chunks that one call clears in about that time.
pub(super) fn together(pages: &[Named], prices: &Prices, set_ns: f64, stall_ns: f64) -> usize {
    let mut cost = 0.0;
    let mut before: Option<u64> = None;
    for (index, Named { addr, .. }) in pages.iter().enumerate() {
        let chunks = before.map_or(0, |before| addr / CHUNK_BYTES - before / CHUNK_BYTES);
        let full = cost > stall_ns || index + CHUNK_PAGES > RANGES_MAX;
        if chunks > 0 && full {
            return index;
        }
        let behind = before.filter(|_| chunks == 0);
        cost += prices.next(behind.map(|before| between(before, *addr)), set_ns);
        before = Some(*addr);
    }
    pages.len()
}

/// What of the page tables says all of these pages, and of those that are cleared with them.
pub(super) fn wanted(pages: &[Named], prices: &Prices, set_ns: f64) -> Vec<Wanted> {
    let chunks = pages.chunk_by(|a, b| a.addr / CHUNK_BYTES == b.addr / CHUNK_BYTES);
    let words = |range: Range| {
        let word = |addr: u64| (addr % CHUNK_BYTES) / (64 * PAGE);
        (word(range.start.0)..=word(range.end.0 - PAGE)).fold(0, |words, word| words | 1 << word)
    };
    let of = |chunk: &[Named]| Wanted {
        start: Addr(chunk[0].addr & !(CHUNK_BYTES - 1)),
        words: ranges(chunk, prices, set_ns).fold(0, |all, range| all | words(range)),
    };
    chunks.map(of).collect()
}

const fn between(a: u64, b: u64) -> u64 {
    ((b - a) / PAGE).saturating_sub(1)
}

/// The ranges that clear these pages of one chunk.
pub(super) fn ranges(pages: &[Named], prices: &Prices, set_ns: f64) -> impl Iterator<Item = Range> {
    let near = move |a: &Named, b: &Named| {
        a.mapping == b.mapping && prices.joins(between(a.addr, b.addr), set_ns)
    };
    pages.chunk_by(near).filter_map(|run| {
        Some(Range {
            start: Addr(run.first()?.addr),
            end: Addr(run.last()?.addr + PAGE),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRICES: Prices = Prices {
        range_ns: 1_000.0,
        page_ns: 100.0,
    };

    fn page(chunk: u64, page: u64) -> Named {
        Named {
            addr: chunk * CHUNK_BYTES + page * PAGE,
            mapping: 0,
        }
    }

    /// What a machine takes for the ranges that are chosen for pages so far `apart`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    fn calls(prices: &mut Prices, truth: Prices, apart: u64) {
        let pages: Vec<Named> = (0..512 / apart).map(|at| page(0, at * apart)).collect();
        for _ in 0..100 {
            let chosen: Vec<Range> = ranges(&pages, prices, 0.0).collect();
            let cleared = chosen.iter().map(|range| range.bytes() / PAGE).sum();
            let took = truth.range_ns * chosen.len() as f64 + truth.page_ns * cleared as f64;
            prices.took(chosen.len(), cleared, Nanos(took as u64));
        }
    }

    #[test]
    fn prices_are_learnt_whatever_they_are() {
        for (range_ns, page_ns) in [(900.0, 60.0), (30_000.0, 1_600.0), (300.0, 5.0)] {
            let truth = Prices { range_ns, page_ns };
            let mut prices = Prices::default();
            for apart in [1, 40, 3, 200, 17, 100, 2, 64, 8].repeat(3) {
                calls(&mut prices, truth, apart);
            }
            let (range, page) = (prices.range_ns / range_ns, prices.page_ns / page_ns);
            assert!((range - 1.0).abs() < 0.3, "{prices:?} {truth:?}");
            assert!((page - 1.0).abs() < 0.3, "{prices:?} {truth:?}");
        }
    }

    fn chosen(pages: &[Named], set_ns: f64) -> Vec<(u64, u64)> {
        ranges(pages, &PRICES, set_ns)
            .map(|range| (range.start.0 / PAGE, range.end.0 / PAGE))
            .collect()
    }

    #[test]
    fn near_pages_are_cleared_in_one_range() {
        let pages = [0, 1, 9, 40, 50].map(|at| page(0, at));
        assert_eq!(chosen(&pages, 0.0), [(0, 10), (40, 51)]);
        // The program pays as much again for each page between.
        let alone = [(0, 2), (9, 10), (40, 41), (50, 51)];
        assert_eq!(chosen(&pages, 100.0), alone);
    }

    #[test]
    fn what_is_read_has_all_that_is_cleared() {
        let pages = [page(3, 1), page(3, 70), page(3, 80), page(7, 511)];
        let words = |prices, set_ns| -> Vec<(u64, u8)> {
            let wanted = wanted(&pages, prices, set_ns);
            let each = wanted
                .iter()
                .map(|one| (one.start.0 / CHUNK_BYTES, one.words));
            each.collect()
        };
        assert_eq!(words(&PRICES, 0.0), [(3, 0b11), (7, 0b1000_0000)]);
        let joins = Prices {
            range_ns: 1e6,
            ..PRICES
        };
        let far = [page(3, 1), page(3, 300)];
        let wanted = wanted(&far, &joins, 0.0);
        assert_eq!(wanted[0].words, 0b1_1111);
    }

    #[test]
    fn what_is_in_no_mapping_or_between_two_is_left_alone() {
        let mapping = |start, end| Range {
            start: Addr(start * PAGE),
            end: Addr(end * PAGE),
        };
        let mappings = [mapping(2, 4), mapping(6, 9)];
        let there = named(&[1, 2, 3, 4, 5, 6, 8, 9].map(|at| at * PAGE), &mappings);
        assert_eq!(chosen(&there, 0.0), [(2, 4), (6, 9)]);
    }

    #[test]
    fn a_call_takes_whole_chunks_and_is_no_longer_than_a_stall() {
        let near: Vec<Named> = (0..64)
            .flat_map(|chunk| [page(chunk, 0), page(chunk, 300)])
            .collect();
        // 2,200 ns a chunk.
        assert_eq!(together(&near, &PRICES, 0.0, 10_000.0), 10);
        assert_eq!(together(&near, &PRICES, 0.0, 1e9), 128);
        let far = [0, 17, 9_000].map(|chunk| page(chunk, 1));
        assert_eq!(together(&far, &PRICES, 0.0, 1e9), 3);
        // No more ranges than a call takes.
        let many: Vec<Named> = (0..8 * 512).map(|at| page(at / 512, at % 512)).collect();
        assert_eq!(together(&many, &PRICES, 0.0, 1e9), RANGES_MAX);
        assert_eq!(together(&[], &PRICES, 0.0, 1.0), 0);
    }
}
