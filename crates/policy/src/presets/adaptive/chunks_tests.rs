// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pages come, move and go, and are counted.

use proptest::prelude::*;
use terrace_core::Addr;
use terrace_core::PageSize;

use super::*;
use crate::presets::adaptive::classes::rate_of;
use crate::presets::adaptive::places::PLACES;

const PID: Pid = Pid(3);

/// Where the page is, if it is in memory, in that size; and where it first was.
fn lies(chunks: &Chunks, page: PageRef) -> Option<(Place, Place)> {
    let (key, index) = split(page);
    let chunk = chunks.get(key)?;
    let home = chunk.home().unwrap_or(&chunk.spread);
    let there = chunk.size() == page.size && chunk.present.get(index);
    there.then(|| (chunk.spread.get(index), home.get(index)))
}

#[test]
fn pages_come_move_and_go() {
    let mut chunks = Chunks::default();
    chunks.place((PID, 5), (false, 0), (PageBits::ALL, Spread::default()));
    let page = page_of((PID, 5), 7, PageSize::Base4K);
    assert_eq!(split(page), ((PID, 5), 7));
    assert_eq!(lies(&chunks, page), Some((0, 0)));
    let of = ((PID, 5), PageSize::Base4K);
    chunks.moved(of, &PageBits::one(7), 6);
    assert_eq!(lies(&chunks, page), Some((6, 0)));
    assert_eq!(lies(&chunks, page_of((PID, 5), 8, of.1)), Some((0, 0)));
    let huge = page_of((PID, 5), 0, PageSize::Huge2M);
    assert_eq!(lies(&chunks, huge), None, "not in that size");
    chunks.unmapped(
        PID,
        Range {
            start: page.addr,
            end: Addr(page.addr.0 + 4096),
        },
    );
    assert_eq!(lies(&chunks, page), None);
    let all = Range {
        start: Addr(0),
        end: Addr(u64::MAX),
    };
    chunks.unmapped(PID, all);
    assert_eq!(chunks.bytes(), 0);
}

#[test]
fn a_chunk_that_is_not_told_of_is_forgotten() {
    let mut chunks = Chunks::default();
    chunks.place((PID, 1), (false, 4), (PageBits::ALL, Spread::default()));
    chunks.expire(Pid(9), 60);
    chunks.expire(PID, 6);
    assert!(chunks.bytes() > 0);
    chunks.expire(PID, 7);
    assert_eq!(chunks.bytes(), 0);
}

#[test]
fn a_huge_page_is_as_hot_as_its_hottest_part_and_a_part_has_a_512th() {
    let mut chunk = Chunk::new(false, 0);
    chunk.levels[9] = 80;
    chunk.remap(true, 3);
    assert_eq!(chunk.levels[0], 80);
    chunk.remap(false, 4);
    let part = rate_of(chunk.levels[500]);
    assert!((part * 512.0 / rate_of(80) - 1.0).abs() < 1e-9);
}

/// Each page counted.
fn counted(chunks: &Chunks) -> Counts {
    let mut counts = Counts::new();
    for (key, chunk) in &chunks.all {
        let census = counts.entry(part(*key, chunk)).or_default();
        for page in chunk.present.pages() {
            let side = &mut census.0[usize::from(chunk.huge)];
            let side = &mut side[chunk.spread.get(page)];
            let base_pages = if chunk.huge { 512 } else { 1 };
            side[usize::from(chunk.levels[page]) / 2] += base_pages;
            census.1[usize::from(chunk.huge)] += base_pages;
        }
    }
    counts
}

/// Of who has any.
fn with_pages(mut counts: Counts) -> Counts {
    counts.retain(|_, census| *census != Census::default());
    counts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever happens to pages, they are counted as if they were gone through.
    #[test]
    fn the_census_is_what_going_through_all_pages_gives(
        steps in prop::collection::vec((0_u8..10, 0_u64..3, 0_usize..512, any::<bool>(), any::<u8>()), 0..60),
    ) {
        let (mut chunks, mut pass) = (Chunks::default(), 0);
        for (what, number, index, yes, level) in steps {
            let key = (PID, number);
            let size = if yes { PageSize::Huge2M } else { PageSize::Base4K };
            let page = page_of(key, if yes { 0 } else { index }, size);
            let mut some = PageBits::ALL;
            (0..index).for_each(|page| some.clear(page));
            let range = Range { start: page.addr, end: Addr(page.addr.0 + 9 * 4096) };
            match what {
                0..=2 => {
                    let mut one = PageBits::NONE;
                    one.set(0);
                    let pages = if yes { one } else { some };
                    let mut spread = Spread::default();
                    spread.put(&pages, usize::from(level) % PLACES);
                    let (chunk, census) = chunks.place(key, (yes, pass), (pages, spread));
                    let page = if yes { 0 } else { index };
                    let from = chunk.levels[page];
                    chunk.levels[page] = level;
                    census.step((yes, usize::from(level) % PLACES), size.base_pages(), [from, level]);
                }
                3 => {
                    let moved = if yes { PageBits::one(0) } else { some };
                    chunks.moved((key, size), &moved, usize::from(level) % PLACES);
                }
                4 => chunks.lost(page),
                5 => chunks.unmapped(PID, range),
                6 => pass += 1,
                7 => chunks.expire(PID, pass),
                8 => (0..4).for_each(|_| {
                    chunks.accessed(key, (index % 3, 3));
                }),
                _ if index == 0 => chunks.gone(PID),
                _ => chunks.begin_anew(PID, pass),
            }
            let kept = with_pages(chunks.census().clone());
            prop_assert!(kept == with_pages(counted(&chunks)));
        }
    }
}
