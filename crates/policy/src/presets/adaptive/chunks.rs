// SPDX-License-Identifier: MIT OR Apache-2.0
//! All pages, by 2 MiB. A chunk that two passes did not tell of is gone.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use terrace_core::CHUNK_BYTES;
use terrace_core::CHUNK_PAGES;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

use super::accessors::Accessor;
use super::accessors::Part;
use super::census::Census;
use super::chunk::Chunk;
use super::decide::SIZES;
use super::lag;
use super::places::Place;
use super::places::Spread;
use super::places::in_one;
use crate::kit::pages::Key;
use crate::kit::pages::page_of;
use crate::kit::pages::split;

/// How many pages of each class there are, by process and who accesses them.
pub(super) type Counts = BTreeMap<Part, Census>;

/// All pages there are.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    all: BTreeMap<Key, Chunk>,
    census: Counts,
}

impl Chunks {
    /// The chunk as it is told of in that pass: its size, its pages and where they are. With the
    /// counts of its process, which are to follow its levels.
    pub(super) fn place(
        &mut self,
        key: Key,
        (huge, pass): (bool, u32),
        (present, spread): (PageBits, Spread),
    ) -> (&mut Chunk, &mut Census) {
        let new = || Chunk::new(huge, pass);
        let chunk = self.all.entry(key).or_insert_with(new);
        let census = self.census.entry(part(key, chunk)).or_default();
        let changed = if chunk.huge == huge {
            in_one(&present, &chunk.present).or(&spread.differs(&chunk.spread))
        } else {
            PageBits::ALL
        };
        if !changed.is_empty() {
            census.remove(chunk, &changed);
            chunk.remap(huge, pass);
            if let Some(home) = &mut chunk.home {
                home.copy(&present.without(&chunk.present), &spread);
            }
            (chunk.present, chunk.spread) = (present, spread);
            census.add(chunk, &changed);
        }
        chunk.heard = pass;
        (chunk, census)
    }

    /// How many pages of each class there are.
    pub(super) const fn census(&self) -> &Counts {
        &self.census
    }

    /// Those of a process.
    pub(super) fn census_of(&self, pid: Pid) -> impl Iterator<Item = (Accessor, &Census)> {
        let own = self.census.range(parts_of(pid));
        own.map(|((_, accessor), census)| (*accessor, census))
    }

    /// How many pages a process has, by size.
    #[expect(clippy::cast_precision_loss, reason = "numbers of pages")]
    pub(super) fn pages_of(&self, pid: Pid) -> [f64; SIZES.len()] {
        let mut all = [0; SIZES.len()];
        for (_, census) in self.census_of(pid) {
            all.iter_mut()
                .zip(census.1)
                .for_each(|(sum, pages)| *sum += pages);
        }
        [0, 1].map(|at: usize| all[at] as f64 / SIZES[at].base_pages() as f64)
    }

    /// A processor of that socket, of so many, accessed a page of the chunk. Whether that makes the first chunk of a part.
    pub(super) fn accessed(&mut self, key: Key, (socket, sockets): (usize, usize)) -> bool {
        let Some(chunk) = self.all.get_mut(&key) else {
            return false;
        };
        let accessors = chunk.accessors.accessed(socket, sockets);
        if accessors.mostly() == chunk.accessors.mostly() {
            chunk.accessors = accessors;
            return false;
        }
        let census = self.census.entry(part(key, chunk)).or_default();
        census.remove(chunk, &PageBits::ALL);
        chunk.accessors = accessors;
        let is_new = !self.census.contains_key(&part(key, chunk));
        let census = self.census.entry(part(key, chunk)).or_default();
        census.add(chunk, &PageBits::ALL);
        is_new
    }

    pub(super) fn get(&self, key: Key) -> Option<&Chunk> {
        self.all.get(&key)
    }

    /// These pages of a chunk of that size have moved.
    pub(super) fn moved(&mut self, (key, size): (Key, PageSize), pages: &PageBits, to: Place) {
        let chunk = self.all.get_mut(&key);
        let Some(chunk) = chunk.filter(|chunk| chunk.size() == size) else {
            return;
        };
        let pages = pages.and(&chunk.present);
        if pages.is_empty() {
            return;
        }
        if chunk.home.is_none() {
            chunk.home = Some(Box::new(chunk.spread.clone()));
        }
        let census = self.census.entry(part(key, chunk)).or_default();
        for page in pages.pages() {
            census.moved(chunk, page, to);
        }
        chunk.spread.put(&pages, to);
    }

    /// Pages of a process that are not where they first were: where they are, and where they were.
    pub(super) fn strays(&self, pid: Pid) -> impl Iterator<Item = (PageRef, Place, Place)> {
        let all = self.all.range((pid, 0)..=(pid, u64::MAX));
        all.flat_map(|(key, chunk)| {
            let strays: Vec<usize> = chunk.strays().pages().collect();
            strays.into_iter().filter_map(|page| {
                let home = chunk.home()?.get(page);
                Some((
                    page_of(*key, page, chunk.size()),
                    chunk.spread.get(page),
                    home,
                ))
            })
        })
    }

