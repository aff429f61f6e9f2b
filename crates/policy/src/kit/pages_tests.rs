// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages and their numbers.

use super::*;

impl Own for () {
    fn forget(&mut self, _: &PageBits) {}
}

#[test]
fn pages_are_found_by_their_numbers_until_they_are_gone() {
    let mut pages = Pages::<()>::default();
    let key = (Pid(3), 5);
    let page = page_of(key, 7, PageSize::Base4K);
    assert_eq!(split(page), (key, 7));
    pages.get_or_new(key, false, Nanos(1)).place(7, NodeId(0));
    let node = NodeId(0);
    let unit = pages.unit(node, key, 7);
    assert_eq!(pages.of_unit(node, unit), Some(page));
    assert_eq!(pages.of_unit(NodeId(1), unit), None, "that is another's");
    assert!(pages.find(page).is_some());
    let huge = page_of(key, 0, PageSize::Huge2M);
    assert!(pages.find(huge).is_none(), "not in that size");
    pages.get_mut(key).expect("known").place(7, NodeId(1));
    assert_eq!(pages.get(key).expect("known").node(7), Some(NodeId(1)));
    let range = Range {
        start: page.addr,
        end: Addr(page.addr.0 + 4096),
    };
    let within = pages.within(Pid(3), range);
    assert_eq!(within.len(), 1);
    assert_eq!(within[0].1.pages().collect::<Vec<_>>(), [7]);
    pages.forget(key, &within[0].1);
    assert!(pages.get(key).is_none() && pages.of_unit(node, unit).is_none());
    // The numbers are given again.
    pages.get_or_new((Pid(3), 4), false, Nanos(1));
    pages.get_or_new((Pid(3), 6), false, Nanos(1));
    assert!(pages.get(key).is_none(), "another has its place");
    let keys: Vec<Key> = pages.all().map(|(key, _)| key).collect();
    assert_eq!(keys, [(Pid(3), 4), (Pid(3), 6)]);
    assert_eq!(pages.unit(node, (Pid(3), 6), 7), unit);
}
