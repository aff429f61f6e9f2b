// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buckets as Table 2 and section 4 have them, and the overlap of maps that are plain to see.

use super::*;

const B: usize = 28;

#[test]
fn buckets_are_octaves_of_milliseconds() {
    let ms = |n| bucket(Nanos::from_millis(n), B);
    assert_eq!(bucket(Nanos(999_999), B), 0);
    assert_eq!([0, 1, 2, 3, 4, 7, 8].map(ms), [0, 1, 2, 2, 3, 3, 4]);
    assert_eq!(ms(1 << 26), 27);
    assert_eq!(ms(1 << 40), 27, "nothing is above the last");
    assert_eq!(bucket(Nanos::from_secs(1), 4), 3);
}

#[test]
fn a_huge_page_is_512_base_pages_nine_buckets_on() {
    let idle = Nanos::from_millis(3);
    let base = as_base(idle, PageSize::Huge2M);
    assert_eq!(bucket(base, B), bucket(idle, B) + 9);
    let giant = as_base(idle, PageSize::Giant1G);
    assert_eq!(bucket(giant, B), bucket(idle, B) + 18);
    assert_eq!(as_base(Nanos::MAX, PageSize::Giant1G), Nanos::MAX);
    // The threshold of 2 MiB is a 512th.
    let threshold = Nanos::from_millis(1024);
    let below = |idle| as_base(idle, PageSize::Huge2M) < threshold;
    assert!(below(Nanos(1_999_999)) && !below(Nanos(2_000_000)));
}

fn map(filled: &[(usize, f64)]) -> HeatMap {
    let mut map = HeatMap::new(B);
    for (bucket, pages) in filled {
        map.pages[*bucket] = *pages;
    }
    map
}

#[test]
fn what_is_in_order_overlaps_nowhere() {
    let placed = overlap(&map(&[(3, 100.0)]), &map(&[(9, 300.0)]), 0.0).expect("pages");
    assert!(placed.misplaced.abs() < 1e-9, "{placed:?}");
    assert_eq!(placed.all.to_bits(), 400_f64.to_bits());
    // The cut is where the fast tier's pages end.
    assert!(placed.cut >= Nanos::from_millis(8) && placed.cut <= Nanos::from_millis(256));
    assert_eq!(overlap(&map(&[]), &map(&[]), 9.0), None);
}

#[test]
fn as_many_come_up_as_go_down_or_have_room() {
    // 40 of the fast tier's 100 are cold, 40 of the slow tier's are hot.
    let (fast, slow) = (
        map(&[(3, 60.0), (12, 40.0)]),
        map(&[(3, 40.0), (12, 260.0)]),
    );
    let found = overlap(&fast, &slow, 0.0).expect("pages");
    assert!((found.misplaced - 40.0).abs() < 1e-9, "{found:?}");
    assert_eq!(found.cut, Nanos::from_millis(8), "the end of bucket 3");
    // With room for 26 more a tenth of the cold ones may come, too.
    let found = overlap(&fast, &slow, 30.0).expect("pages");
    assert!((found.misplaced - (40.0 + 26.0)).abs() < 1e-9, "{found:?}");
    let part = (found.cut.as_secs_f64() * 1e3).log2() - 11.0;
    assert!((part - 0.1).abs() < 1e-6, "{part}");
    // With room for all everything is hot.
    let found = overlap(&fast, &slow, 301.0).expect("pages");
    assert_eq!(found.cut, COARSEST);
    assert!((found.misplaced - 300.0).abs() < 1e-9);
}

#[test]
fn thresholds_stay_within_the_levels() {
    let found = overlap(&map(&[]), &map(&[(0, 10.0)]), 0.0).expect("pages");
    assert_eq!(found.cut, FINEST);
    let found = overlap(&map(&[(27, 9.0)]), &map(&[(27, 1.0)]), 0.0).expect("pages");
    assert!(found.cut <= COARSEST);
}
