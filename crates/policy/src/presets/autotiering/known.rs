// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is known of pages: where they are, their histories, who accessed them last; and the lists made of that.

use std::ops::RangeInclusive;

use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::Autotiering;
use super::accessors::Accessors;
use super::history::History;
use crate::event::Action;
use crate::kit::pages::Chunk;
use crate::kit::pages::Key;
use crate::kit::pages::Own;
use crate::kit::pages::page_of;
use crate::kit::pages::split;
use crate::kit::rate;

/// What the policy keeps of 2 MiB.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) history: History,
    pub(super) accessors: Accessors,
    /// Its numbers in the lists, by node.
    blocks: Vec<(NodeId, u32)>,
}

impl Own for Known {
    fn forget(&mut self, pages: &PageBits) {
        self.history.renew(pages);
        self.accessors.forget(pages);
    }

    fn bytes(&self) -> u64 {
        let blocks = self.blocks.capacity() * size_of::<(NodeId, u32)>();
        self.accessors.bytes() + blocks as u64
    }
}

/// All pages that 2 MiB may have, of either size.
fn all_of(key: Key) -> RangeInclusive<PageRef> {
    page_of(key, 0, PageSize::Base4K)..=page_of(key, CHUNK_PAGES - 1, PageSize::Giant1G)
}

impl Autotiering {
    /// A page was seen on a node, accessed from there.
    pub(super) fn seen(
        &mut self,
        now: Nanos,
        (key, index): (Key, usize),
        (size, node): (PageSize, NodeId),
        view: Option<usize>,
    ) {
        self.sized(key, size == PageSize::Huge2M, now);
        let several = self.views.all().len() > 1;
        let Some(chunk) = self.pages.get_mut(key) else {
            return;
        };
        if chunk.node(index).is_none() {
            let mut new = PageBits::NONE;
            new.set(index);
            chunk.own.history.renew(&new);
        }
        if let Some(view) = view.filter(|_| several) {
            chunk.own.accessors.set(index, view);
        }
        if chunk.node(index) != Some(node) && !chunk.flying.get(index) {
            chunk.place(index, node);
            self.relist(key);
        }
    }

    /// A reading of 2 MiB: where its pages are, and at the end of a round which of them were accessed.
    pub(super) fn read(&mut self, now: Nanos, reading: &ChunkReading<'_>) {
        let key = (reading.pid, reading.start.0 / CHUNK_BYTES);
        self.sized(key, reading.huge, now);
        let Some(chunk) = self.pages.get_mut(key) else {
            return;
        };
        chunk.read = now;
        let all = self.nodes.iter().map(|node| chunk.on(*node));
        let before = all.fold(PageBits::NONE, |all, on| all.or(&on));
        // What is being moved is left to its migration.
        let flying = chunk.flying.and(&before);
        for node in &self.nodes {
            let told = reading.nodes.iter().find(|(id, _)| id == node);
            let told = told.map_or(PageBits::NONE, |(_, pages)| pages.without(&flying));
            chunk.set_on(*node, told.or(&chunk.on(*node).and(&flying)));
        }
        if reading.last {
            chunk.own.history.shift(reading.accessed);
        }
        chunk.own.history.renew(&reading.present.without(&before));
        let absent = before.without(&reading.present).without(&flying);
        if absent.is_empty() && !reading.present.is_empty() {
            self.relist(key);
        } else {
            self.forget(key, &absent);
        }
    }

    /// 2 MiB are one huge page, or base pages. What was known of them in another size is forgotten.
    fn sized(&mut self, key: Key, huge: bool, now: Nanos) {
        self.huge |= huge;
        if self.pages.get(key).is_some_and(|chunk| chunk.huge != huge) {
            self.forget(key, &PageBits::ALL);
        }
        if self.pages.get(key).is_none() {
            self.pages.get_or_new(key, huge, now);
            self.remark(key);
        }
    }

    /// Pages whose migration goes on, as they were unmapped meanwhile and are there again, are in it still.
    fn remark(&mut self, key: Key) {
        let Some(chunk) = self.pages.get_mut(key) else {
            return;
        };
        for page in self.flying.range(all_of(key)) {
            if page.size == chunk.size() {
                chunk.flying.set(split(*page).1);
            }
        }
    }

