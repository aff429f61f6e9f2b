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
