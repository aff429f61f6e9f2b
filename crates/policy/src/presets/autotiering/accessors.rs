// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who accessed each of 512 neighbouring pages last, as far as hint faults told: one of the views, by its place.
//!
//! Bit-sliced: a page's number is the place and 1, or 0 where nothing is known, and a plane has one digit of all pages. So
//! two sockets take two bits a page, eight take four, and a machine with any number of them log2.

use terrace_core::PageBits;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct Accessors(Vec<PageBits>);

impl Accessors {
    /// The view of who accessed a page last, by its place.
    pub(super) fn of(&self, page: usize) -> Option<usize> {
        let digits = self.0.iter().enumerate();
        let number: usize = digits
            .map(|(digit, plane)| usize::from(plane.get(page)) << digit)
            .sum();
        number.checked_sub(1)
    }

    /// It was that one.
    pub(super) fn set(&mut self, page: usize, view: usize) {
        let number = view + 1;
        let digits = (usize::BITS - number.leading_zeros()) as usize;
        if self.0.len() < digits {
            self.0.reserve_exact(digits - self.0.len());
            self.0.resize(digits, PageBits::NONE);
        }
        for (digit, plane) in self.0.iter_mut().enumerate() {
            if number >> digit & 1 == 1 {
                plane.set(page);
            } else {
                plane.clear(page);
            }
        }
    }

    /// Nothing is known of these pages any more.
    pub(super) fn forget(&mut self, pages: &PageBits) {
        for plane in &mut self.0 {
            *plane = plane.without(pages);
        }
    }

    /// Bytes it takes elsewhere.
    pub(super) const fn bytes(&self) -> u64 {
        (self.0.capacity() * size_of::<PageBits>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map.
        #[test]
        fn they_are_who_was_told_last(
            steps in prop::collection::vec((0_usize..512, prop::option::of(0_usize..300)), 0..200),
        ) {
            let (mut accessors, mut plain) = (Accessors::default(), BTreeMap::new());
            for (page, view) in steps {
                if let Some(view) = view {
                    accessors.set(page, view);
                    plain.insert(page, view);
                } else {
                    accessors.forget(&PageBits::one(page));
                    plain.remove(&page);
                }
                for page in 0..512 {
                    prop_assert_eq!(accessors.of(page), plain.get(&page).copied());
                }
            }
        }
    }
}