    /// Nothing is known of these pages any more.
    pub(super) fn forget(&mut self, key: Key, pages: &PageBits) {
        let of = |chunk: &Chunk<Known>| chunk.own.blocks.clone();
        let blocks = self.pages.get(key).map(of).unwrap_or_default();
        self.pages.forget(key, pages);
        let waiting = self.waits.range(all_of(key)).map(|(page, _)| *page);
        let gone: Vec<PageRef> = waiting.filter(|page| pages.get(split(*page).1)).collect();
        for page in gone {
            self.waits.remove(&page);
        }
        if self.pages.get(key).is_some() {
            self.remark(key);
            self.relist(key);
        } else {
            blocks
                .iter()
                .for_each(|(_, block)| self.laps.remove(*block));
        }
    }

    /// Puts the blocks of 2 MiB into the lists of the levels that their pages have; pages that are being moved
    /// have none.
    pub(super) fn relist(&mut self, key: Key) {
        let Some(chunk) = self.pages.get_mut(key) else {
            return;
        };
        for (at, node) in (0_u16..).zip(&self.upper) {
            let on = chunk.on(*node).without(&chunk.flying);
            let known = chunk.own.blocks.iter().find(|(id, _)| id == node);
            let block = match known {
                Some((_, block)) => *block,
                None if on.is_empty() => continue,
                None => {
                    let block = self.laps.add(2 * at + u16::from(chunk.huge), key);
                    // Most have few.
                    chunk.own.blocks.reserve_exact(1);
                    chunk.own.blocks.push((*node, block));
                    block
                }
            };
            let levels = chunk.own.history.levels(&on);
            let filled = (0..).zip(&levels).filter(|(_, pages)| !pages.is_empty());
            let bits = filled.fold(0, |bits, (level, _)| bits | 1 << level);
            self.laps.set(block, bits);
        }
    }

    /// The least accessed page on a node, with its level; of that size, for base pages a huge one where there is no
    /// other. Nothing where the node has no lower tier.
    pub(super) fn lowest(&self, node: NodeId, size: PageSize) -> Option<(u8, Key)> {
        let at = self.upper.iter().position(|id| *id == node)?;
        let set = u16::try_from(2 * at).ok()?;
        match size {
            PageSize::Base4K => self.laps.lowest(set).or_else(|| self.laps.lowest(set + 1)),
            _ => self.laps.lowest(set + 1),
        }
    }

    /// The first page of that level in 2 MiB of a node, and the view of who accessed it last.
    pub(super) fn victim(
        &self,
        node: NodeId,
        level: u8,
        key: Key,
    ) -> Option<(PageRef, Option<usize>)> {
        let chunk = self.pages.get(key)?;
        let on = chunk.on(node).without(&chunk.flying);
        let levels = chunk.own.history.levels(&on);
        let index = levels[usize::from(level)].pages().next()?;
        let page = page_of(key, index, chunk.size());
        Some((page, chunk.own.accessors.of(index)))
    }

    /// A round over a process is over. What two rounds did not tell of is gone.
    pub(super) fn round_ended(&mut self, now: Nanos, pid: terrace_core::Pid) {
        if let Some(before) = self.watched.insert(pid, now) {
            for key in self.pages.unread(pid, before) {
                self.forget(key, &PageBits::ALL);
            }
        }
        self.ask();
    }

    /// Asks for rounds as long as the scanner's, over what is known now, where that changed by an eighth. One reading
    /// ends a round: a bit is all that a history takes of it.
    pub(super) fn ask(&mut self) {
        let known = self.pages.mapped_bytes();
        let pass = rate::time_of(known, self.params.scan_rate).max(self.scan.period);
        if rate::differs(pass, self.pass) {
            self.pass = pass;
            let shortest = pass;
            self.actions.push_back(Action::ReadAccessed {
                shortest,
                pass,
                parts: 1,
            });
        }
    }

    /// Base pages that were accessed in at least so many rounds: on nodes with a lower tier, and in all.
    pub(super) fn accessed_in(&self, rounds: usize) -> (u64, u64) {
        let (mut fast, mut all) = (0, 0);
        for (_, chunk) in self.pages.all() {
            for node in &self.nodes {
                let levels = chunk.own.history.levels(&chunk.on(*node));
                let pages: u32 = levels[rounds..].iter().map(PageBits::count).sum();
                let pages = u64::from(pages) * chunk.size().base_pages();
                all += pages;
                fast += if self.upper.contains(node) { pages } else { 0 };
            }
        }
        (fast, all)
    }
}
