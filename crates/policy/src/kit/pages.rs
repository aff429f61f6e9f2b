// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is kept of pages: by 2 MiB of a process where each is, which are in a migration, and what a policy has of its
//! own ([`Own`]).
//!
//! A huge page is one entry, page 0 of its 2 MiB. Pages of a node that has a tier below it are numbered, for that
//! node's lists ([`crate::kit::TwoLists`]): 512 numbers for each 2 MiB that has or had any there.

use std::collections::BTreeMap;

use terrace_core::Addr;
use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

/// A process and the number of 2 MiB of its addresses.
pub type Key = (Pid, u64);

/// What a policy keeps of 2 MiB.
pub trait Own: Default {
    /// Nothing is known of these pages any more.
    fn forget(&mut self, pages: &PageBits);
    /// Bytes it takes elsewhere.
    fn bytes(&self) -> u64 {
        0
    }
}

/// 2 MiB of a process.
#[derive(Debug, Default)]
pub struct Chunk<O> {
    /// Whether one huge page maps it.
    pub huge: bool,
    /// When a reading told of it last.
    pub read: Nanos,
    /// Where its pages are.
    nodes: Vec<(NodeId, PageBits)>,
    /// In a migration.
    pub flying: PageBits,
    /// The policy's.
    pub own: O,
    /// Its pages' numbers on a node, divided by 512.
    blocks: Vec<(NodeId, u32)>,
}

impl<O: Own> Chunk<O> {
    /// Of its pages.
    #[must_use]
    pub const fn size(&self) -> PageSize {
        if self.huge {
            PageSize::Huge2M
        } else {
            PageSize::Base4K
        }
    }

    /// Its pages on a node.
    #[must_use]
    pub fn on(&self, node: NodeId) -> PageBits {
        let of = self.nodes.iter().find(|(id, _)| *id == node);
        of.map_or(PageBits::NONE, |(_, pages)| *pages)
    }

    /// Its pages by node.
    #[must_use]
    pub fn nodes(&self) -> &[(NodeId, PageBits)] {
        &self.nodes
    }

    /// Where a page is.
    #[must_use]
    pub fn node(&self, page: usize) -> Option<NodeId> {
        let on = self.nodes.iter().find(|(_, pages)| pages.get(page));
        on.map(|(id, _)| *id)
    }

    /// These are its pages on a node.
    pub fn set_on(&mut self, node: NodeId, pages: PageBits) {
        match self.nodes.iter_mut().find(|(id, _)| *id == node) {
            Some((_, on)) => *on = pages,
            None if pages.is_empty() => {}
            None => {
                // Most are on few nodes.
                self.nodes.reserve_exact(1);
                self.nodes.push((node, pages));
            }
        }
    }

    /// Bytes it takes elsewhere.
    fn heap_bytes(&self) -> u64 {
        let nodes = self.nodes.capacity() * size_of::<(NodeId, PageBits)>();
        let blocks = self.blocks.capacity() * size_of::<(NodeId, u32)>();
        (nodes + blocks) as u64 + self.own.bytes()
    }

    /// Bytes of its pages that are in memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let pages = self.nodes.iter().map(|(_, on)| u64::from(on.count()));
        pages.sum::<u64>() * self.size().bytes()
    }

    /// The page is on that node, and on no other.
    pub fn place(&mut self, page: usize, node: NodeId) {
        self.nodes.iter_mut().for_each(|(_, on)| on.clear(page));
        let mut on = self.on(node);
        on.set(page);
        self.set_on(node, on);
    }

    /// Nothing is known of these pages any more.
    fn forget(&mut self, pages: &PageBits) {
        for (_, on) in &mut self.nodes {
            *on = on.without(pages);
        }
        self.flying = self.flying.without(pages);
        self.own.forget(pages);
    }

    fn is_unknown(&self) -> bool {
        self.nodes.iter().all(|(_, pages)| pages.is_empty())
    }
}

/// The 2 MiB of an address and the page's number there.
#[must_use]
pub const fn split(page: PageRef) -> (Key, usize) {
    let index = ((page.addr.0 % CHUNK_BYTES) >> 12) as usize;
    ((page.pid, page.addr.0 / CHUNK_BYTES), index)
}

/// A page of 2 MiB as others name it.
#[must_use]
pub fn page_of(key: Key, page: usize, size: PageSize) -> PageRef {
    PageRef {
        pid: key.0,
        addr: Addr(key.1 * CHUNK_BYTES + ((page as u64) << 12)),
        size,
    }
}

/// All pages known.
#[derive(Debug, Default)]
pub struct Pages<O> {
    /// Where in `chunks` each 2 MiB are.
    places: BTreeMap<Key, usize>,
    chunks: Vec<Box<Chunk<O>>>,
    free: Vec<usize>,
    /// Who takes a reading in asks for the same 2 MiB many times.
    last: Option<(Key, usize)>,
    blocks: BTreeMap<NodeId, Blocks>,
}

/// A node's numbers, 512 at a time.
#[derive(Debug, Default)]
struct Blocks {
    /// Whose each is.
    owners: Vec<Option<Key>>,
    free: Vec<u32>,
}

