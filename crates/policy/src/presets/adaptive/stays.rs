// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages that stayed where they were although they were ordered away: a device has them pinned, a cpuset forbids the node, or they
//! were only busy. Nobody says which, so each refusal in a row has a page wait twice as many passes of its process before it is planned
//! again: what never moves is tried as often as the logarithm of the passes, and keeps no other from moving; what moves one day waits for that
//! as long again at most.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

use terrace_core::CHUNK_BYTES;
use terrace_core::PageBits;
use terrace_core::PageSize;
use terrace_core::Pid;
use terrace_core::Range;

use super::chunks::Chunks;
use super::chunks::Counts;
use super::chunks::part;
use super::process::Process;
use crate::kit::pages::Key;

/// Doublings at most.
const DOUBLINGS: u32 = 16;

/// Pages of a chunk that wait alike.
#[derive(Debug)]
struct Stay {
    size: PageSize,
    pages: PageBits,
    /// Refusals in a row.
    times: u32,
    /// The pass in which they may be planned again.
    until: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Stays {
    /// No list and no set is empty.
    chunks: BTreeMap<Key, Vec<Stay>>,
}

impl Stays {
    /// These pages of a chunk did not move, in that pass of their process.
    pub(super) fn refused(&mut self, (key, size): (Key, PageSize), pages: &PageBits, pass: u32) {
        let list = self.chunks.entry(key).or_default();
        list.retain(|stay| stay.size == size);
        let mut again = Vec::new();
        let mut new = *pages;
        for stay in list.iter_mut() {
            let here = stay.pages.and(pages);
            if !here.is_empty() {
                stay.pages = stay.pages.without(&here);
                new = new.without(&here);
                again.push((stay.times + 1, here));
            }
        }
        again.push((1, new));
        for (times, pages) in again {
            let until = pass.saturating_add(1 << (times - 1).min(DOUBLINGS));
            let alike = |stay: &&mut Stay| (stay.times, stay.until) == (times, until);
            if let Some(stay) = list.iter_mut().find(alike) {
                stay.pages = stay.pages.or(&pages);
            } else {
                list.push(Stay {
                    size,
                    pages,
                    times,
                    until,
                });
            }
        }
        self.tidy(key);
    }

    /// These pages of a chunk have moved, or are gone.
    pub(super) fn forget(&mut self, (key, size): (Key, PageSize), pages: &PageBits) {
        if let Some(list) = self.chunks.get_mut(&key) {
            for stay in list.iter_mut().filter(|stay| stay.size == size) {
                stay.pages = stay.pages.without(pages);
            }
            self.tidy(key);
        }
    }

    /// The process gave these addresses back.
    pub(super) fn unmapped(&mut self, chunks: &Chunks, pid: Pid, range: Range) {
        let [first, last] = [range.start, range.end].map(|end| (pid, end.0 / CHUNK_BYTES));
        self.keep_present(chunks, first..=last);
    }

    /// Forgets of these chunks what is not there any more, as pages of that size.
    fn keep_present(&mut self, chunks: &Chunks, of: impl RangeBounds<Key>) {
        let keys: Vec<Key> = self.chunks.range(of).map(|(key, _)| *key).collect();
        for key in keys {
            let chunk = chunks.get(key);
            for stay in self.chunks.get_mut(&key).into_iter().flatten() {
                let same = chunk.filter(|chunk| chunk.size() == stay.size);
                let present = same.map_or(PageBits::NONE, |chunk| chunk.present);
                stay.pages = stay.pages.and(&present);
            }
            self.tidy(key);
        }
    }

    fn tidy(&mut self, key: Key) {
        if let Some(list) = self.chunks.get_mut(&key) {
            list.retain(|stay| !stay.pages.is_empty());
            if list.is_empty() {
                self.chunks.remove(&key);
            }
        }
    }

    /// The pages of a chunk, were they of that size, that are not to be planned yet.
    pub(super) fn waiting(
        &self,
        of: (Key, PageSize),
        processes: &BTreeMap<Pid, Process>,
    ) -> PageBits {
        let process = processes.get(&of.0.0);
        process.map_or(PageBits::NONE, |process| self.waiting_in(of, process.pass))
    }

