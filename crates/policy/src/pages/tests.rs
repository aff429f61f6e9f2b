// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Pages`] against a map that does the same the slow way.

use std::collections::BTreeMap;

use proptest::prelude::*;
use terrace_core::PageSize;

use super::*;

fn page(addr: u64) -> PageRef {
    PageRef {
        pid: Pid(1),
        addr: Addr(addr),
        size: PageSize::Base4K,
    }
}

/// Everything known, by process and address.
#[derive(Debug, Default)]
struct Reference {
    pages: BTreeMap<(Pid, Addr, PageSize), Meta>,
}

const fn bounds(page: PageRef) -> Range {
    Range {
        start: page.addr,
        end: Addr(page.addr.0 + page.size.bytes()),
    }
}

const fn overlap(a: Range, b: Range) -> bool {
    a.start.0 < b.end.0 && b.start.0 < a.end.0
}

impl Reference {
    fn forget(&mut self, of: Pid, range: Range) {
        self.pages.retain(|&(pid, addr, size), _| {
            pid != of || !overlap(bounds(PageRef { pid, addr, size }), range)
        });
    }

    fn update(&mut self, page: PageRef, node: NodeId, now: Nanos) {
        self.pages.retain(|&(pid, addr, size), _| {
            pid != page.pid
                || size == page.size
                || !overlap(bounds(PageRef { pid, addr, size }), bounds(page))
        });
        let key = (page.pid, page.addr, page.size);
        change(self.pages.entry(key).or_default(), node, now);
    }

    fn get(&self, page: PageRef) -> Option<Meta> {
        let larger = [PageSize::Base4K, PageSize::Huge2M, PageSize::Giant1G];
        let sizes = larger.into_iter().filter(|size| *size >= page.size);
        let mut at = sizes.map(|size| (page.pid, page.addr.align_down(size), size));
        at.find_map(|key| self.pages.get(&key)).copied()
    }
}

fn change(meta: &mut Meta, node: NodeId, now: Nanos) {
    meta.set_node(node);
    meta.touch(now);
    meta.idle_class = now.0.to_le_bytes()[3];
}

#[derive(Debug, Clone)]
enum Step {
    Update(PageRef, NodeId),
    Change(PageRef, NodeId),
    Forget(Pid, Range),
    ForgetProcess(Pid),
}

/// Addresses at the borders of spans and chunks, in two neighbourhoods.
fn address() -> impl Strategy<Value = u64> {
    (
        prop_oneof![Just(0_u64), Just(1 << 40)],
        0_u64..4,
        0_u64..3,
        0_u64..4,
    )
        .prop_map(|(base, span, chunk, page)| {
            base + (span << 30) + ((chunk * 255 + chunk / 2) << 21) + ((page * 170) << 12)
        })
}

fn pages() -> impl Strategy<Value = PageRef> {
    let size = prop_oneof![
        6 => Just(PageSize::Base4K),
        3 => Just(PageSize::Huge2M),
        1 => Just(PageSize::Giant1G),
    ];
    (0_u32..3, address(), size).prop_map(|(pid, addr, size)| PageRef {
        pid: Pid(pid),
        addr: Addr(addr).align_down(size),
        size,
    })
}

fn steps() -> impl Strategy<Value = Step> {
    let node = || (0_u16..3).prop_map(NodeId);
    let length = prop_oneof![
        1_u64..8,
        500_u64..1500,
        Just(1_u64 << 18),
        (1_u64 << 18)..(1 << 20)
    ];
    prop_oneof![
        8 => (pages(), node()).prop_map(|(page, node)| Step::Update(page, node)),
        3 => (pages(), node()).prop_map(|(page, node)| Step::Change(page, node)),
        2 => (0_u32..3, address(), length).prop_map(|(pid, start, pages)| Step::Forget(
            Pid(pid),
            Range { start: Addr(start), end: Addr(start + (pages << 12)) },
        )),
        1 => (0_u32..3).prop_map(|pid| Step::ForgetProcess(Pid(pid))),
    ]
}

/// No page is colder than its chunk's bound, and every page's chunk is listed.
fn check_ranks(pages: &Pages) -> Result<(), TestCaseError> {
    for node in (0..3).map(NodeId) {
        let mut listed = 0;
        for (place, rank) in pages.ranks(node) {
            for (_, meta) in pages.chunk(place).filter(|(_, m)| m.node() == Some(node)) {
                listed += 1;
                prop_assert!(rank.oldest <= meta.last_ref);
                prop_assert!(rank.coldest >= meta.idle_class);
                prop_assert!(rank.shadow || !meta.shadow());
            }
        }
        let all = pages.iter().filter(|(_, m)| m.node() == Some(node)).count();
        prop_assert_eq!(listed, all);
    }
    Ok(())
}