impl<O: Own> Pages<O> {
    /// The 2 MiB, known from now on if they were not.
    pub fn get_or_new(&mut self, key: Key, huge: bool, now: Nanos) -> &mut Chunk<O> {
        let place = self.place(key).unwrap_or_else(|| {
            let chunk = Chunk {
                huge,
                read: now,
                ..Chunk::default()
            };
            let place = self.free.pop().unwrap_or_else(|| {
                self.chunks.push(Box::default());
                self.chunks.len() - 1
            });
            *self.chunks[place] = chunk;
            self.places.insert(key, place);
            place
        });
        self.last = Some((key, place));
        &mut self.chunks[place]
    }

    fn place(&self, key: Key) -> Option<usize> {
        match self.last {
            Some((last, place)) if last == key => Some(place),
            _ => self.places.get(&key).copied(),
        }
    }

    /// The 2 MiB, if they are known.
    #[must_use]
    pub fn get(&self, key: Key) -> Option<&Chunk<O>> {
        self.place(key).map(|place| &*self.chunks[place])
    }

    /// The 2 MiB, if they are known.
    pub fn get_mut(&mut self, key: Key) -> Option<&mut Chunk<O>> {
        let place = self.place(key)?;
        self.last = Some((key, place));
        Some(&mut self.chunks[place])
    }

    /// The 2 MiB of a page that is known in its size, and its number there.
    pub fn find(&mut self, page: PageRef) -> Option<(Key, &mut Chunk<O>, usize)> {
        let (key, index) = split(page);
        let chunk = self.get_mut(key)?;
        let known = chunk.size() == page.size && chunk.node(index).is_some();
        known.then_some((key, chunk, index))
    }

    /// The number of a page for a node's lists.
    pub fn unit(&mut self, node: NodeId, key: Key, page: usize) -> u32 {
        let of = |chunk: &Chunk<O>| chunk.blocks.iter().find(|(id, _)| *id == node).copied();
        let known = self.get(key).and_then(of);
        let block = known.map(|(_, block)| block).unwrap_or_else(|| {
            let blocks = self.blocks.entry(node).or_default();
            let block = blocks.free.pop().unwrap_or_else(|| {
                blocks.owners.push(None);
                u32::try_from(blocks.owners.len() - 1).expect("2^23 are 16 TiB")
            });
            blocks.owners[block as usize] = Some(key);
            if let Some(place) = self.place(key) {
                self.chunks[place].blocks.push((node, block));
            }
            block
        });
        block * 512 + u32::try_from(page).expect("one of 512")
    }

    /// The page that a number stands for.
    #[must_use]
    pub fn of_unit(&self, node: NodeId, unit: u32) -> Option<PageRef> {
        let owners = &self.blocks.get(&node)?.owners;
        let key = owners.get(unit as usize / CHUNK_PAGES).copied()??;
        let size = self.get(key)?.size();
        Some(page_of(key, unit as usize % CHUNK_PAGES, size))
    }

    /// Forgets pages; a chunk of which none is left goes.
    pub fn forget(&mut self, key: Key, pages: &PageBits) {
        let Some(place) = self.place(key) else {
            return;
        };
        let chunk = &mut self.chunks[place];
        chunk.forget(pages);
        if !chunk.is_unknown() {
            return;
        }
        for (node, block) in std::mem::take(&mut **chunk).blocks {
            let blocks = self.blocks.entry(node).or_default();
            blocks.owners[block as usize] = None;
            blocks.free.push(block);
        }
        self.places.remove(&key);
        self.free.push(place);
        self.last = None;
    }

    /// The pages in a range, by 2 MiB.
    #[must_use]
    pub fn within(&self, pid: Pid, range: Range) -> Vec<(Key, PageBits)> {
        if range.bytes() == 0 {
            return Vec::new();
        }
        let (first, last) = (range.start.0 / CHUNK_BYTES, (range.end.0 - 1) / CHUNK_BYTES);
        let places = self.places.range((pid, first)..=(pid, last));
        places
            .map(|(key, place)| {
                let chunk = &self.chunks[*place];
                let mut pages = PageBits::NONE;
                for page in 0..CHUNK_PAGES {
                    let addr = page_of(*key, page, PageSize::Base4K).addr;
                    // Of a huge page that is gone in part nothing is known.
                    if range.contains(addr) {
                        pages.set(if chunk.huge { 0 } else { page });
                    }
                }
                (*key, pages)
            })
            .collect()
    }

    /// The 2 MiB of a process that no reading told of since a time.
    #[must_use]
    pub fn unread(&self, pid: Pid, since: Nanos) -> Vec<Key> {
        let of = self.places.range((pid, 0)..=(pid, u64::MAX));
        of.filter(|(_, place)| self.chunks[**place].read < since)
            .map(|(key, _)| *key)
            .collect()
    }

    /// All that is known.
    pub fn all(&self) -> impl Iterator<Item = (Key, &Chunk<O>)> {
        let places = self.places.iter();
        places.map(|(key, place)| (*key, &*self.chunks[*place]))
    }

    /// Bytes of addresses that are known.
    #[must_use]
    pub fn mapped_bytes(&self) -> u64 {
        self.places.len() as u64 * CHUNK_BYTES
    }

    /// Bytes this takes, about.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let chunk = size_of::<Chunk<O>>() + size_of::<Box<Chunk<O>>>() + size_of::<(Key, usize)>();
        let owners = self.blocks.values().map(|blocks| blocks.owners.capacity());
        let owners = owners.sum::<usize>() * size_of::<Option<Key>>();
        let elsewhere: u64 = self.chunks.iter().map(|chunk| chunk.heap_bytes()).sum();
        (self.chunks.len() * chunk + owners) as u64 + elsewhere
    }
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