    fn waiting_in(&self, (key, size): (Key, PageSize), pass: u32) -> PageBits {
        let Some(list) = self.chunks.get(&key) else {
            return PageBits::NONE;
        };
        let waits = |stay: &&Stay| stay.size == size && pass < stay.until;
        let waits = list.iter().filter(waits);
        waits.fold(PageBits::NONE, |all, stay| all.or(&stay.pages))
    }

    /// How many pages of each class there are without those that are not to be planned yet. Forgets pages that there are no more.
    pub(super) fn without_waiting<'a>(
        &mut self,
        counts: &'a Counts,
        chunks: &Chunks,
        processes: &BTreeMap<Pid, Process>,
    ) -> Cow<'a, Counts> {
        self.keep_present(chunks, ..);
        let mut movable = Cow::Borrowed(counts);
        let all = self.chunks.keys();
        for (key, chunk) in all.filter_map(|key| Some((*key, chunks.get(*key)?))) {
            let waiting = self.waiting((key, chunk.size()), processes);
            if !waiting.is_empty()
                && let Some(census) = movable.to_mut().get_mut(&part(key, chunk))
            {
                census.remove(chunk, &waiting);
            }
        }
        movable
    }

    /// The process is gone.
    pub(super) fn gone(&mut self, pid: Pid) {
        self.chunks.retain(|key, _| key.0 != pid);
    }

    /// Bytes that this takes, about.
    pub(super) fn bytes(&self) -> usize {
        let lists: usize = self.chunks.values().map(Vec::len).sum();
        self.chunks.len() * (size_of::<Key>() + size_of::<Vec<Stay>>()) + lists * size_of::<Stay>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = (Pid(7), 3);
    const OF: (Key, PageSize) = (KEY, PageSize::Base4K);

    #[test]
    fn what_never_moves_is_tried_ever_less_often() {
        let (mut stays, page) = (Stays::default(), PageBits::one(5));
        let mut tried = Vec::new();
        for pass in 0..1_000 {
            if !stays.waiting_in(OF, pass).get(5) {
                stays.refused(OF, &page, pass);
                tried.push(pass);
            }
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31, 63, 127, 255, 511]);
        stays.forget(OF, &page);
        assert_eq!(stays.chunks.len(), 0);
        stays.refused(OF, &page, 1_000);
        assert!(!stays.waiting_in(OF, 1_001).get(5));
    }

    proptest! {
        /// As a number of refusals and a pass for each page would say.
        #[test]
        fn each_page_waits_by_its_own_refusals(
            steps in prop::collection::vec((0_u32..3, any::<bool>(), any::<bool>(), prop::collection::btree_set(0_usize..20, 1..8)), 0..60),
        ) {
            let mut stays = Stays::default();
            let mut single: BTreeMap<usize, (bool, u32, u32)> = BTreeMap::new();
            let mut pass = 0;
            for (later, huge, moves, pages) in steps {
                pass += later;
                let size = if huge { PageSize::Huge2M } else { PageSize::Base4K };
                let mut bits = PageBits::NONE;
                pages.iter().for_each(|page| bits.set(*page));
                if moves {
                    stays.forget((KEY, size), &bits);
                    single.retain(|page, one| one.0 != huge || !pages.contains(page));
                } else {
                    stays.refused((KEY, size), &bits, pass);
                    single.retain(|_, one| one.0 == huge);
                    for page in pages {
                        let one = single.entry(page).or_insert((huge, 0, 0));
                        one.1 += 1;
                        one.2 = pass + (1 << (one.1 - 1).min(DOUBLINGS));
                    }
                }
                for (huge, size) in [(false, PageSize::Base4K), (true, PageSize::Huge2M)] {
                    let waiting = stays.waiting_in((KEY, size), pass);
                    for page in 0..20 {
                        let waits = single.get(&page).is_some_and(|one| one.0 == huge && pass < one.2);
                        prop_assert_eq!(waiting.get(page), waits);
                    }
                }
                prop_assert_eq!(stays.chunks.len(), usize::from(!single.is_empty()));
            }
        }
    }
}
