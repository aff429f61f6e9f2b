// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a move costs, by size of page: the movers' processor time as they tell it.
//!
//! ```text
//! cost = (P prior + sum of busy) / (P + pages)      ns a page; both sums halve when they hold many
//! ```
//!
//! The prior counts as P pages that were moved, so it is all there is at first and fades with
//! every move; as the sums halve it comes back a little, never to more than a few hundredths.

use terrace_core::Nanos;
use terrace_core::PageSize;

/// ns a page at first, by size: a base page is mostly work on page tables, a huge one mostly copy.
const PRIOR_NS: [f64; 3] = [10_000.0, 250_000.0, 200_000_000.0];
const PRIOR_PAGES: f64 = 32.0;
const MANY_PAGES: f64 = 4_096.0;

/// Running means by size.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Costs {
    /// Pages and their time.
    sums: [(f64, f64); 3],
}

const fn index(size: PageSize) -> usize {
    match size {
        PageSize::Base4K => 0,
        PageSize::Huge2M => 1,
        PageSize::Giant1G => 2,
    }
}

impl Costs {
    /// So many base pages' worth of memory was moved in pages of that size.
    #[expect(clippy::cast_precision_loss, reason = "times far below 2^53 ns")]
    pub(super) fn moved(&mut self, pages: u32, size: PageSize, busy: Nanos) {
        let (count, time) = &mut self.sums[index(size)];
        *count += f64::from(pages) / size.base_pages() as f64;
        *time += busy.0 as f64;
        if *count > MANY_PAGES {
            *count /= 2.0;
            *time /= 2.0;
        }
    }

    /// What one move of such a page costs, ns.
    pub(super) fn of(&self, size: PageSize) -> f64 {
        let (count, time) = self.sums[index(size)];
        (PRIOR_PAGES * PRIOR_NS[index(size)] + time) / (PRIOR_PAGES + count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prior_fades_and_what_was_measured_stays() {
        let mut costs = Costs::default();
        assert!((costs.of(PageSize::Base4K) - 10_000.0).abs() < 1e-6);
        for _ in 0..32 {
            costs.moved(1, PageSize::Base4K, Nanos(2_000));
        }
        assert!((costs.of(PageSize::Base4K) - 6_000.0).abs() < 1e-6);
        for _ in 0..100_000 {
            costs.moved(1, PageSize::Base4K, Nanos(2_000));
        }
        assert!((costs.of(PageSize::Base4K) / 2_000.0 - 1.0).abs() < 0.07);
        assert!((costs.of(PageSize::Huge2M) - 250_000.0).abs() < 1e-6);
        costs.moved(512 * 32, PageSize::Huge2M, Nanos(32 * 150_000));
        assert!((costs.of(PageSize::Huge2M) - 200_000.0).abs() < 1e-6);
    }
}
