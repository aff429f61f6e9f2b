// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two trackers on one program: the kernel's scanner arms its pages while their accessed bits are read.

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

/// Idle times of pages that are used every 2 ms to 8 s, told by hint faults and by the ladder, against when they were
/// used. The truth is noted by who uses them: a slow host delays both.
#[test]
#[ignore = "boots the emulated machine"]
fn idle_times_are_true_by_faults_and_by_accessed_bits() {
    let out = guest("\"$(dirname $(command -v terrace))/examples/idle_times\"").good();
    println!("{out}");
    let groups: Vec<&str> = out.lines().filter(|line| line.starts_with('{')).collect();
    assert_eq!(groups.len(), 7, "{out}");
    let mut before = (0, 0);
    for group in groups {
        let of = |name| number(group, name);
        // Half of the pages at least were armed and used again, and all were read.
        assert!(of("faults") >= 64 && of("rungs") >= 128, "{group}");
        // By faults to a fifth, and in the true order; by the ladder to a rung, the factor 2.
        let (told, truth) = (of("fault_us"), of("fault_truth_us"));
        assert!(told.abs_diff(truth) * 5 <= truth, "{group}");
        assert!(
            of("fault_right") >= 900 && of("rung_right") >= 900,
            "{group}"
        );
        if truth > before.1 * 11 / 10 {
            assert!(told > before.0, "the order is wrong: {out}");
        }
        before = (told, truth);
    }
}
