// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders that have not ended, by chunk: pages that go the same way are a set.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageSize;

use crate::kit::pages::Key;

/// Where from, if that is told, and where to.
pub(super) type Way = (Option<NodeId>, NodeId);

/// Pages of a chunk on one way.
#[derive(Debug)]
struct Going {
    way: Way,
    size: PageSize,
    pages: PageBits,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnderWay {
    /// No list and no set is empty.
    chunks: BTreeMap<Key, Vec<Going>>,
    pages: usize,
}

impl UnderWay {
    /// Orders that have not ended.
    pub(super) const fn len(&self) -> usize {
        self.pages
    }

    /// Pages of a chunk, were they of that size, whose addresses an order has to do with.
    pub(super) fn touched(&self, key: Key, size: PageSize) -> PageBits {
        let list = self.chunks.get(&key).map_or(&[][..], Vec::as_slice);
        list.iter().fold(PageBits::NONE, |all, going| {
            if size == PageSize::Base4K && going.size == size {
                all.or(&going.pages)
            } else {
                PageBits::ALL
            }
        })
    }

    /// These pages of a chunk are ordered there; they have no order yet.
    pub(super) fn begin(&mut self, (key, size): (Key, PageSize), pages: &PageBits, way: Way) {
        let list = self.chunks.entry(key).or_default();
        let same = |going: &&mut Going| (going.way, going.size) == (way, size);
        if let Some(going) = list.iter_mut().find(same) {
            going.pages = going.pages.or(pages);
        } else {
            let pages = *pages;
            list.push(Going { way, size, pages });
        }
        self.pages += pages.count() as usize;
    }

    /// The orders of these pages of a chunk have ended; gives their ways, of those that had one.
    pub(super) fn end(
        &mut self,
        (key, size): (Key, PageSize),
        pages: &PageBits,
    ) -> Vec<(Way, PageBits)> {
        let Some(list) = self.chunks.get_mut(&key) else {
            return Vec::new();
        };
        let mut ended = Vec::new();
        for going in list.iter_mut().filter(|going| going.size == size) {
            let here = going.pages.and(pages);
            if !here.is_empty() {
                going.pages = going.pages.without(&here);
                self.pages -= here.count() as usize;
                ended.push((going.way, here));
            }
        }
        list.retain(|going| !going.pages.is_empty());
        if list.is_empty() {
            self.chunks.remove(&key);
        }
        ended
    }

    /// Bytes that this takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * (size_of::<Key>() + size_of::<Going>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kit::pages::page_of;
    use crate::kit::pages::split;
    use proptest::prelude::*;
    use terrace_core::Addr;
    use terrace_core::PageRef;
    use terrace_core::Pid;

    fn overlap(one: PageRef, other: PageRef) -> bool {
        let end = |page: PageRef| Addr(page.addr.0 + page.size.bytes());
        one.pid == other.pid && one.addr < end(other) && other.addr < end(one)
    }

    proptest! {
        /// As a list of pages and their ways would be.
        #[test]
        fn a_page_is_under_way_until_its_order_ends(
            steps in prop::collection::vec((any::<bool>(), 0_u64..3, any::<bool>(), 0_usize..4, 0_u16..3), 0..80),
        ) {
            let mut under_way = UnderWay::default();
            let mut list: BTreeMap<PageRef, Way> = BTreeMap::new();
            for (begin, number, huge, index, to) in steps {
                let (size, index) = if huge { (PageSize::Huge2M, 0) } else { (PageSize::Base4K, index) };
                let page = page_of((Pid(7), number), index, size);
                let touched = list.keys().any(|other| overlap(page, *other));
                let (key, at) = split(page);
                prop_assert_eq!(under_way.touched(key, size).get(at), touched);
                if !begin {
                    let ended = under_way.end((key, size), &PageBits::one(at));
                    let way = list.remove(&page);
                    prop_assert_eq!(ended, way.map(|way| (way, PageBits::one(at))).into_iter().collect::<Vec<_>>());
                } else if !touched {
                    let way = ((to > 0).then_some(NodeId(9)), NodeId(to));
                    under_way.begin((key, size), &PageBits::one(at), way);
                    list.insert(page, way);
                }
                prop_assert_eq!(under_way.len(), list.len());
            }
            for (page, way) in list {
                let (key, at) = split(page);
                let one = PageBits::one(at);
                prop_assert_eq!(under_way.end((key, page.size), &one), [(way, one)]);
            }
            prop_assert_eq!((under_way.len(), under_way.bytes()), (0, 0));
        }
    }
}
