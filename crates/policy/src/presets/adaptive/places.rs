// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where a page can be: sets of nodes that are alike for whoever accesses them.
//!
//! Remote DRAM is slower for one program and local for another, so there is no one order of places: each process has its own, by
//! what a read takes from where it runs ([`super::latencies`]). Who runs on processors of several nodes sees their mean.
//!
//! Nodes of one tier that no processors tell apart are one place. A machine with more than [`PLACES`] has its tiers for
//! places.

use terrace_core::NodeId;
use terrace_core::PageBits;
use terrace_core::TierId;
use terrace_core::Tiers;
use terrace_core::Views;

/// Places at most: three bits a page.
pub(super) const PLACES: usize = 8;
const PLANES: usize = 3;

/// A place by its number.
pub(super) type Place = usize;

/// The places of a machine.
#[derive(Debug)]
pub(super) struct Places(Vec<Vec<NodeId>>);

/// What tells a node from others: its tier, what is said of it, and the ways there.
type Look = (TierId, Option<u32>, Vec<Option<(Option<u32>, Option<u32>)>>);

impl Places {
    pub(super) fn new(tiers: &Tiers, views: &Views) -> Self {
        let alike = |node: &terrace_core::NodeInfo| -> Look {
            let ways = views.all().iter().map(|view| {
                let path = view.seen(node.id)?.path;
                Some((path.read_latency_ns, path.distance))
            });
            // Which tier that is, of one that the kernel has, too.
            (node.tier, node.read_latency_ns, ways.collect())
        };
        let told_apart = Self::by(tiers, alike);
        if told_apart.len() <= PLACES {
            return told_apart;
        }
        let mut by_tier = Self::by(tiers, |node| node.tier);
        // The slowest are one.
        while by_tier.len() > PLACES
            && let Some(last) = by_tier.0.pop()
            && let Some(before) = by_tier.0.last_mut()
        {
            before.extend(last);
        }
        by_tier
    }

    /// Nodes with the same key are one place; in the order of the tiers.
    fn by<K: PartialEq>(tiers: &Tiers, key: impl Fn(&terrace_core::NodeInfo) -> K) -> Self {
        let mut places: Vec<(K, Vec<NodeId>)> = Vec::new();
        for node in tiers.nodes() {
            let key = key(node);
            match places.iter_mut().find(|(other, _)| *other == key) {
                Some((_, nodes)) => nodes.push(node.id),
                None => places.push((key, vec![node.id])),
            }
        }
        Self(places.into_iter().map(|(_, nodes)| nodes).collect())
    }

    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn nodes(&self, place: Place) -> &[NodeId] {
        self.0.get(place).map_or(&[], Vec::as_slice)
    }

    /// Its node, if it has one only.
    pub(super) fn only_node(&self, place: Place) -> Option<NodeId> {
        let nodes = self.nodes(place);
        nodes.first().copied().filter(|_| nodes.len() == 1)
    }

    /// Where a page of that node is; the last place if nobody knows the node.
    pub(super) fn of(&self, node: NodeId) -> Place {
        let known = self.0.iter().position(|nodes| nodes.contains(&node));
        known.unwrap_or(self.0.len().saturating_sub(1))
    }

    /// Where the pages of a chunk are, of those that are in memory; as they are told of by node.
    pub(super) fn told(&self, nodes: &[(NodeId, PageBits)], present: &PageBits) -> Spread {
        let mut spread = Spread::default();
        // What no node is named of is in the last place.
        spread.put(present, self.0.len().saturating_sub(1));
        for (node, pages) in nodes {
            spread.put(&pages.and(present), self.of(*node));
        }
        spread
    }
}

/// The place of each page of a chunk, bit-sliced: one plane where there are two places, all others where there are more.
#[derive(Debug, Clone, Default)]
pub(super) struct Spread {
    first: PageBits,
    others: Option<Box<[PageBits; PLANES - 1]>>,
}

/// Sets a plane's bits of these pages, or clears them.
fn put(bits: &mut PageBits, pages: &PageBits, one: bool) {
    *bits = if one {
        bits.or(pages)
    } else {
        bits.without(pages)
    };
}

/// Of these pages those whose bit of a plane is set, or those whose is not.
fn of(bits: &PageBits, pages: &PageBits, one: bool) -> PageBits {
    if one {
        pages.and(bits)
    } else {
        pages.without(bits)
    }
}

/// Other planes where there are none.
const NONE: [PageBits; PLANES - 1] = [PageBits::NONE; PLANES - 1];

impl Spread {
    fn others(&self) -> &[PageBits] {
        self.others.as_ref().map_or(&[], |others| &others[..])
    }

    #[inline]
    pub(super) fn get(&self, page: usize) -> Place {
        let bit = |bits: &PageBits| usize::from(bits.get(page));
        let others = self.others().iter().rev();
        others.fold(0, |place, bits| place << 1 | bit(bits)) << 1 | bit(&self.first)
    }

