// SPDX-License-Identifier: MIT OR Apache-2.0
//! Huge pages with one hot part each, where the fast tier is full of some of them.

use crate::END;
use crate::READY;
use crate::machine::slowed;
use crate::until_more;

/// As wholes they have a third of the visits in fast memory at most, which is what fits of them. Visits are as rare as readings can tell
/// apart here, and passes a second long: they would be up to a minute, as reading costs much and what there is to gain is little.
#[test]
#[ignore = "boots the emulated machine"]
fn hot_parts_of_huge_pages_are_fast_in_the_end() {
    // Eight are split to see.
    let split = until_more("$sup", "splits", 8);
    let out = slowed(&format!(
        "terrace run --param pace=false --stats=/tmp/s -- terrace-bench sparse think=15us --huge --place fast --seconds 5m > /tmp/out & sup=$!
         {READY}; {split}; sleep 40
         terrace why $(pgrep -x terrace-bench | tail -1)
         {END}; wait $sup || exit 1; cat /tmp/s; echo; grep share_by_node /tmp/out | tail -1"
    ))
    .good();
    println!("{out}");
    let total = out.lines().last().expect("it says what it reached");
    let total: serde_json::Value = serde_json::from_str(total).expect("JSON");
    let fast = total["total"]["share_by_node"][0].as_f64();
    assert!(fast.is_some_and(|share| share > 0.5), "{total}");
    assert!(out.contains("of its huge pages are in parts"), "{out}");
}
