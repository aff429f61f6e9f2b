// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders that have not ended, by chunk: pages that go the same way are a set.

use std::collections::BTreeMap;

use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::PageRef;
use terrace_core::PageSize;

use super::chunk::Key;
use super::chunk::split;

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

    /// Whether an order has to do with the page's addresses.
    pub(super) fn touches(&self, page: PageRef) -> bool {
        let (number, index) = split(page.addr);
        let Some(list) = self.chunks.get(&(page.pid, number)) else {
            return false;
        };
        let base = |size| size == PageSize::Base4K;
        list.iter()
            .any(|going| !base(page.size) || !base(going.size) || going.pages.get(index))
    }

    /// The page is ordered there; it has no order yet.
    pub(super) fn begin(&mut self, page: PageRef, way: Way) {
        let (number, index) = split(page.addr);
        let list = self.chunks.entry((page.pid, number)).or_default();
        let same = |going: &&mut Going| (going.way, going.size) == (way, page.size);
        if let Some(going) = list.iter_mut().find(same) {
            going.pages.set(index);
        } else {
            list.push(Going {
                way,
                size: page.size,
                pages: PageBits::one(index),
            });
        }
        self.pages += 1;
    }

    /// The page's order has ended; gives its way, if it had one.
    pub(super) fn end(&mut self, page: PageRef) -> Option<Way> {
        let (number, index) = split(page.addr);
        let key = (page.pid, number);
        let list = self.chunks.get_mut(&key)?;
        let mut all = list.iter();
        let at = all.position(|going| going.size == page.size && going.pages.get(index))?;
        let way = list[at].way;
        list[at].pages.clear(index);
        if list[at].pages.is_empty() {
            list.swap_remove(at);
        }
        if list.is_empty() {
            self.chunks.remove(&key);
        }
        self.pages -= 1;
        Some(way)
    }

    /// Bytes that this takes, about.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.len() * (size_of::<Key>() + size_of::<Going>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presets::adaptive::chunk::page_of;
    use proptest::prelude::*;
    use terrace_core::Addr;
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
                prop_assert_eq!(under_way.touches(page), touched);
                if !begin {
                    prop_assert_eq!(under_way.end(page), list.remove(&page));
                } else if !touched {
                    let way = ((to > 0).then_some(NodeId(9)), NodeId(to));
                    under_way.begin(page, way);
                    list.insert(page, way);
                }
                prop_assert_eq!(under_way.len(), list.len());
            }
            for (page, way) in list {
                prop_assert_eq!(under_way.end(page), Some(way));
            }
            prop_assert_eq!((under_way.len(), under_way.bytes()), (0, 0));
        }
    }
}