    /// These pages are there.
    #[inline]
    pub(super) fn put(&mut self, pages: &PageBits, place: Place) {
        put(&mut self.first, pages, place & 1 == 1);
        if place > 1 && self.others.is_none() {
            self.others = Some(Box::new(NONE));
        }
        if let Some(others) = &mut self.others {
            for (plane, bits) in others.iter_mut().enumerate() {
                put(bits, pages, place >> (plane + 1) & 1 == 1);
            }
        }
    }

    /// These pages are where the other has them.
    pub(super) fn copy(&mut self, pages: &PageBits, other: &Self) {
        let copy = |bits: &mut PageBits, from: &PageBits| {
            *bits = bits.without(pages).or(&from.and(pages));
        };
        copy(&mut self.first, &other.first);
        if other.others.is_some() && self.others.is_none() {
            self.others = Some(Box::new(NONE));
        }
        let from = other.others.as_deref().unwrap_or(&NONE);
        let to = self.others.iter_mut().flat_map(|all| all.iter_mut());
        to.zip(from).for_each(|(bits, from)| copy(bits, from));
    }

    /// Of these pages, those that are there.
    #[inline]
    pub(super) fn of(&self, place: Place, pages: &PageBits) -> PageBits {
        let there = of(&self.first, pages, place & 1 == 1);
        let Some(others) = &self.others else {
            return if place > 1 { PageBits::NONE } else { there };
        };
        others
            .iter()
            .enumerate()
            .fold(there, |pages, (plane, bits)| {
                of(bits, &pages, place >> (plane + 1) & 1 == 1)
            })
    }

    /// Pages whose place is another one here than there.
    pub(super) fn differs(&self, other: &Self) -> PageBits {
        let first = in_one(&self.first, &other.first);
        if self.others.is_none() && other.others.is_none() {
            return first;
        }
        let [a, b] = [self, other].map(|one| one.others.as_deref().unwrap_or(&NONE));
        let others = a.iter().zip(b);
        others.fold(first, |all, (a, b)| all.or(&in_one(a, b)))
    }
}

/// Pages that are in one of them and not in the other.
pub(super) fn in_one(a: &PageBits, b: &PageBits) -> PageBits {
    a.without(b).or(&b.without(a))
}

#[cfg(test)]
mod tests {
    use terrace_core::AccessPath;
    use terrace_core::NodeInfo;

    use super::*;

    fn node(id: u16, tier: u16, ns: u32) -> NodeInfo {
        NodeInfo {
            id: NodeId(id),
            tier: TierId(tier),
            capacity_bytes: 1 << 30,
            cpus: Vec::new(),
            read_latency_ns: Some(ns),
            write_latency_ns: None,
            read_bandwidth_mbps: None,
        }
    }

    #[test]
    fn nodes_that_nobody_tells_apart_are_one_place() {
        let tiers = Tiers::new(vec![node(0, 0, 90), node(1, 1, 250), node(2, 1, 250)]);
        let views = Views::new(&tiers, &[NodeId(0)], &[]);
        let places = Places::new(&tiers, &views);
        assert_eq!(
            (places.len(), places.nodes(1)),
            (2, &[NodeId(1), NodeId(2)][..])
        );
        assert_eq!(
            (places.only_node(0), places.only_node(1)),
            (Some(NodeId(0)), None)
        );
        assert_eq!((places.of(NodeId(2)), places.of(NodeId(9))), (1, 1));
    }

    #[test]
    fn sockets_tell_their_nodes_apart_unless_there_are_too_many() {
        for (sockets, places) in [(2, 2), (8, 8), (9, 1)] {
            let tiers = Tiers::new((0..sockets).map(|id| node(id, 0, 90)).collect());
            let from: Vec<NodeId> = (0..sockets).map(NodeId).collect();
            let way = |from: NodeId, to: NodeId| AccessPath {
                from,
                to,
                distance: Some(if from == to { 10 } else { 21 }),
                ..AccessPath::default()
            };
            let pairs = from.iter().flat_map(|a| from.iter().map(|b| way(*a, *b)));
            let paths: Vec<AccessPath> = pairs.collect();
            let views = Views::new(&tiers, &from, &paths);
            assert_eq!(
                Places::new(&tiers, &views).len(),
                places,
                "{sockets} sockets"
            );
        }
    }

    #[test]
    fn a_page_is_where_it_was_put() {
        let mut spread = Spread::default();
        for page in 0..512 {
            spread.put(&PageBits::one(page), page * 7 % PLACES);
        }
        for place in 0..PLACES {
            let pages: Vec<usize> = spread.of(place, &PageBits::ALL).pages().collect();
            let slow: Vec<usize> = (0..512).filter(|page| page * 7 % PLACES == place).collect();
            assert_eq!(pages, slow);
        }
        let mut other = spread.clone();
        other.put(&PageBits::one(9), 63 % PLACES);
        assert!(spread.differs(&other).is_empty());
        other.put(&PageBits::one(9), 5);
        assert_eq!(spread.differs(&other), PageBits::one(9));
        assert_eq!(other.get(9), 5);
    }
}
