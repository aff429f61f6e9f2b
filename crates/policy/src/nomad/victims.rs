// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which fast pages to demote: the coldest first.
//!
//! The paper takes them from the tail of the kernel's inactive list. User space has no such list; it
//! has each page's hint faults. A page that is armed once a pass faults once a pass, however hot it
//! is; so the time since its last fault says little until a whole pass lies in it, and then the page
//! was armed and not touched. Before that, the idle time that the fault captured is what is known
//! ([`idle`]).
//!
//! The list is made by one walk over the metadata when it has run out: idle times fall into
//! buckets, the coldest buckets are taken until there are enough. Of equally cold pages those with
//! a shadow come first, since they cost no copy (3.2).

use std::collections::VecDeque;

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageRef;

use crate::pages::Meta;
use crate::pages::Pages;
use crate::pages::State;
use crate::pages::class_idle;
use crate::pages::idle_class;

/// The last complete pass over fast pages.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// When it began.
    pub start: Nanos,
    /// How long a pass takes now.
    pub period: Nanos,
}

/// How long a page has been idle. What was last touched before the last complete pass began has been
/// armed since and not touched: on the average for half of that time. Of others the idle time that
/// their last fault captured is known.
#[must_use]
pub fn idle(meta: &Meta, now: Nanos, pass: Pass) -> Nanos {
    let captured = class_idle(meta.idle_class);
    if meta.last_ref() < pass.start {
        Nanos(now.since(meta.last_ref()).0 / 2).max(captured)
    } else {
        captured
    }
}

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

    /// The coldest page that is still on a fast node and in no queue, with its idle time. The
    /// metadata is walked at most four times a pass.
    pub fn coldest(
        &mut self,
        now: Nanos,
        pass: Pass,
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
                        return Some((page, idle(m, now, pass)));
                    }
                    _ => self.queue.pop_front(),
                };
            }
            if self
                .made
                .is_some_and(|made| now.since(made).0 < pass.period.0 / 4)
            {
                return None;
            }
            self.rebuild(now, pass, pages, &is_fast);
            if self.queue.is_empty() {
                return None;
            }
        }
    }

    /// Takes the page that `coldest` gave.
    pub fn take(&mut self) {
        self.queue.pop_front();
    }

    fn rebuild(
        &mut self,
        now: Nanos,
        pass: Pass,
        pages: &Pages,
        is_fast: &impl Fn(NodeId) -> bool,
    ) {
        self.made = Some(now);
        let mut by_age: [u32; 256] = [0; 256];
        let class_of = |meta: &Meta| idle_class(Some(idle(meta, now, pass)));
        let on_fast = || {
            pages
                .iter()
                .filter(|(_, m)| m.state == State::Idle && m.node().is_some_and(is_fast))
        };
        self.fast_pages = 0;
        for (_, meta) in on_fast() {
            by_age[usize::from(class_of(meta))] += 1;
            self.fast_pages += 1;
        }
        let mut floor = 255_usize;
        let mut count = by_age[floor] as usize;
        while floor > 0 && count < ENOUGH {
            floor -= 1;
            count += by_age[floor] as usize;
        }
        let mut found: Vec<_> = on_fast()
            .filter(|(_, m)| usize::from(class_of(m)) >= floor)
            .map(|(page, m)| (std::cmp::Reverse(class_of(m)), !m.shadow(), page))
            .collect();
        found.sort_unstable();
        found.truncate(ENOUGH);
        self.queue = found.into_iter().map(|(_, _, page)| page).collect();
    }
}
