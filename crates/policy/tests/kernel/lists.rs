// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion by the two lists (mm/vmscan.c before MGLRU): what wakes it, how much it looks at, what goes, where it ends.

use terrace_core::PageSize;
use terrace_policy::KernelView;
use terrace_policy::Verdict;

use crate::machine::DEMOTE;
use crate::machine::GIB;
use crate::machine::HIGH;
use crate::machine::Kernel;
use crate::machine::LOW;
use crate::machine::MIB;
use crate::machine::MOVED;
use crate::machine::OTHER;
use crate::machine::PAGE;
use crate::machine::PROMO;
use crate::machine::PROMOTE;
use crate::machine::TOTAL;

/// What is demoted, of pages that are accessed between looks or not.
#[test]
fn the_two_lists_demote_what_is_not_accessed_and_keep_what_is() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert!(tpp.demotes_at(TOTAL / 20));
    assert!(tpp.probe(1, false));
    assert!(!tpp.probe(2, true), "it gets another round");
    assert!(tpp.probe(2, false), "and was not accessed in it");
    assert!(!tpp.probe(3, true) && !tpp.probe(3, true), "active");
    assert!(!tpp.probe(3, false), "active pages are left alone");
}

/// The promo watermark is as far above high as high is above low; only a promotion without room wakes who demotes.
#[test]
fn kernel_tiering_demotes_up_to_the_promo_watermark() {
    let mut kernel = Kernel::new("kernel-tiering", &[("mglru", "false")]);
    assert!(!kernel.demotes_at(HIGH), "not by itself");
    let _ = kernel.fault(1, 1);
    assert!(kernel.demotes_at(PROMO - PAGE));
    assert!(!kernel.demotes_at(PROMO));
    assert!(!kernel.demotes_at(PROMO - PAGE), "it sleeps");
    assert!(
        kernel.demotes_at(LOW - PAGE),
        "what wakes it for any allocation"
    );
}

/// `get_page_from_freelist` asks for the low watermark (`ALLOC_WMARK_LOW`); where it is not met, `wake_all_kswapds`.
#[test]
fn memory_below_the_low_watermark_wakes_it_and_no_other() {
    for (free, expected) in [
        (PROMO - PAGE, false),
        (HIGH - PAGE, false),
        (LOW + PAGE, false),
        (LOW - PAGE, true),
    ] {
        let mut kernel = Kernel::new("kernel-tiering", &[("mglru", "false")]);
        assert_eq!(kernel.demotes_at(free), expected, "{free}");
    }
}

/// What is on its way counts as free, and what could not be moved does not: nothing is demoted beyond the mark.
#[test]
fn it_demotes_as_much_as_is_wanted() {
    let mut tpp = Kernel::new("tpp", &[("demote_scale_factor", "1")]);
    assert!(tpp.demotes_at(2 * HIGH - 2 * PAGE));
    assert!(tpp.probe(1, false) && tpp.probe(2, false));
    assert!(!tpp.probe(3, false), "that was all");
    tpp.ended(1, DEMOTE, Verdict::Busy);
    assert!(tpp.probe(3, false), "in its place");
    tpp.ended(2, DEMOTE, MOVED);
    assert!(!tpp.probe(4, false));
}

/// Each socket has a `kswapd` of its own, and demotions of its own under way.
#[test]
fn a_socket_counts_its_own_demotions() {
    let mut tpp = Kernel::new("tpp", &[("demote_scale_factor", "1")]);
    tpp.free_on(OTHER, 2 * HIGH - PAGE);
    for unit in 1..3 {
        assert!(tpp.probe_on(OTHER, unit, false), "{unit}");
        tpp.ended_from(Some(OTHER), unit, DEMOTE, Verdict::Busy);
    }
}

/// `balance_pgdat` and `kswapd_shrink_node` (Linux 5.13): a round looks at `pages >> priority`, from `DEF_PRIORITY`,
/// 12, to 1. The priority falls where that was less than high has, 1,536 pages, or nothing was freed.
#[test]
fn a_round_looks_at_more_where_the_last_one_did_too_little() {
    let mut tpp = Kernel::new("tpp", &[]);
    for wakes in 0..2 {
        for (round, expected) in [64, 128, 256, 512, 1_024, 2_048, 2_048].iter().enumerate() {
            assert_eq!(tpp.looks_at(TOTAL / 20), *expected, "{wakes} {round}");
            assert!(tpp.probe(u32::try_from(round).expect("few"), false));
        }
        // The last one freed a page, those from here on do not.
        let last = (0..9).map(|_| tpp.looks_at(TOTAL / 20)).collect::<Vec<_>>();
        assert_eq!(last[..3], [2_048, 4_096, 8_192]);
        assert_eq!(last[7..], [131_072, 131_072]);
        assert_eq!(tpp.looks_at(TOTAL / 2), 0, "it sleeps");
    }
}

/// A thread looks at so many pages as its time is enough for: 10 ms at 100 us each.
#[test]
fn a_round_takes_one_thread_its_time() {
    let view = KernelView {
        look_ns: 100_000.0,
        ..KernelView::default()
    };
    let mut tpp = Kernel::with_view("tpp", &[], PageSize::Base4K, view);
    let rounds: Vec<u32> = (0..4).map(|_| tpp.looks_at(TOTAL / 20)).collect();
    assert_eq!(rounds.iter().max(), Some(&100), "{rounds:?}");
}

/// `inactive_is_low`: an active page is left alone until more than `int_sqrt(10 * gb)` times as many are active as
/// are not, with the GiB of both, and 1 below one (the table above that function has 3 at 1 GiB).
#[test]
fn active_pages_become_inactive_when_there_are_too_many() {
    const HUGE: u64 = 2 * MIB;
    for (used, ratio) in [
        (GIB - 2 * MIB, 1),
        (GIB, 3),
        (2 * GIB, 4),
        (4 * GIB, 6),
        (7 * GIB, 8),
    ] {
        let mut tpp = Kernel::with_pages("tpp", &[], PageSize::Huge2M);
        let (free, pages) = (32 * MIB, used / HUGE);
        tpp.total = used + free;
        assert!(tpp.demotes_at(free));
        let most = u32::try_from(pages * ratio / (ratio + 1)).expect("few");
        for unit in 0..most {
            assert!(!tpp.probe(unit, true) && !tpp.probe(unit, true));
        }
        assert!(!tpp.probe(0, false) && !tpp.probe(0, false), "{used}");
        assert!(!tpp.probe(most, true) && !tpp.probe(most, true));
        // It is looked at twice: it becomes inactive first.
        assert!(!tpp.probe(0, false) && tpp.probe(0, false), "{used}");
    }
}

/// `mark_page_accessed` has made a page active that TPP promotes: it is one when it comes (`lru_cache_add`).
#[test]
fn what_tpp_promotes_comes_as_an_active_page() {
    for (promoted, expected) in [(20, false), (21, true)] {
        let mut tpp = Kernel::new("tpp", &[]);
        // All of the node's 40 pages are used.
        tpp.total = 40 * PAGE;
        assert!(tpp.demotes_at(0));
        for unit in 0..promoted {
            let _ = tpp.access(unit);
            tpp.ended(unit, PROMOTE, MOVED);
        }
        let demoted = tpp.probe(0, false) || tpp.probe(0, false);
        assert_eq!(demoted, expected, "{promoted} of 40 are active");
    }
}
