// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which fast pages to demote: the coldest first.
//!
//! The paper takes them from the tail of the kernel's inactive list. User space has no such list;
//! it has the time of each page's last hint fault. The list here is made by one walk over the
//! metadata when it has run out: ages fall into buckets, the oldest buckets are taken until there
//! are enough. Of pages of one age those with a shadow come first, since they cost no copy (3.2).

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use crate::pages::Pages;
use crate::pages::State;
use crate::pages::idle_class;

/// Candidates for demotion, made at some time.
#[derive(Debug, Default)]
pub struct Victims {
    queue: VecDeque<PageRef>,
    made: Option<Nanos>,
    fast_pages: u64,
}

const ENOUGH: usize = 4096;

impl Victims {
    /// How many pages the last walk found on fast nodes.
    #[must_use]
    pub const fn fast_pages(&self) -> u64 {
        self.fast_pages
    }

    /// Drops the list: ages have changed.
    pub fn clear(&mut self) {
        self.queue.clear();
    }

    /// The coldest page that is still on a fast node and idle, with its age. Walks the metadata at
    /// most once per `interval`.
    pub fn coldest(
        &mut self,
        now: Nanos,
        interval: Nanos,
        pages: &Pages,
        is_fast: impl Fn(NodeId) -> bool,
    ) -> Option<(PageRef, Nanos)> {
        loop {
            while let Some(&page) = self.queue.front() {
                let meta = pages.get(page);
                match meta {
                    Some(m)
                        if m.state == State::Idle
                            && m.node().is_some_and(&is_fast)
                            && self.made.is_some_and(|made| m.last_ref() <= made) =>
                    {
                        return Some((page, now.since(m.last_ref())));
                    }
                    _ => self.queue.pop_front(),
                };
            }
            if self.made.is_some_and(|made| now.since(made) < interval) {
                return None;
            }
            self.rebuild(now, pages, &is_fast);
            if self.queue.is_empty() {
                return None;
            }
        }
    }

    /// Takes the page that `coldest` gave.
    pub fn take(&mut self) {
        self.queue.pop_front();
    }

    fn rebuild(&mut self, now: Nanos, pages: &Pages, is_fast: &impl Fn(NodeId) -> bool) {
        self.made = Some(now);
        let mut by_age: [u32; 256] = [0; 256];
        let class_of = |last: Nanos| idle_class(Some(now.since(last)));
        let on_fast = || {
            pages
                .iter()
                .filter(|(_, m)| m.state == State::Idle && m.node().is_some_and(is_fast))
        };
        self.fast_pages = 0;
        for (_, meta) in on_fast() {
            by_age[usize::from(class_of(meta.last_ref()))] += 1;
            self.fast_pages += 1;
        }
        let mut floor = 255_usize;
        let mut count = by_age[floor] as usize;
        while floor > 0 && count < ENOUGH {
            floor -= 1;
            count += by_age[floor] as usize;
        }
        let mut found: Vec<_> = on_fast()
            .filter(|(_, m)| usize::from(class_of(m.last_ref())) >= floor)
            .map(|(page, m)| (std::cmp::Reverse(class_of(m.last_ref())), !m.shadow(), page))
            .collect();
        found.sort_unstable();
        found.truncate(ENOUGH);
        self.queue = found.into_iter().map(|(_, _, page)| page).collect();
    }
}
