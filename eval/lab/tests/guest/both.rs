// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two trackers on one program: the kernel's scanner arms its pages while their accessed bits are read; the accessed bits by
//! name and by DAMON.

use crate::machine::guest;
use crate::number;

#[test]
#[ignore = "boots the emulated machine"]
fn accessed_bits_are_right_of_pages_that_the_scanner_arms() {
    let out = guest(
        "before=$(cat /proc/sys/kernel/numa_balancing)
         \"$(dirname $(command -v terrace))/examples/both_trackers\" || exit 1
         [ $(cat /proc/sys/kernel/numa_balancing) = $before ] || exit 2",
    )
    .good();
    println!("{out}");
    let groups: Vec<&str> = out.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(groups.len(), 3, "{out}");
    for group in groups {
        let of = |name| number(group, name);
        let all = of("pages") * of("passes");
        // An armed page is there as any other, whoever uses it.
        assert!(of("armed_times") > 0, "{group}");
        assert_eq!(of("present"), all, "{group}");
        let (accessed, faulted) = (of("accessed"), of("faulted"));
        if of("period_ms") == 0 {
            assert_eq!((accessed, faulted), (0, 0), "nobody used it: {group}");
        } else {
            // The scanner skips what it likes.
            assert!(accessed * 100 > all * 95, "{group}");
            assert!(faulted * 4 > of("pages") * 3, "{group}");
        }
    }
}

/// What the program does itself for a scan, emulated: mark its pages, and take the faults of others before one.
const SCANNED_US: u64 = 800;

/// Pages that are used once a period, evenly, have half of it in the median, from 2 ms to 10 s: a hint fault says it to a fifth, readings by
/// the two that it is between. Longer periods have longer idle times by both.
#[test]
#[ignore = "boots the emulated machine"]
fn idle_times_are_those_of_known_pages() {
    let out = guest("\"$(dirname $(command -v terrace))/examples/idle_times\" || exit 1").good();
    println!("{out}");
    let groups: Vec<&str> = out.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(groups.len(), 7, "{out}");
    let (mut idle, mut until) = (0, 0);
    for group in groups {
        let of = |name| number(group, name);
        let half = of("period_us") / 2;
        let before = (idle, until);
        (idle, until) = (of("idle_us"), of("until_us"));
        assert!(idle.abs_diff(half) <= half / 5 + SCANNED_US, "{out}");
        assert!(of("since_us") <= half && half <= until, "{out}");
        assert!(idle > before.0 && until > before.1, "{out}");
    }
}

/// Ours finds of each page whether it was used; DAMON of each region in how many of its samples, which is the share of the pages that are
/// used: within a tenth, of some 400 samples in four regions four times their standard deviation.
#[test]
#[ignore = "boots the emulated machine"]
fn looks_by_name_and_damon_agree_on_known_pages() {
    let out = guest("\"$(dirname $(command -v terrace))/examples/scan_backends\" || exit 1").good();
    println!("{out}");
    let regions: Vec<&str> = out.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(regions.len(), 16, "{out}");
    // Regions of one kind are every fourth.
    for kind in 0..4 {
        let alike = || regions.iter().skip(kind).step_by(4);
        let sum = |name| alike().map(|region| number(region, name)).sum::<u64>();
        assert_eq!(sum("named"), 4 * 3 * 128, "all that were named: {out}");
        assert_eq!(sum("wrong"), 0, "{out}");
        assert!(sum("samples") >= 4 * 5 * 20, "{out}");
        // In thousandths.
        let damon = sum("hits") * 1_000 / sum("samples");
        let truth = sum("uses") * 1_000 / (4 * 512);
        assert!(damon.abs_diff(truth) <= 100, "{damon} of {truth}: {out}");
    }
}