proptest! {
    /// Whatever happens, the table knows what a plain map knows, in the same order, and the ranks
    /// bound it.
    #[test]
    fn does_what_a_map_does(script in prop::collection::vec(steps(), 1..120), probes in prop::collection::vec(pages(), 8)) {
        let mut pages = Pages::default();
        let mut reference = Reference::default();
        for (n, step) in (1_u64..).zip(&script) {
            let now = Nanos(n << 25);
            match *step {
                Step::Update(page, node) => {
                    pages.update(page, |meta| change(meta, node, now));
                    reference.update(page, node, now);
                }
                Step::Change(page, node) => {
                    // Only a known page is changed.
                    if pages.get(page).is_some_and(Meta::is_known) {
                        let found = reference.get(page);
                        prop_assert!(found.is_some(), "{page:?} should not be known");
                        pages.change(page, |meta| change(meta, node, now));
                        let sizes = [PageSize::Base4K, PageSize::Huge2M, PageSize::Giant1G];
                        let key = sizes
                            .into_iter()
                            .filter(|size| *size >= page.size)
                            .map(|size| (page.pid, page.addr.align_down(size), size))
                            .find(|key| reference.pages.contains_key(key));
                        change(reference.pages.get_mut(&key.unwrap()).unwrap(), node, now);
                    }
                }
                Step::Forget(pid, range) => {
                    pages.forget(pid, range);
                    reference.forget(pid, range);
                }
                Step::ForgetProcess(pid) => {
                    pages.forget_process(pid);
                    reference.pages.retain(|(p, _, _), _| *p != pid);
                }
            }
            check_ranks(&pages)?;
        }
        let got: Vec<_> = pages.iter().map(|(p, m)| ((p.pid, p.addr, p.size), *m)).collect();
        let want: Vec<_> = reference.pages.iter().map(|(k, m)| (*k, *m)).collect();
        prop_assert_eq!(got, want);
        for page in probes {
            let known = pages.get(page).copied().filter(Meta::is_known);
            prop_assert_eq!(known, reference.get(page), "{:?}", page);
        }
    }

    /// Forgetting a range forgets its pages and no other.
    #[test]
    fn forget_is_exact(start in 0_u64..1200, len in 1_u64..1200, seen in prop::collection::btree_set(0_u64..2400, 0..60)) {
        let mut pages = Pages::default();
        for n in &seen {
            pages.update(page(n << 12), |meta| meta.set_node(NodeId(0)));
        }
        let range = Range { start: Addr(start << 12), end: Addr((start + len) << 12) };
        pages.forget(Pid(1), range);
        let left: Vec<u64> = pages.iter().map(|(p, _)| p.addr.0 >> 12).collect();
        let want: Vec<u64> = seen.into_iter().filter(|n| !range.contains(Addr(n << 12))).collect();
        prop_assert_eq!(left, want);
    }
}

#[test]
fn eight_bytes_a_page_and_little_more() {
    let mut pages = Pages::default();
    let count = 1_u64 << 20;
    for n in 0..count {
        let node = NodeId(u16::from(n % 2 == 0));
        pages.update(page(n << 12), |meta| meta.set_node(node));
    }
    let of_one = pages.bytes() * 100 / count;
    assert!(
        (800..816).contains(&of_one),
        "{of_one} hundredths of a byte"
    );
    // All of it comes back.
    let end = Addr(count << 12);
    let range = Range {
        start: Addr(0),
        end,
    };
    pages.forget(Pid(1), range);
    assert_eq!(pages.bytes(), 0);
}

#[test]
fn looking_makes_a_bound_exact() {
    let mut pages = Pages::default();
    for n in 0..512 {
        pages.update(page(n << 12), |meta| {
            change(meta, NodeId(0), Nanos(n << 24))
        });
    }
    // Its oldest page is seen again.
    pages.update(page(0), |meta| change(meta, NodeId(0), Nanos(600 << 24)));
    let (place, rank) = pages.ranks(NodeId(0)).next().unwrap();
    assert_eq!(rank.oldest, 0);
    let mut seen = 0;
    let exact = pages.look(place, NodeId(0), |_| seen += 1);
    assert_eq!((exact.oldest, seen), (1, 512));
    // All leave the node: the chunk is not listed any more once looked at.
    for n in 0..512 {
        pages.change(page(n << 12), |meta| meta.set_node(NodeId(1)));
    }
    pages.look(place, NodeId(0), |_| unreachable!("no page is there"));
    assert_eq!(pages.ranks(NodeId(0)).count(), 0);
    assert_eq!(pages.ranks(NodeId(1)).count(), 1);
}
