// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which faults the kernel's tiering promotes at (`should_numa_migrate_memory`, Linux 6.12).

use terrace_core::Nanos;
use terrace_core::PageSize;

use crate::machine::GIB;
use crate::machine::HIGH;
use crate::machine::Kernel;
use crate::machine::PAGE;
use crate::machine::PAGES;
use crate::machine::PROMO;
use crate::machine::SLOW;
use crate::machine::TOTAL;

#[test]
fn kernel_tiering_promotes_by_latency_and_all_while_there_is_plenty() {
    let plenty = 2 * TOTAL;
    let mut kernel = Kernel::new("kernel-tiering", &[("hot_threshold", "1s")]);
    // The first fault that counts moves the threshold by an eighth: far fewer candidates than the limit.
    kernel.free(TOTAL / 2);
    assert!(kernel.promotes(1, 1_124));
    assert!(!kernel.promotes(2, 1_126));
    kernel.free(plenty);
    assert!(kernel.promotes(2, 60_000));
    kernel.free(HIGH);
    assert!(!kernel.promotes(3, 1), "no room above high");
}

/// `pgdat_free_space_enough`: 1 GiB or a sixteenth of the node, whichever is more, above the promo watermark.
#[test]
fn plenty_is_a_gib_or_a_sixteenth_of_the_node_above_promo() {
    for (total, enough) in [
        (2 * GIB, GIB),
        (16 * GIB, GIB),
        (24 * GIB, 3 * GIB / 2),
        (64 * GIB, 4 * GIB),
    ] {
        for (free, expected) in [(PROMO + enough, false), (PROMO + enough + PAGE, true)] {
            let mut kernel = Kernel::new("kernel-tiering", &[]);
            kernel.total = total;
            kernel.free(free);
            assert_eq!(kernel.promotes(1, 60_000), expected, "{total} {free}");
        }
    }
}

/// `nbp_threshold = 0` where there is plenty: the next threshold is the default again.
#[test]
fn plenty_makes_it_forget_its_threshold() {
    let mut kernel = Kernel::new("kernel-tiering", &[]);
    assert!(kernel.promotes(1, 1_124), "an eighth more than 1 s");
    kernel.free(2 * TOTAL);
    assert!(kernel.promotes(2, 60_000));
    kernel.free(TOTAL / 2);
    assert!(!kernel.promotes(3, 1_000));
    assert!(kernel.promotes(4, 999));
}

/// `numa_hint_fault_latency` of a page that no scan has marked is since ever.
#[test]
fn a_page_that_was_not_seen_marked_is_not_promoted() {
    let mut kernel = Kernel::new("kernel-tiering", &[]);
    assert!(kernel.fault_from(1, SLOW, None, None).is_empty());
}

/// `numa_promotion_rate_limit`: less than the limit in a second, counted from the first candidate after the last one.
#[test]
fn kernel_tiering_promotes_no_more_than_its_rate_limit() {
    let mut kernel = Kernel::new("kernel-tiering", &[("promote_rate_limit_mbps", "1")]);
    kernel.free(TOTAL / 2);
    kernel.now = Nanos::from_secs(5);
    let promoted = |kernel: &mut Kernel, faults| {
        (0..faults)
            .filter(|n| kernel.promotes(n % PAGES, 1))
            .count()
    };
    // A page less than 1 MiB, as the first is what the second is measured from.
    assert_eq!(promoted(&mut kernel, 1_000), 256);
    kernel.now = kernel.now + Nanos::from_millis(1_000);
    assert_eq!(promoted(&mut kernel, 1_000), 0, "it is the same second");
    kernel.now = kernel.now + Nanos::from_millis(1);
    assert_eq!(promoted(&mut kernel, 1_000), 256);
    let mut zero = Kernel::new("kernel-tiering", &[("promote_rate_limit_mbps", "0")]);
    assert_eq!(promoted(&mut zero, 1_000), 0);
    // Huge pages count with all their memory. By default 64 GiB a second are let through.
    for (params, expected) in [(&[("promote_rate_limit_mbps", "8")][..], 4), (&[], 32_768)] {
        let mut huge = Kernel::with_pages("kernel-tiering", params, PageSize::Huge2M);
        huge.now = Nanos::from_secs(5);
        assert_eq!(promoted(&mut huge, 40_000), expected, "{params:?}");
    }
}
