// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which memory is scanned for hint faults, by which scanner, and how long a pass is to take.

use terrace_core::Nanos;
use terrace_core::NodeId;
use terrace_core::PageSize;
use terrace_policy::Action;
use terrace_policy::KernelScanner;
use terrace_policy::KernelView;
use terrace_policy::ScanScope;
use terrace_policy::Verdict;

use crate::machine::FAST;
use crate::machine::GIB;
use crate::machine::HIGH;
use crate::machine::Kernel;
use crate::machine::MIB;
use crate::machine::MOVED;
use crate::machine::PROMOTE;
use crate::machine::SLOW;
use crate::machine::TOTAL;
use crate::machine::period_ms;

#[test]
fn each_arms_the_tiers_it_promotes_from() {
    for (preset, expected) in [
        ("autonuma", ScanScope::All),
        ("kernel-tiering", ScanScope::Slow),
        ("tpp", ScanScope::Slow),
    ] {
        let mut kernel = Kernel::new(preset, &[]);
        let scan = kernel.tick().into_iter().find_map(|action| match action {
            Action::Scan { scope, .. } => Some(scope),
            _ => None,
        });
        assert_eq!(scan, Some(expected), "{preset}");
    }
}

/// A kernel with MGLRU also has what came with Linux 6.7 (`vma_is_accessed`), one of the papers' time has not. Only
/// TPP's patch arms a demoted page (`remove_migration_pte`).
#[test]
fn each_has_the_scanner_of_its_time() {
    for (preset, params, scanner, arms_demoted) in [
        ("autonuma", vec![], KernelScanner::Pauses, false),
        ("tpp", vec![], KernelScanner::Pauses, true),
        ("kernel-tiering", vec![], KernelScanner::PausesForAll, false),
        (
            "kernel-tiering",
            vec![("mglru", "false")],
            KernelScanner::Pauses,
            false,
        ),
    ] {
        let options = Kernel::new(preset, &params).policy.machine_options();
        assert_eq!(options.scanner, scanner, "{preset} {params:?}");
        assert_eq!(options.arms_demoted, arms_demoted, "{preset} {params:?}");
    }
}

/// `numa_scan_period` is 1 s at first and what `task_numa_work` waits from one `scan_size_mb` to the next
/// (kernel/sched/fair.c, Linux 6.12); without tiers `task_scan_min` divides it among the steps.
#[test]
fn a_pass_takes_its_shortest_period_and_with_todays_kernel_that_for_each_step() {
    const BASE: PageSize = PageSize::Base4K;
    const HUGE: PageSize = PageSize::Huge2M;
    let old = [("mglru", "false")];
    let half = [("scan_period_min", "500ms")];
    for (preset, params, size, scan_bytes, expected) in [
        ("autonuma", &[][..], HUGE, 256 * MIB, 1_000),
        ("tpp", &[], HUGE, 256 * MIB, 1_000),
        ("kernel-tiering", &old, HUGE, 256 * MIB, 1_000),
        ("kernel-tiering", &[], BASE, 256 * MIB, 1_000),
        ("kernel-tiering", &[], HUGE, 256 * MIB, 32_000),
        ("kernel-tiering", &[], HUGE, 3 * GIB, 3_000),
        ("kernel-tiering", &half, HUGE, 256 * MIB, 16_000),
    ] {
        let view = KernelView {
            scan_bytes,
            ..KernelView::default()
        };
        let mut kernel = Kernel::with_view(preset, params, size, view);
        let period = period_ms(&kernel.tick());
        assert_eq!(period, Some(expected), "{preset} {params:?} {scan_bytes}");
    }
}

/// `update_task_scan_period`: after a quiet pass, which makes it 2 s, the period follows where faults are and whether
/// migrations fail; with `numa_balancing=2` no fault counts.
#[test]
fn the_period_follows_faults_but_with_tiers() {
    for (preset, node, threads, free, expected) in [
        ("autonuma", FAST, 16, TOTAL, Some(2_600)),
        ("autonuma", SLOW, 16, TOTAL, Some(1_000)),
        ("autonuma", SLOW, 2, TOTAL, Some(1_600)),
        ("autonuma", SLOW, 16, HIGH, Some(4_000)),
        ("tpp", SLOW, 16, TOTAL, Some(1_000)),
        ("tpp", SLOW, 16, HIGH, Some(4_000)),
        ("kernel-tiering", SLOW, 16, TOTAL, None),
        ("kernel-tiering", SLOW, 16, HIGH, None),
    ] {
        let view = KernelView {
            threads,
            ..KernelView::default()
        };
        let mut kernel = Kernel::with_view(preset, &[], PageSize::Huge2M, view);
        let first = period_ms(&kernel.tick()).expect("it begins");
        let mut pass = |node: Option<NodeId>, ms| {
            for unit in 0..10 {
                node.map(|node| kernel.fault_from(unit, node, None, Some(Nanos(1))));
            }
            kernel.now = kernel.now + Nanos::from_millis(ms);
            let period = period_ms(&kernel.tick());
            kernel.free(free);
            period
        };
        let quiet = pass(None, first);
        let period = pass(Some(node), quiet.unwrap_or(first));
        assert_eq!(period, expected, "{preset} {node:?} {threads} {free}");
        assert_eq!(quiet.is_some(), expected.is_some());
    }
}

/// With `numa_balancing=2` `local + shared` is 0 in `update_task_scan_period`: the first promotion after a pass has
/// ended doubles the period, up to `scan_period_max_ms`, 60 s. A pass begins where memory does.
#[test]
fn with_tiers_the_period_doubles_at_the_first_promotion_after_a_pass() {
    let mut kernel = Kernel::with_pages("kernel-tiering", &[], PageSize::Huge2M);
    assert_eq!(period_ms(&kernel.tick()), Some(32_000));
    kernel.armed(0);
    kernel.armed(5);
    kernel.ended(1, PROMOTE, MOVED);
    assert_eq!(period_ms(&kernel.drain()), None, "the first pass goes on");
    kernel.armed(0);
    kernel.ended(1, PROMOTE, Verdict::Busy);
    assert_eq!(period_ms(&kernel.drain()), None, "it was not promoted");
    kernel.ended(1, PROMOTE, MOVED);
    assert_eq!(period_ms(&kernel.drain()), Some(60_000));
}
