// SPDX-License-Identifier: MIT OR Apache-2.0
//! Demotion by generations (MGLRU, mm/vmscan.c of Linux 6.12) as the kernel's tiering has it: what wakes it, what it
//! knows, where it ends. What it does with its generations has tests beside it.

use std::collections::VecDeque;

use terrace_policy::Action;
use terrace_policy::Event;
use terrace_policy::Verdict;

use crate::machine::DEMOTE;
use crate::machine::FAST;
use crate::machine::HIGH;
use crate::machine::Kernel;
use crate::machine::LOW;
use crate::machine::MOVED;
use crate::machine::PAGE;
use crate::machine::PAGES;
use crate::machine::PROMO;
use crate::machine::PROMOTE;
use crate::machine::demotes;

/// All pages up to that one are on the first socket.
fn kernel(resident: u32) -> Kernel {
    let mut kernel = Kernel::new("kernel-tiering", &[]);
    assert!(kernel.tick().contains(&Action::Inventory), "it asks");
    for unit in 0..resident {
        let page = kernel.page(unit);
        kernel.observe(&Event::Resident { page, node: FAST });
    }
    kernel
}

/// Ticks in which no page was accessed and all demotions end so; how many there were.
fn demoted(kernel: &mut Kernel, verdict: Verdict) -> u64 {
    let mut count = 0;
    for _ in 0..20 {
        let mut wanted = VecDeque::from(kernel.tick());
        while let Some(action) = wanted.pop_front() {
            match action {
                Action::ProbeRange { page, pages, .. } => {
                    let first = u32::try_from((page.addr.0 - kernel.page(0).addr.0) / PAGE)
                        .expect("a page of few");
                    for unit in first..first + pages {
                        kernel.observe(&Event::Probed {
                            page: kernel.page(unit),
                            node: FAST,
                            accessed: false,
                        });
                    }
                }
                Action::Migrate { page, .. } if demotes(&action) => {
                    count += 1;
                    let unit = (page.addr.0 - kernel.page(0).addr.0) / PAGE;
                    let unit = u32::try_from(unit).expect("a page of few");
                    kernel.ended(unit, DEMOTE, verdict);
                }
                _ => {}
            }
            wanted.extend(kernel.drain());
        }
    }
    count
}

/// Below low, or by a promotion without room (`migrate_misplaced_folio_prepare`), and up to promo, in batches of 64
/// (`pgdat_balanced`, `MIN_LRU_BATCH`). All pages are young at first: without aging none could go.
#[test]
fn it_is_woken_as_the_lists_are_and_ends_at_promo() {
    for (free, promotion, wakes) in [
        (LOW - PAGE, false, true),
        (LOW + PAGE, false, false),
        (HIGH, false, false),
        (HIGH, true, true),
        (PROMO, true, false),
    ] {
        let mut kernel = kernel(PAGES);
        kernel.free(free);
        if promotion {
            let _ = kernel.fault(1, 1);
        }
        let count = demoted(&mut kernel, MOVED);
        let wanted = if wakes { (PROMO - free) / PAGE } else { 0 };
        let batch = if wakes { 64 } else { 1 };
        assert!((wanted..wanted + batch).contains(&count), "{free} {count}");
    }
}

/// A promoted page is among its pages, and one that could not be demoted again. (Of the last page nothing is left to
/// look at, `total >> priority`.)
#[test]
fn it_knows_what_came_and_what_stayed() {
    const CAME: u32 = 256;
    let mut kernel = kernel(0);
    let reclaims = |kernel: &mut Kernel, verdict| {
        kernel.free(LOW - PAGE);
        demoted(kernel, verdict)
    };
    for (verdict, some) in [(Verdict::Busy, false), (MOVED, true)] {
        (0..CAME).for_each(|unit| kernel.ended(unit, PROMOTE, verdict));
        let count = reclaims(&mut kernel, Verdict::Busy);
        assert_eq!(count > 0, some, "{verdict:?}");
    }
    let count: u64 = (0..20).map(|_| reclaims(&mut kernel, MOVED)).sum();
    assert!(
        (u64::from(CAME) - 1..=u64::from(CAME)).contains(&count),
        "{count}"
    );
}
