// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules of the presets that stand for a kernel's tiering, each by the faults and samples that set it off: here
//! which fault promotes, where to, and where there must be room; beside it when demotion begins and what goes.

#[path = "kernel/generations.rs"]
mod generations;
#[path = "kernel/lists.rs"]
mod lists;
#[path = "kernel/machine.rs"]
mod machine;
#[path = "kernel/scanning.rs"]
mod scanning;
#[path = "kernel/tiering.rs"]
mod tiering;

use machine::DEMOTE;
use machine::FAST;
use machine::HIGH;
use machine::Kernel;
use machine::MIB;
use machine::MOVED;
use machine::OTHER;
use machine::PAGE;
use machine::PROMO;
use machine::PROMOTE;
use machine::SLOW;
use machine::TOTAL;
use terrace_core::Nanos;
use terrace_core::PageSize;
use terrace_policy::Action;
use terrace_policy::Migration;

#[test]
fn tpp_promotes_an_inactive_page_at_its_fifteenth_fault_of_one_access() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert_eq!(tpp.access(3), (15, true));
    assert_eq!(tpp.access(4), (15, true), "each page");
    let mut source = Kernel::new("tpp", &[("promotion_faults", "31")]);
    assert_eq!(source.access(3), (31, true));
}

#[test]
fn tpp_promotes_an_active_page_and_a_huge_one_at_the_first_fault() {
    let mut tpp = Kernel::new("tpp", &[]);
    tpp.free(HIGH);
    assert_eq!(tpp.access(3), (15, false), "no room above high");
    tpp.free(HIGH + PAGE);
    assert_eq!(tpp.access(3), (1, true), "it is active since");
    tpp.ended(3, DEMOTE, MOVED);
    assert_eq!(tpp.access(3), (15, true), "inactive ones are demoted");
    let mut huge = Kernel::with_pages("tpp", &[], PageSize::Huge2M);
    assert_eq!(huge.access(1), (1, true));
}

#[test]
fn tpp_demotes_below_a_tenth_of_the_node_and_arms_what_it_demotes() {
    let mut tpp = Kernel::new("tpp", &[]);
    assert!(tpp.policy.machine_options().arms_demoted);
    assert!(!tpp.demotes_at(TOTAL / 10 + PAGE));
    assert!(tpp.demotes_at(TOTAL / 10 - PAGE));
    assert!(!tpp.demotes_at(TOTAL / 10 + PAGE), "it ends there, too");
    // The patch's own 2 %, and never less than twice high.
    let mut two = Kernel::new("tpp", &[("demote_scale_factor", "200")]);
    assert!(!two.demotes_at(TOTAL / 50 + PAGE) && two.demotes_at(TOTAL / 50 - PAGE));
    let mut least = Kernel::new("tpp", &[("demote_scale_factor", "1")]);
    assert!(!least.demotes_at(2 * HIGH + PAGE) && least.demotes_at(2 * HIGH - PAGE));
}

#[test]
fn tpp_demotes_as_soon_as_promotions_reach_the_mark() {
    let mut tpp = Kernel::new("tpp", &[]);
    let tenth = (TOTAL / 10).next_multiple_of(PAGE);
    assert!(!tpp.demotes_at(tenth + PAGE));
    tpp.ended(1, PROMOTE, MOVED);
    tpp.ended(2, PROMOTE, MOVED);
    let looks = |action: &Action| matches!(action, Action::ProbeNext { .. });
    assert!(tpp.tick().iter().any(looks));
}

#[test]
fn autonuma_promotes_at_any_fault_above_high_and_demotes_nothing() {
    let mut kernel = Kernel::new("autonuma", &[]);
    kernel.free(HIGH + PAGE);
    assert!(kernel.promotes(1, 60_000));
    kernel.free(HIGH);
    assert!(!kernel.promotes(1, 1));
    assert!(!kernel.demotes_at(0));
}

/// `migrate_balanced_pgdat` (mm/migrate.c, Linux 5.13 and 6.12): a page is taken in where the node stays above its
/// high watermark with it, whatever mark demotion goes by.
#[test]
fn each_promotes_down_to_the_high_watermark() {
    for preset in ["autonuma", "kernel-tiering", "tpp"] {
        for (size, free, expected) in [
            (PageSize::Base4K, HIGH, false),
            (PageSize::Base4K, HIGH + 2 * PAGE, true),
            (PageSize::Base4K, PROMO, true),
            (PageSize::Huge2M, HIGH + 2 * MIB - PAGE, false),
            (PageSize::Huge2M, HIGH + 2 * MIB + PAGE, true),
        ] {
            let mut kernel = Kernel::with_pages(preset, &[], size);
            kernel.free(free);
            let (_, promoted) = kernel.access(1);
            assert_eq!(promoted, expected, "{preset} {size:?} {free}");
        }
    }
}

/// `mpol_misplaced` with `MPOL_F_MORON` (mm/mempolicy.c): to the node of the processor that faults, where it has one;
/// with tiers only from slow memory (`change_pte_range`: `node_is_toptier` is left out).
#[test]
fn a_page_goes_to_the_socket_that_faults() {
    for (preset, node, cpu_node, expected) in [
        ("autonuma", SLOW, None, Some(FAST)),
        ("autonuma", SLOW, Some(OTHER), Some(OTHER)),
        ("autonuma", FAST, Some(OTHER), Some(OTHER)),
        ("autonuma", OTHER, Some(OTHER), None),
        ("kernel-tiering", SLOW, Some(OTHER), Some(OTHER)),
        ("kernel-tiering", FAST, Some(OTHER), None),
        ("tpp", SLOW, Some(OTHER), Some(OTHER)),
        ("tpp", FAST, Some(OTHER), None),
    ] {
        let mut kernel = Kernel::with_pages(preset, &[], PageSize::Huge2M);
        kernel.free_on(OTHER, TOTAL / 2);
        let idle = Some(Nanos(1));
        let wanted = kernel.fault_from(1, node, cpu_node, idle);
        let to = wanted.iter().find_map(|action| match action {
            Action::Migrate {
                migration: Migration::Promote { to, .. },
                ..
            } => Some(*to),
            _ => None,
        });
        assert_eq!(to, expected, "{preset} {node:?} {cpu_node:?}");
    }
}