    /// The page is not there any more.
    pub(super) fn lost(&mut self, page: PageRef) {
        let Some((chunk, index)) = find(&mut self.all, page) else {
            return;
        };
        let one = PageBits::one(index);
        let census = self.census.entry(part(split(page).0, chunk)).or_default();
        census.remove(chunk, &one);
        chunk.present.clear(index);
        chunk.spread.put(&one, 0);
        chunk.levels[index] = 0;
    }

    /// The process gave these addresses back.
    pub(super) fn unmapped(&mut self, pid: Pid, range: Range) {
        let keys: Vec<Key> = self.within(pid, range).map(|(key, _)| *key).collect();
        for key in keys {
            let pages = if self.all[&key].huge { 1 } else { CHUNK_PAGES };
            for index in 0..pages {
                let page = page_of(key, index, self.all[&key].size());
                if range.contains(page.addr) {
                    self.lost(page);
                }
            }
            if self.all[&key].present.is_empty() {
                self.all.remove(&key);
            }
        }
    }

    /// Pages of a process that are in its chunks there, a huge one counted once.
    pub(super) fn pages_in(&self, pid: Pid, range: Range) -> u64 {
        let all = self.within(pid, range);
        all.map(|(_, chunk)| u64::from(chunk.present.count())).sum()
    }

    /// Chunks of a process of which some addresses are in a range.
    fn within(&self, pid: Pid, range: Range) -> impl Iterator<Item = (&Key, &Chunk)> {
        let first = range.start.0 / CHUNK_BYTES;
        let all = self.all.range((pid, first)..=(pid, u64::MAX));
        all.take_while(move |((_, number), _)| number * CHUNK_BYTES < range.end.0)
            .filter(move |_| range.bytes() > 0)
    }

    /// The process is gone.
    pub(super) fn gone(&mut self, pid: Pid) {
        self.all.retain(|(of, _), _| *of != pid);
        self.census.retain(|(of, _), _| *of != pid);
    }

    /// Nothing is known of the process's pages any more but where they are, and who accessed them until now.
    pub(super) fn begin_anew(&mut self, pid: Pid, pass: u32) {
        for (_, chunk) in self.of(pid) {
            chunk.levels.fill(0);
            chunk.then = None;
            chunk.accessors.forget();
            chunk.since = pass;
        }
        let own = self.census.range_mut(parts_of(pid));
        own.for_each(|(_, census)| census.forget_levels());
    }

    /// All chunks of a process.
    pub(super) fn of(&mut self, pid: Pid) -> impl Iterator<Item = (Key, &mut Chunk)> {
        let all = self.all.range_mut((pid, 0)..=(pid, u64::MAX));
        all.map(|(key, chunk)| (*key, chunk))
    }

    /// All chunks of a process by their number.
    pub(super) fn of_one(&self, pid: Pid) -> impl Iterator<Item = (u64, &Chunk)> {
        let all = self.all.range((pid, 0)..=(pid, u64::MAX));
        all.map(|((_, number), chunk)| (*number, chunk))
    }

    /// Drops what was not told of since before the pass of its process before this one.
    pub(super) fn expire(&mut self, pid: Pid, pass: u32) {
        let census = &mut self.census;
        self.all.retain(|key, chunk| {
            let stays = key.0 != pid || pass.wrapping_sub(chunk.heard) <= 2;
            if !stays && let Some(census) = census.get_mut(&part(*key, chunk)) {
                census.remove(chunk, &PageBits::ALL);
            }
            stays
        });
    }

    /// All, from that key on and round to it again.
    pub(super) fn from(&self, start: Key) -> impl Iterator<Item = (Key, &Chunk)> {
        let behind = self.all.range(start..).chain(self.all.range(..start));
        behind.map(|(key, chunk)| (*key, chunk))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes this takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let each = CHUNK_PAGES + size_of::<Chunk>() + size_of::<Key>() + size_of::<Spread>();
        (self.all.len() * each + lag::copied(self.all.len())) as u64
    }
}

/// All parts of a process.
const fn parts_of(pid: Pid) -> RangeInclusive<Part> {
    (pid, 0)..=(pid, Accessor::MAX)
}

/// Which part of its process a chunk is.
pub(super) const fn part(key: Key, chunk: &Chunk) -> Part {
    (key.0, chunk.accessors.mostly())
}

/// The chunk of a page and its number there, if it is known in that size.
fn find(all: &mut BTreeMap<Key, Chunk>, page: PageRef) -> Option<(&mut Chunk, usize)> {
    let (key, index) = split(page);
    let chunk = all.get_mut(&key)?;
    (chunk.size() == page.size && chunk.present.get(index)).then_some((chunk, index))
}

#[cfg(test)]
#[path = "chunks_tests.rs"]
mod tests;
