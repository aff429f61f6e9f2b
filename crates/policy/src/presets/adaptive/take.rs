// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of a plan: as many of each group as its quotas say, in the order of their addresses, from where the last plan
//! stopped.

use std::collections::BTreeMap;

use terrace_core::PageBits;
use terrace_core::PageSize;

use super::accessors::Part;
use super::chunks::Chunks;
use super::classes::CLASSES;
use super::classes::class_of;
use super::decide::SIZES;
use super::plan::Plan;
use super::queue::Order;
use super::sides::Sides;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;

/// By size and class, base pages.
type Quotas = [[u64; CLASSES]; SIZES.len()];

/// What is still to be taken of a part of a process.
struct OfPart {
    /// By the side that it goes to, the one that it is on, size and class: base pages.
    quotas: Vec<Vec<Quotas>>,
    /// The same of all classes: most chunks have nothing that is wanted, or nothing is any more.
    wanted: Vec<Vec<[u64; SIZES.len()]>>,
}

impl OfPart {
    fn is_wanted(&self, from: usize, huge: usize) -> bool {
        self.wanted.iter().any(|to| to[from][huge] > 0)
    }

    /// Where a page of that class goes, if it does, the best side first; and how many base pages that takes of the quota.
    fn take(&mut self, from: usize, class: usize, size: PageSize) -> Option<(usize, u64)> {
        let huge = usize::from(size == PageSize::Huge2M);
        let of = self.quotas.iter_mut().zip(&mut self.wanted).enumerate();
        for (to, (quotas, wanted)) in of {
            let quota = &mut quotas[from][huge][class];
            let before = *quota;
            if draw(quota, size, to > from) {
                wanted[from][huge] -= before - *quota;
                return Some((to, before - *quota));
            }
        }
        None
    }
}

/// What is still to be taken of all.
pub(super) struct Left<'a> {
    sides: &'a Sides,
    of: BTreeMap<Part, OfPart>,
    all: u64,
}

impl<'a> Left<'a> {
    /// Quotas by the side that pages go to and the one that they are on; of these parts of processes, by size and class.
    pub(super) fn new(
        sides: &'a Sides,
        parts: impl Iterator<Item = Part>,
        taken: &[Vec<Vec<u64>>],
    ) -> Self {
        let of_part = |at: usize| {
            let sizes = |quotas: &[u64]| -> Quotas {
                std::array::from_fn(|size| {
                    let first = (at * SIZES.len() + size) * CLASSES;
                    std::array::from_fn(|class| quotas[first + class])
                })
            };
            let from = |from: &Vec<Vec<u64>>| from.iter().map(|quotas| sizes(quotas)).collect();
            let quotas: Vec<Vec<Quotas>> = taken.iter().map(from).collect();
            let sums = |quotas: &Quotas| quotas.map(|size| size.iter().sum());
            let wanted = |from: &Vec<Quotas>| from.iter().map(sums).collect();
            OfPart {
                wanted: quotas.iter().map(wanted).collect(),
                quotas,
            }
        };
        let of = parts.enumerate().map(|(at, part)| (part, of_part(at)));
        let all = taken.iter().flatten().flatten().sum();
        Self {
            sides,
            of: of.collect(),
            all,
        }
    }
}

/// Takes pages from the chunks, beginning at `start`, as long as the quotas of
/// its part have some left, but those that are waiting; gives the chunk where it took the last.
pub(super) fn take(
    chunks: &Chunks,
    start: Key,
    left: &mut Left<'_>,
    plan: &mut Plan,
    waiting: impl Fn((Key, PageSize)) -> PageBits,
) -> Key {
    let mut end = start;
    let sides = left.sides;
    for (key, chunk) in chunks.from(start) {
        let Some(part) = left.of.get_mut(&(key.0, chunk.accessors.mostly())) else {
            continue;
        };
        let (size, huge) = (chunk.size(), usize::from(chunk.huge));
        for from in 0..sides.len() {
            if !part.is_wanted(from, huge) {
                continue;
            }
            let waiting = waiting((key, size));
            for place in sides.places(from) {
                for page in chunk.at(*place).without(&waiting).pages() {
                    let class = class_of(chunk.levels[page]);
                    let Some((to, taken)) = part.take(from, class, size) else {
                        continue;
                    };
                    left.all -= taken;
                    let page = page_of(key, page, size);
                    plan.0[to].push(Order { page, from: *place });
                    end = key;
                }
            }
        }
        if left.all == 0 {
            break;
        }
    }
    end
}

/// Whether a quota has a page of that size left; takes it.
fn draw(quota: &mut u64, size: PageSize, round_up: bool) -> bool {
    let pages = size.base_pages();
    if *quota == 0 || !round_up && *quota < pages {
        return false;
    }
    *quota = quota.saturating_sub(pages);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_page_takes_its_whole_quota() {
        let mut quota = 700;
        assert!(draw(&mut quota, PageSize::Huge2M, false));
        assert!(!draw(&mut quota, PageSize::Huge2M, false));
        assert!(draw(&mut quota, PageSize::Huge2M, true));
        assert!(!draw(&mut quota, PageSize::Base4K, true));
    }
}
