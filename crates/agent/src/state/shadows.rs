// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which pages have a shadow, and where. Pure.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use terrace_core::PageSize;

use crate::state::frames::Frame;
use crate::state::pieces::overlapping;

/// A copy on the slower node of a promoted page, of 4 KiB (Nomad 3.2). It counts for as long as its page is
/// write-protected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shadow {
    pub(crate) frame: Frame,
    born: u64,
}

/// The shadows.
#[derive(Debug, Default)]
pub(crate) struct Shadows {
    by_page: BTreeMap<u64, Shadow>,
    /// By age, (born, address); some of them gone.
    ages: VecDeque<(u64, u64)>,
    births: u64,
}

impl Shadows {
    /// Remembers a page's shadow.
    pub(crate) fn add(&mut self, addr: u64, frame: Frame) {
        self.births += 1;
        let born = self.births;
        let shadow = Shadow { frame, born };
        self.by_page.insert(addr, shadow);
        self.ages.push_back((born, addr));
        if self.ages.len() > 2 * self.by_page.len() + 1024 {
            let shadows = &self.by_page;
            self.ages
                .retain(|(born, addr)| shadows.get(addr).is_some_and(|s| s.born == *born));
        }
    }

    /// The shadow of this page.
    pub(crate) fn of(&self, addr: u64) -> Option<Shadow> {
        self.by_page.get(&addr).copied()
    }

    /// Shadows from an address on, in order of address: (page, frame).
    pub(crate) fn starting_at(&self, addr: u64) -> impl Iterator<Item = (u64, u64)> {
        let behind = self.by_page.range(addr..);
        behind.map(|(page, shadow)| (*page, shadow.frame.addr))
    }

    /// Takes a shadow that covers part of the range.
    pub(crate) fn take_over(&mut self, start: u64, end: u64) -> Option<(u64, Shadow)> {
        let key = overlapping(&self.by_page, start, end, |_| PageSize::Base4K.bytes())?;
        self.by_page.remove_entry(&key)
    }

    /// Takes the oldest shadow.
    pub(crate) fn take_oldest(&mut self) -> Option<(u64, Shadow)> {
        while let Some((born, addr)) = self.ages.pop_front() {
            if self.by_page.get(&addr).is_some_and(|s| s.born == born) {
                return self.by_page.remove_entry(&addr);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use terrace_core::NodeId;

    use super::*;

    fn frame(addr: u64) -> Frame {
        Frame {
            addr,
            node: NodeId(0),
        }
    }

    #[test]
    fn oldest_shadows_go_first_and_replaced_ones_are_not_counted() {
        let mut shadows = Shadows::default();
        for n in 0..5 {
            shadows.add(n * 4096, frame(n));
        }
        assert_eq!(shadows.take_over(0, 1).map(|(a, _)| a), Some(0));
        shadows.add(0, frame(9));
        let order: Vec<_> = std::iter::from_fn(|| shadows.take_oldest())
            .map(|(_, s)| s.frame.addr)
            .collect();
        assert_eq!(order, [1, 2, 3, 4, 9]);
    }
}
