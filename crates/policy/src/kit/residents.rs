// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages of all nodes ([`Pages`]), and of each node that has a tier below it the two lists ([`TwoLists`]): who
//! is told where pages are keeps both alike.

use std::collections::BTreeMap;

use terrace_core::ChunkReading;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::Tiers;

use super::pages::Chunk;
use super::pages::Key;
use super::pages::Own;
use super::pages::Pages;
use super::two_lists::List;
use super::two_lists::TwoLists;

/// See the module.
#[derive(Debug)]
pub struct Residents<O> {
    /// What is known of pages.
    pub pages: Pages<O>,
    /// Of each node that has a tier below it.
    pub lists: BTreeMap<NodeId, TwoLists>,
    nodes: Vec<NodeId>,
}

impl<O: Own> Residents<O> {
    /// On a machine with these tiers.
    #[must_use]
    pub fn new(tiers: &Tiers) -> Self {
        let nodes: Vec<NodeId> = tiers.nodes().iter().map(|node| node.id).collect();
        let upper = nodes.iter().filter(|id| tiers.below(**id).next().is_some());
        Self {
            pages: Pages::default(),
            lists: upper.map(|id| (*id, TwoLists::default())).collect(),
            nodes,
        }
    }

    /// 2 MiB are one huge page, or base pages. What was known of them in another size is forgotten, and this says so.
    pub fn sized(&mut self, key: Key, huge: bool, now: Nanos) -> bool {
        let other = self.pages.get_or_new(key, huge, now).huge != huge;
        if other {
            self.forget(key, &PageBits::ALL);
            self.pages.get_or_new(key, huge, now);
        }
        other
    }

    /// Takes in where pages are; what is being moved is left to its migration.
    pub fn placed(&mut self, key: Key, reading: &ChunkReading<'_>) {
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            let Some(chunk) = self.pages.get_mut(key) else {
                return;
            };
            let told = reading.nodes.iter().find(|(id, _)| *id == node);
            let told = told.map_or(PageBits::NONE, |(_, pages)| pages.without(&chunk.flying));
            let old = chunk.on(node);
            let kept = old.and(&chunk.flying);
            let (came, left) = (told.without(&old), old.without(&told).without(&kept));
            if came.is_empty() && left.is_empty() {
                continue;
            }
            chunk.set_on(node, told.or(&kept));
            for page in left.pages() {
                self.unlist(node, key, page);
            }
            for page in came.pages() {
                self.list(node, key, page, List::Inactive);
            }
        }
    }

    /// The page is on that node.
    pub fn put(&mut self, key: Key, page: usize, node: NodeId) {
        let Some(chunk) = self.pages.get_mut(key) else {
            return;
        };
        let before = chunk.node(page);
        if before == Some(node) || chunk.flying.get(page) {
            return;
        }
        chunk.place(page, node);
        if let Some(before) = before {
            self.unlist(before, key, page);
        }
        self.list(node, key, page, List::Inactive);
    }

    /// Nothing is known of these pages any more.
    pub fn forget(&mut self, key: Key, pages: &PageBits) {
        for at in 0..self.nodes.len() {
            let node = self.nodes[at];
            let on = self.pages.get(key).map(|chunk| chunk.on(node));
            for page in on.unwrap_or_default().and(pages).pages() {
                self.unlist(node, key, page);
            }
        }
        self.pages.forget(key, pages);
    }

    /// Into a list of the node, if it has lists.
    pub fn list(&mut self, node: NodeId, key: Key, page: usize, list: List) {
        if let Some(lists) = self.lists.get_mut(&node) {
            let size = self.pages.get(key).map(Chunk::size).unwrap_or_default();
            lists.add(self.pages.unit(node, key, page), size, list);
        }
    }

    /// Out of the node's lists.
    pub fn unlist(&mut self, node: NodeId, key: Key, page: usize) {
        if let Some(lists) = self.lists.get_mut(&node) {
            lists.remove(self.pages.unit(node, key, page));
        }
    }

    /// Tells the lists of these pages, if they are in 2 MiB that are known and on a node that has lists, which were accessed.
    pub fn tell(&mut self, key: Key, pages: &PageBits, accessed: &PageBits) {
        for (node, lists) in &mut self.lists {
            let on = self.pages.get(key).map(|chunk| chunk.on(*node).and(pages));
            if let Some(on) = on.filter(|on| !on.is_empty()) {
                let first = self.pages.unit(*node, key, 0);
                lists.read_all(first, &on, accessed);
            }
        }
    }

    /// Takes the coldest pages from the node's lists, so many bytes and pages at most, but for those that `stays`.
    pub fn take_coldest(
        &mut self,
        node: NodeId,
        mut bytes: u64,
        most: usize,
        stays: impl Fn(&PageRef) -> bool,
    ) -> Vec<PageRef> {
        let mut cluster = Vec::new();
        let Some(lists) = self.lists.get_mut(&node) else {
            return cluster;
        };
        while bytes > 0 && cluster.len() < most {
            let Some(unit) = lists.coldest() else {
                break;
            };
            lists.remove(unit);
            if let Some(page) = self.pages.of_unit(node, unit).filter(|page| !stays(page)) {
                bytes = bytes.saturating_sub(page.size.bytes());
                cluster.push(page);
            }
        }
        cluster
    }

    /// Base pages of a kind of list, of all nodes.
    #[must_use]
    pub fn listed(&self, list: List) -> u64 {
        self.lists.values().map(|lists| lists.pages(list)).sum()
    }

    /// Bytes all of this takes, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let lists: u64 = self.lists.values().map(TwoLists::bytes).sum();
        self.pages.bytes() + lists
    }
}
